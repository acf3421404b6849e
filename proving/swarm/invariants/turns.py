"""The turns in which the machines of a group are healed: isolated machines, which nobody heals,
keep no other waiting."""

from collections import Counter
from collections.abc import Iterator

from muster.control.health.entity import Incident
from muster.core.states import AgentStatus
from muster.core.states.health import HEALTH_TABLE, HealthStatus
from muster.store.live import Live
from proving.swarm.invariants.health import most_out
from proving.swarm.judge import Invariant
from proving.swarm.oracle.room import NOTICED_S


class NobodyWaitsForTheIsolated(Invariant):
    """Judged while the controller has nothing to do. An isolated machine is out of work, and counts
    for no share: nothing that is tried on it could be cut short by a wrong check of another. A
    machine without work is checked without a turn, as many at a time as have turns; its heal needs
    one, also where it counts as faulty because nothing could be found out."""

    says = "no healthy machine waits for an isolated one"

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or not controller.is_idle:
            return
        live = controller.store.live
        waiting = [*self._waiting(live)]
        if not waiting:
            return
        healing = Counter(
            each.group
            for each in _live(live)
            if each.has_turn and each.status is not HealthStatus.ISOLATED
        )
        beside = Counter(each.group for each in _live(live) if each.needs_no_turn)
        for incident in waiting:
            most, has = most_out(live, incident.group), healing[incident.group]
            self.expect(
                most is None or has >= most,
                f"{incident.agent} waits for a turn, and {has} of {most} machines have one that "
                f"are not isolated",
            )
            is_empty = not live.allocations_on.get(incident.agent_id)
            waits_for_heal = incident.confirmed or incident.heal is not None
            is_full = most is not None and beside[incident.group] >= most
            self.expect(
                waits_for_heal or not is_empty or is_full,
                f"{incident.agent} waits for a turn to be checked, and nothing runs there",
            )

    def _waiting(self, live: Live) -> Iterator[Incident]:
        """The incidents that wait for nothing but a turn, and did so a moment ago."""
        for each in _live(live):
            agent = live.agents.get(each.agent_id)
            is_there = agent is not None and agent.status is AgentStatus.ALIVE and agent.connected
            waits = each.status is HealthStatus.SUSPECT and not (
                each.has_turn or each.needs_no_turn
            )
            is_due = max(each.status_changed_at, each.retry_at) < self.now - NOTICED_S
            if waits and is_there and is_due:
                yield each


def _live(live: Live) -> Iterator[Incident]:
    return (each for each in live.of(Incident).values() if each.status in HEALTH_TABLE.live)
