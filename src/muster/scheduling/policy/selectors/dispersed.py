"""Dispersed: spread work over agents (source: Sokovan)."""

from collections.abc import Sequence

from muster.core.resources import GPU_WHOLE, DeviceShare, Resources
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.order import Ranking
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.policy.selectors.concentrated import Concentrated, fullest_devices


class Dispersed(AgentSelector):
    """Spreads load, so that one agent's failure costs little.

    The lowest utilisation comes first, then the larger total capacity; a fraction of a GPU goes to
    the freest device.

    Args:
        resources: as of ``Concentrated``.

    Raises:
        MusterError: ``resources`` is no list of different names.
    """

    ranking: Ranking | None = Ranking.EMPTIEST
    fullest_device = False

    def __init__(self, resources: Sequence[str] = ()) -> None:
        self._concentrated = Concentrated(resources)
        if self._concentrated.ranking is None:
            self.ranking = None

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        return -self._concentrated.score(request, snapshot, candidates)

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        if request.gpu_milli >= GPU_WHOLE:
            return fullest_devices(request, snapshot, slot)
        _, index = max(
            snapshot.columns.devices_for(request, slot), key=lambda item: (item[0], -item[1])
        )
        return (DeviceShare(index, request.gpu_milli),)
