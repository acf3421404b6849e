"""Handlers that bring incidents in line with services that end, and with machines that change."""

from collections.abc import Sequence

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.control.health.entity import Incident
from muster.control.health.incidents import Incidents
from muster.control.health.ladder import words
from muster.control.health.lifecycle import IncidentLifecycle
from muster.core.health.service import load
from muster.core.health.verdict import MAX_WHAT, Verdict, bounded, unknown
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_health import HealthHealFailed
from muster.core.states import SESSION_TABLE, AgentStatus
from muster.core.states.health import HEALTH_TABLE, HealthStatus
from muster.store.records import Agent, Session

_H = HealthStatus
_CHECK = "health"


class FollowServices(FollowingHandler[Session]):
    """Hands what a service came to to the incident that it was begun for. A service that no
    incident waits for any more, because an operator decided otherwise or its time was over, changes
    nothing."""

    name = "FollowServices"
    stage = Stage.SETTLE
    entity = Session
    statuses = frozenset(SESSION_TABLE.terminal)
    narrows = True

    def __init__(self, incidents: Incidents, lifecycle: IncidentLifecycle) -> None:
        self._incidents = incidents
        self._lifecycle = lifecycle

    def gather(self, candidates: Sequence[Session], work: Work) -> Sequence[Session]:
        if not self._incidents:
            return ()
        of_service = self._incidents.of_service
        ended = (each for each in candidates if each.status in self.statuses)
        return [each for each in ended if of_service(each.id) is not None]

    def follow(self, record: Session, work: Work) -> None:
        incident = self._incidents.of_service(record.id)
        if incident is None:
            return
        match incident.status:
            case _H.RESETTING | _H.REBOOTING | _H.VERIFYING if _was_cut_off(record):
                self._lifecycle.begin_again(work, incident)
            case _H.CHECKING | _H.VERIFYING:
                self._lifecycle.judge(work, incident, self.name, _verdict_of(record))
            case _H.RESETTING if _has_succeeded(record):
                self._lifecycle.healed(work, incident, self.name)
            case _H.REBOOTING if not _has_refused(record):
                self._lifecycle.note_end(work, incident)  # it is back with another boot, or late
            case _:
                how = bounded(_how(record), MAX_WHAT)
                why = HealthHealFailed(heal=words(incident.heal), how=how)
                self._lifecycle.heal_failed(work, incident, self.name, why, refused=True)


class FollowMachines(FollowingHandler[Agent]):
    """Has the incident of a machine looked at once its agent is back, falls silent, or is removed,
    and the turns of its group: a share of its machines has them."""

    name = "FollowMachines"
    entity = Agent
    statuses = frozenset(AgentStatus)
    narrows = True

    def __init__(self, incidents: Incidents, lifecycle: IncidentLifecycle) -> None:
        self._incidents = incidents
        self._lifecycle = lifecycle

    def gather(self, candidates: Sequence[Agent], work: Work) -> Sequence[Agent]:
        if not self._incidents:
            return ()
        for each in candidates:
            self._incidents.look_at(each.group)
        return [each for each in candidates if self._incidents.of(each.id) is not None]

    def follow(self, record: Agent, work: Work) -> None:
        incident = self._incidents.of(record.id)
        if incident is None:
            return
        if record.status is AgentStatus.REMOVED:
            self._lifecycle.gone(work, incident, self.name)
        else:
            work.mark(incident)


class FollowRoom(FollowingHandler[Incident]):
    """Has an incident looked at once room was given back on its machine."""

    name = "FollowRoom"
    entity = Incident
    statuses = frozenset(HEALTH_TABLE.live)

    def __init__(self, incidents: Incidents) -> None:
        self._incidents = incidents

    def gather(self, candidates: Sequence[Incident], work: Work) -> Sequence[Incident]:
        return [each for each in self._incidents.take_freed() if each.status in self.statuses]

    def is_due(self, targets: Sequence[Incident]) -> bool:
        return bool(targets) or bool(self._incidents.freed)

    def follow(self, record: Incident, work: Work) -> None:
        work.mark(record)


def _verdict_of(service: Session) -> Verdict:
    """The verdict of a check that has ended; one that left none found out nothing."""
    kernel = service.kernels[0]
    return (
        load(kernel.result) if kernel.result else unknown(_CHECK, "it did not end", _how(service))
    )


def _was_cut_off(service: Session) -> bool:
    """Whether a service was ended because the controller was away for too long: that tells nothing
    of the machine."""
    why = service.kernels[0].reason
    return why is not None and why.code is ReasonCode.LEASE_EXPIRED


def _has_succeeded(service: Session) -> bool:
    return service.kernels[0].ended_well


def _has_refused(service: Session) -> bool:
    """Whether an agent that was to reboot its machine said that it does not, or never began. One
    that was lost meanwhile may be booting."""
    kernel = service.kernels[0]
    return kernel.exit_code not in (None, 0) or kernel.started_at is None


def _how(service: Session) -> str:
    """How a service ended, in its own words if it left some."""
    kernel = service.kernels[0]
    found = load(kernel.result).findings if kernel.result else ()
    if found:
        return "; ".join(each.sentence() for each in found)
    why = kernel.reason or service.reason
    return "nobody knows how" if why is None else why.sentence()
