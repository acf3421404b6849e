"""The handlers by which a recovery is made, notes failures, decides, and ends with its job (source:
ECS GPU Recovery)."""

from collections.abc import Sequence

from muster.control.engine.handler import (
    DerivationHandler,
    FollowingHandler,
    Stage,
    TransitionStatus,
)
from muster.control.engine.work import Move, Work
from muster.control.job.closing import state_after
from muster.control.job.derive import state_of
from muster.control.recovery.book import Recoveries
from muster.control.recovery.entity import Recovery, RecoveryId
from muster.control.recovery.lifecycle import RecoveryLifecycle, count_run, spec_of
from muster.control.recovery.rounds import Round
from muster.control.recovery.rules import (
    Decision,
    Turn,
    after_heal,
    after_restart,
    lost_machine,
)
from muster.control.recovery.telling import Teller
from muster.control.recovery.verdicts import (
    carry_out,
    decide_after_check,
    is_judged,
    not_begun,
    verdicts_on,
)
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.explanation import LACKS_MACHINES
from muster.control.session.lifecycle import LOST_CODES, SessionLifecycle
from muster.core.ids import IdKind
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_recovery import RecoveryJobEnded
from muster.core.states import JOB_TABLE, JobState, SessionStatus, TaskState
from muster.core.states.recovery import RECOVERY_TABLE, RecoveryStatus
from muster.store.records import Job, Session


class _OfJobs(FollowingHandler[Job]):
    """Looks at jobs that opted in alone."""

    entity = Job
    narrows = True

    def __init__(self, recoveries: Recoveries) -> None:
        self._recoveries = recoveries

    def gather(self, candidates: Sequence[Job], work: Work) -> Sequence[Job]:
        mine = [job for job in candidates if job.spec.recovery is not None]
        return super().gather(mine, work) if mine else mine


class MakeRecoveries(_OfJobs):
    """Makes the recovery of a job in the commit in which the job is made."""

    name = "MakeRecoveries"
    stage = Stage.EXPAND
    statuses = frozenset(JOB_TABLE.live)

    def follow(self, record: Job, work: Work) -> None:
        if self._recoveries.of(record) is not None:
            return
        recovery = Recovery(
            id=RecoveryId(work.ids.new(IdKind.RECOVERY)),
            job=record,
            status=RecoveryStatus.IN_PROGRESS,
            status_changed_at=work.now,
            created_at=work.now,
        )
        work.unit.add(recovery)
        work.mark(recovery)
        self._recoveries.made(recovery)


class FollowJobs(_OfJobs):
    """Has the recovery of a job that changed looked at while it waits, and counts how long tasks of
    the job run, for its effective training time ratio."""

    name = "FollowJobs"
    stage = Stage.SETTLE
    statuses = frozenset(JOB_TABLE.live)

    def follow(self, record: Job, work: Work) -> None:
        recovery = self._recoveries.of(record)
        runs = record.counts.get(TaskState.RUNNING, 0) > 0
        if recovery is None:
            return
        if count_run(recovery, work.now, runs=runs):
            work.unit.touch(recovery)
        if recovery.open is not None or recovery.next is not None:
            work.mark(recovery)


class _Decides(DerivationHandler[Recovery]):
    """Derives the next status of a recovery from a decision, and carries the decision out: the
    verdicts that were kept open are closed, and attempts that are given up are stopped."""

    entity = Recovery
    stage = Stage.SETTLE

    def __init__(self, sessions: SessionLifecycle) -> None:
        self._sessions = sessions

    def decide(self, recovery: Recovery, round_: Round, work: Work) -> Decision | None:
        """The decision; None if there is none yet."""
        raise NotImplementedError

    def derive(self, record: Recovery, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        if record.open is None or state_of(record.job) in JOB_TABLE.terminal:
            return None  # it ends with its job
        decision = self.decide(record, record.open, work)
        if decision is None:
            return None
        return TransitionStatus(_status_after(record, record.open, decision)), decision.why

    def derived(self, record: Recovery, work: Work) -> None:
        over = record.kept[-1] if record.open is None and record.kept else None
        verdicts = () if over is None else verdicts_on(record.job, over, record.reason)
        if not verdicts:
            return
        carry_out(verdicts, record.job, work, self._sessions, self.name, record.reason)


class BeginRounds(DerivationHandler[Recovery]):
    """IN_PROGRESS → PENDING_HEALTHCHECK with a failed attempt."""

    name = "BeginRounds"
    entity = Recovery
    stage = Stage.SETTLE
    statuses = frozenset({RecoveryStatus.IN_PROGRESS})

    def derive(self, record: Recovery, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        if record.next is None or state_of(record.job) in JOB_TABLE.terminal:
            return None
        return TransitionStatus(RecoveryStatus.PENDING_HEALTHCHECK), record.next.why.reason()


class AwaitChecks(_Decides):
    """PENDING_HEALTHCHECK → PENDING_RESTART with the first machine at fault; once none is, the
    tasks' own retries decide."""

    name = "AwaitChecks"
    statuses = frozenset({RecoveryStatus.PENDING_HEALTHCHECK})

    def decide(self, recovery: Recovery, round_: Round, work: Work) -> Decision | None:
        if not is_judged(recovery.job, round_):
            return None  # the attempt is still being stopped
        if not round_.charged and not any(task.had_to_leave for task in round_.tasks):
            return lost_machine(round_, _lost(recovery.job))
        return decide_after_check(recovery, round_, work.now - recovery.status_changed_at)


class AwaitMachines(_Decides):
    """PENDING_RESTART → RESTARTING once the machines are healthy again, or others are taken."""

    name = "AwaitMachines"
    statuses = frozenset({RecoveryStatus.PENDING_RESTART})

    def decide(self, recovery: Recovery, round_: Round, work: Work) -> Decision | None:
        waited_s = work.now - recovery.status_changed_at
        spec = spec_of(recovery)
        if any(agent.is_fault for agent in round_.agents):
            return after_heal(round_, waited_s, recovery.restarts, spec)
        # The machines at fault have left the round with their tasks.
        is_over = waited_s >= spec.return_timeout
        waited_s = spec.check_timeout if is_over else work.now - round_.began_at
        return decide_after_check(recovery, round_, waited_s)


class AwaitRestarts(_Decides):
    """RESTARTING → IN_PROGRESS once the tasks have begun again."""

    name = "AwaitRestarts"
    statuses = frozenset({RecoveryStatus.RESTARTING})

    def __init__(self, sessions: SessionLifecycle, cluster: ClusterState) -> None:
        super().__init__(sessions)
        self._cluster = cluster

    def decide(self, recovery: Recovery, round_: Round, work: Work) -> Decision | None:
        unbegun = not_begun(recovery.job, round_)
        waiting = [
            session
            for index in unbegun
            if (session := _session_of(recovery.job, index, work)) is not None
        ]
        needs = [why for each in waiting for why in self._lacking(each)]
        queues = any(each.status is SessionStatus.PENDING for each in waiting) and not needs
        placed = [each for each in waiting if each.status is not SessionStatus.PENDING]
        since = min((each.status_changed_at for each in placed), default=0.0)
        return after_restart(
            round_,
            work.now - max(since, recovery.status_changed_at),
            work.now,
            spec_of(recovery),
            runs=not unbegun or recovery.next is not None,
            queues=queues,
            how=needs[0].sentence() if needs else "",
        )

    def _lacking(self, session: Session) -> Sequence[Reason]:
        """The reasons for which no end of other work gives a session its place."""
        members = self._cluster.groups[session.group].queue.find(session.id)
        found = () if members is None else members.reasons
        return [why for why in found if why.code in LACKS_MACHINES]


class EndRecoveries(_OfJobs):
    """Ends the recovery of a job in the commit of the job's end, and tells of one that failed."""

    name = "EndRecoveries"
    stage = Stage.DERIVE
    statuses = frozenset(JOB_TABLE.terminal)

    def __init__(
        self, recoveries: Recoveries, lifecycle: RecoveryLifecycle, teller: Teller
    ) -> None:
        super().__init__(recoveries)
        self._lifecycle = lifecycle
        self._teller = teller

    def follow(self, record: Job, work: Work) -> None:
        recovery = self._recoveries.of(record)
        if recovery is None:
            return
        if recovery.status in RECOVERY_TABLE.live:
            status, why = _end_of(record)
            self._lifecycle.end(work, recovery, status, Move(self.name, reason=why))
        if recovery.status is RecoveryStatus.FAILED:
            self._teller.tell(record, recovery, work)
        self._recoveries.forget(record)


def _end_of(job: Job) -> tuple[RecoveryStatus, Reason | None]:
    """The end of the recovery of a job that has ended, and the reason."""
    if job.status is JobState.SUCCEEDED:
        return RecoveryStatus.COMPLETE, None
    if job.reason is not None and job.reason.code is ReasonCode.CANCELLED:
        return RecoveryStatus.USER_STOPPED, job.reason
    how = job.reason.sentence() if job.reason else ""
    return RecoveryStatus.FAILED, RecoveryJobEnded(state=job.status, how=how)


def _status_after(recovery: Recovery, round_: Round, decision: Decision) -> RecoveryStatus:
    match decision.turn:
        case Turn.HEAL:
            return RecoveryStatus.PENDING_RESTART
        case Turn.RESTART:
            return RecoveryStatus.RESTARTING
        case Turn.RUN:
            return RecoveryStatus.IN_PROGRESS
        case Turn.JUDGE | Turn.GIVE_UP:
            state = state_after(recovery.job, verdicts_on(recovery.job, round_, decision.why))
            ends = state in JOB_TABLE.terminal and state is not JobState.SUCCEEDED
            return RecoveryStatus.FAILED if ends else RecoveryStatus.IN_PROGRESS


def _lost(job: Job) -> str:
    """How a task of the job lost its machine."""
    reasons = (task.reason for task in job.tasks.values() if task.reason is not None)
    return next((why.sentence() for why in reasons if why.code in LOST_CODES), "")


def _session_of(job: Job, index: int, work: Work) -> Session | None:
    task = job.tasks.get(index)
    return (
        None if task is None or task.session_id is None else work.live.sessions.get(task.session_id)
    )
