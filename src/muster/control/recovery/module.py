"""Recoveries, as the control plane composes them."""

from muster.control.engine.declared import Declared
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import Context, EntityModule
from muster.control.engine.work import Work
from muster.control.health.incidents import Incidents
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.job.held import HeldAttempts
from muster.control.job.requests import JobRequests
from muster.control.notice.ends import Writer
from muster.control.recovery.asked import AskedChecks
from muster.control.recovery.attempts import FollowIncidents, NoteFailures, StopOthers
from muster.control.recovery.audit import AUDITS
from muster.control.recovery.book import Recoveries
from muster.control.recovery.entity import RECOVERY, Recovery
from muster.control.recovery.handlers import (
    AwaitChecks,
    AwaitMachines,
    AwaitRestarts,
    BeginRounds,
    EndRecoveries,
    FollowJobs,
    MakeRecoveries,
)
from muster.control.recovery.holds import RecoveryHolds
from muster.control.recovery.lifecycle import RecoveryLifecycle
from muster.control.recovery.parts import SettleParts
from muster.control.recovery.requests import RecoveryRequests
from muster.control.recovery.telling import Teller
from muster.control.session.cluster.state import ClusterState
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.states import SessionStatus
from muster.core.states.recovery import RecoveryStatus
from muster.store.live import Live


class RecoveryModule(EntityModule):
    """Declares recoveries, and keeps verdicts on attempts open for them."""

    entities = (RECOVERY,)
    after = ("notice", "health")
    audits = AUDITS

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._asked = AskedChecks()

    def begin(self, live: Live, before: Live | None) -> None:
        """Have sessions that restart a job prefer its former agents again."""
        names = {
            each.job.id: each.open.returned_to
            for each in live.of(Recovery).values()
            if each.status is RecoveryStatus.RESTARTING and each.open is not None
        }
        for session in live.sessions.values() if names else ():
            if session.job is not None and session.status is SessionStatus.PENDING:
                session.returns_to = names.get(session.job.id)

    def declare(self, context: Context) -> Declared:
        parts, live = context.parts, context.store.live
        sessions = parts[SessionLifecycle]
        recoveries = Recoveries(live)
        parts[HeldAttempts].keeper = recoveries
        parts[ClusterState].machine_holds = RecoveryHolds(recoveries)
        lifecycle = RecoveryLifecycle(recoveries)
        return Declared(
            lifecycles=[lifecycle],
            handlers=[
                MakeRecoveries(recoveries),
                NoteFailures(recoveries, parts[Incidents], parts[IncidentLifecycle], self._asked),
                StopOthers(recoveries),
                FollowIncidents(recoveries, self._asked),
                FollowJobs(recoveries),
                BeginRounds(),
                SettleParts(recoveries, sessions),
                AwaitChecks(sessions),
                AwaitMachines(sessions),
                AwaitRestarts(sessions, parts[ClusterState]),
                EndRecoveries(recoveries, lifecycle, Teller(parts[Writer])),
            ],
            offers=[recoveries, RecoveryRequests(live, parts[JobRequests])],
        )

    def sweep(self, work: Work, since: float) -> None:
        self._asked.forget(work.live.agents, work.now)
