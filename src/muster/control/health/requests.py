"""Operators' decisions about the health of machines: functions of one wake's work that refuse
before they change anything."""

from collections.abc import Mapping
from enum import StrEnum

from muster.control.engine.work import Work
from muster.control.health.entity import Incident
from muster.control.health.lifecycle import IncidentLifecycle
from muster.core.errors import Conflict, NotFound
from muster.core.ids import AgentId
from muster.core.owner import Principal
from muster.core.reasons.of_health import (
    HealthAsked,
    HealthHealAsked,
    HealthIsolatedBy,
    HealthReturnedBy,
)
from muster.store.records import Agent

PHASE = "Request"


class HealthDecision(StrEnum):
    """A decision of an operator, which outranks every check."""

    CHECK = "check"
    HEAL = "heal"
    ISOLATE = "isolate"
    RETURN = "return"


_Reason = type[HealthAsked | HealthHealAsked | HealthIsolatedBy | HealthReturnedBy]
_REASONS: Mapping[HealthDecision, _Reason] = {
    HealthDecision.CHECK: HealthAsked,
    HealthDecision.HEAL: HealthHealAsked,
    HealthDecision.ISOLATE: HealthIsolatedBy,
    HealthDecision.RETURN: HealthReturnedBy,
}


class HealthRequests:
    """Requests about the health of machines."""

    def __init__(self, lifecycle: IncidentLifecycle) -> None:
        self._lifecycle = lifecycle

    def decide(
        self,
        work: Work,
        principal: Principal,
        id_: AgentId,
        decision: HealthDecision,
        note: str = "",
    ) -> Incident:
        """Carry out a decision; the incident of the machine is the answer, a new one if it had
        none.

        Args:
            note: the operator's explanation, for people.

        Raises:
            NotFound: there is no such agent.
            Conflict: it is to be returned and has no incident; or it is to be checked or healed
                while it is being rebooted.
        """
        agent = _found(work, id_)
        by = principal.owner.user
        why = _REASONS[decision](by=by, note=note, agent=agent.name)
        match decision:
            case HealthDecision.CHECK:
                return self._lifecycle.check(work, agent, PHASE, why)
            case HealthDecision.HEAL:
                return self._lifecycle.heal(work, agent, PHASE, why)
            case HealthDecision.ISOLATE:
                return self._lifecycle.isolate(work, agent, PHASE, why)
            case HealthDecision.RETURN:
                incident = self._lifecycle.return_(work, agent, PHASE, why)
                if incident is None:
                    raise Conflict(f"agent {agent.name} has no incident: nothing is to be returned")
                return incident


def _found(work: Work, id_: AgentId) -> Agent:
    """
    Raises:
        NotFound: no such agent.
    """
    agent = work.live.agents.get(id_)
    if agent is None:
        raise NotFound(f"there is no agent {id_} any more")
    return agent
