"""Which agent a kernel goes to (sokovan-scheduler, "Selectors")."""

from muster.core.resources import GPU_WHOLE, DeviceShare, Resources
from muster.scheduling.columns import Floats, Ints, Shares
from muster.scheduling.snapshot import Snapshot

_LESS_THAN_A_STEP = 0.5e-6  # of utilisation, so that size decides among equals only


class Concentrated:
    """Fills agents one after the other, to keep others whole for what needs them whole.

    The highest utilisation first, then the smaller total capacity; a fraction of a GPU goes to the
    fullest device that still has it.
    """

    packs = True

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        columns = snapshot.columns
        scores = columns.utilisation.take(candidates)
        scores -= columns.size.take(candidates) * _LESS_THAN_A_STEP
        return scores

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        return fullest_devices(request, snapshot, slot)


def fullest_devices(request: Resources, snapshot: Snapshot, slot: int) -> Shares:
    """Whole GPUs: wholly free devices from the lowest index. A fraction: the fullest that fits."""
    free: list[int] = snapshot.columns.device_free[slot].tolist()
    milli = request.gpu_milli
    if milli >= GPU_WHOLE:
        whole = [index for index, left in enumerate(free) if left == GPU_WHOLE]
        return tuple(DeviceShare(index, GPU_WHOLE) for index in whole[: request.gpu_devices])
    _, fullest = min((left, index) for index, left in enumerate(free) if left >= milli)
    return (DeviceShare(fullest, milli),)
