"""Round robin: agents in turn (source: Sokovan)."""

from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.order import Ranking
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.policy.selectors.concentrated import fullest_devices


class RoundRobin(AgentSelector):
    """Agents in turn, from the one after the last that was given something.

    The snapshot keeps the next slot, so that a pass that is rolled back skips no agent.
    """

    ranking = Ranking.ROUND_ROBIN
    fullest_device = True

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        slots = max(snapshot.columns.slots, 1)
        scores: Floats = -((candidates - snapshot.next_slot) % slots).astype(float)
        return scores

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        return fullest_devices(request, snapshot, slot)
