"""Concentrated: fill agents one after the other (source: Sokovan)."""

from collections.abc import Sequence

from muster.core.resources import GPU_WHOLE, DeviceShare, Resources
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.order import Ranking
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.policy.selectors.resource_priority import Fullness, checked

_LESS_THAN_A_STEP = 0.5e-6  # of utilisation, so that size decides among equals only


class Concentrated(AgentSelector):
    """Fills agents one after the other, to keep others whole for work that needs them whole.

    The highest utilisation comes first, then the smaller total capacity; a fraction of a GPU goes
    to the fullest device with room for it.

    Args:
        resources: names of resources whose utilisation counts, the most important first; without
            any, the mean over all of an agent's resources counts.

    Raises:
        MusterError: ``resources`` is no list of different names.
    """

    packs = True
    ranking: Ranking | None = Ranking.FULLEST
    fullest_device = True

    def __init__(self, resources: Sequence[str] = ()) -> None:
        names = checked(resources)
        self._fullness = Fullness(names) if names else None
        if names:
            self.ranking = None  # no order of agents is kept for this

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        columns = snapshot.columns
        if self._fullness is not None:
            return self._fullness.of(columns, candidates)
        scores = columns.utilisation.take(candidates)
        scores -= columns.size.take(candidates) * _LESS_THAN_A_STEP
        return scores

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        return fullest_devices(request, snapshot, slot)


def fullest_devices(request: Resources, snapshot: Snapshot, slot: int) -> Shares:
    """For whole GPUs the wholly free devices from the lowest index on; for a fraction the fullest
    device that fits."""
    devices = snapshot.columns.devices_for(request, slot)
    milli = request.gpu_milli
    if milli >= GPU_WHOLE:
        return tuple(DeviceShare(index, GPU_WHOLE) for _, index in devices[: request.gpu_devices])
    _, fullest = min(devices)
    return (DeviceShare(fullest, milli),)
