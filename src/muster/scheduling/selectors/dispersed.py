"""Dispersed: spread work over agents (sokovan-scheduler, "Selectors")."""

from collections.abc import Sequence

from muster.core.resources import GPU_WHOLE, DeviceShare, Resources
from muster.scheduling.columns import Floats, Ints, Shares
from muster.scheduling.order import Ranking
from muster.scheduling.selectors.concentrated import fullest_devices
from muster.scheduling.selectors.priority import Fullness, checked
from muster.scheduling.snapshot import Snapshot

_LESS_THAN_A_STEP = 0.5e-6  # of utilisation, so that size decides among equals only


class Dispersed:
    """Spreads load, so that one agent's failure costs little.

    The lowest utilisation first, then the larger total capacity; a fraction of a GPU goes to the
    freest device.

    Args:
        resources: as of ``Concentrated``.

    Raises:
        MusterError: ``resources`` is no list of different names.
    """

    packs = False
    ranking: Ranking | None = Ranking.EMPTIEST
    fullest_device = False

    def __init__(self, resources: Sequence[str] = ()) -> None:
        names = checked(resources)
        self._fullness = Fullness(names) if names else None
        if names:
            self.ranking = None  # no order of agents is kept for it

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        columns = snapshot.columns
        if self._fullness is not None:
            return -self._fullness.of(columns, candidates)
        scores = columns.size.take(candidates) * _LESS_THAN_A_STEP
        scores -= columns.utilisation.take(candidates)
        return scores

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        if request.gpu_milli >= GPU_WHOLE:
            return fullest_devices(request, snapshot, slot)
        _, index = max(
            snapshot.columns.devices_for(request, slot), key=lambda item: (item[0], -item[1])
        )
        return (DeviceShare(index, request.gpu_milli),)
