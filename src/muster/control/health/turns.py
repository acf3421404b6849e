"""Turns: no more than a share of a group's machines is emptied, checked and healed at a time, so
that a wrong check cannot displace the work of a whole cluster."""

from collections.abc import Sequence

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.control.health import ladder
from muster.control.health.conditions import is_known_faulty
from muster.control.health.entity import Incident, IncidentId
from muster.control.health.incidents import Incidents
from muster.control.health.ladder import Wish
from muster.control.health.lifecycle import IncidentLifecycle
from muster.core.reasons import Reason
from muster.core.reasons.of_health import HealthWaitsTurn
from muster.core.states.health import HEALTH_TABLE


class GiveTurns(FollowingHandler[Incident]):
    """Has idle machines that wait for their turn checked without one, and gives the free turns of a
    group to others, before anything is placed on them. It looks at each group by one of its waiting
    incidents, and only if an incident of the group changed or room came free on its machine."""

    name = "GiveTurns"
    stage = Stage.OBSERVE
    entity = Incident
    statuses = frozenset(HEALTH_TABLE.live)

    def __init__(self, incidents: Incidents, lifecycle: IncidentLifecycle) -> None:
        self._incidents = incidents
        self._lifecycle = lifecycle

    def gather(self, candidates: Sequence[Incident], work: Work) -> Sequence[Incident]:
        groups = dict.fromkeys(each.group for each in candidates)
        groups |= dict.fromkeys(self._incidents.take_groups())
        groups |= dict.fromkeys(each.group for each in self._incidents.freed)
        waiting = (self._incidents.in_group(each).waiting for each in groups)
        return [next(iter(each)) for each in waiting if each]

    def is_due(self, targets: Sequence[Incident]) -> bool:
        return bool(targets or self._incidents.groups_to_look_at or self._incidents.freed)

    def follow(self, record: Incident, work: Work) -> None:
        of_group = self._incidents.in_group(record.group)
        for incident in [*of_group.waiting]:
            self._lifecycle.check_if_idle(work, incident)
        machines = self._lifecycle.machines_of(record.group)
        share = self._lifecycle.spec_of(record).max_unhealthy
        out = len(of_group.out)
        if out >= ladder.most_out(machines, share):
            return
        waiting = {each.id: each for each in of_group.waiting}
        wishes = [Wish(each.id, is_known_faulty(each), each.began_at) for each in waiting.values()]
        for key in ladder.turns(wishes, out, machines, share):
            self._lifecycle.give_turn(work, waiting[IncidentId(key)])


def why_no_turn(incident: Incident, incidents: Incidents, most: int) -> Reason:
    """Why a machine under suspicion waits for its turn.

    Args:
        most: machines of its group that may have a turn at a time.
    """
    return HealthWaitsTurn(
        group=incident.group,
        out=len(incidents.in_group(incident.group).out),
        most=most,
        faulty=is_known_faulty(incident),
    )
