"""The pools whose machines can hold work: simple sums over specs."""

from muster.core.resources import GPU_WHOLE, KERNELS, Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.core.specs.placement import Operator
from muster.core.specs.pool import PoolSpec

_MOST_KERNELS = 1_000_000


def holds(spec: PoolSpec, request: Resources) -> bool:
    """Whether an empty machine of a pool holds a kernel."""
    has = spec.machine.capacity(_MOST_KERNELS).as_dict()
    asked = {name: amount for name, amount in request.as_dict().items() if name != KERNELS}
    within = all(amount <= has.get(name, 0) for name, amount in asked.items())
    return within and request.gpu_milli <= spec.machine.gpus * GPU_WHOLE


def meets(spec: PoolSpec, asked: JobSpec | SessionSpec) -> bool:
    """Whether machines of a pool have the labels for which work asks."""
    for each in asked.placement.constraints:
        has = spec.attributes_in("").get(each.attribute)
        if (has in each.values) is not (each.op is Operator.EQ):
            return False
    return True
