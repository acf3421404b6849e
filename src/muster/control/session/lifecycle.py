"""The lifecycle of sessions: the consequences of a session's move for its kernels, the ledger and
its agents.

A return to PENDING raises the kernels' generation; the old generation is told to stop, and stays
charged until its agent confirms the stop (design: Generation).
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from muster.control.engine.handler import (
    NO_CHANGE,
    StatusTransitions,
    TransitionStatus,
    Unless,
)
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.retries import RetryPolicy
from muster.control.engine.work import Move, Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import IN_PLACE, placed_since
from muster.control.session.heard_time import timed_out_at
from muster.control.tell_agent import TellAgent
from muster.core.ids import AgentId
from muster.core.reasons import DISPLACED, Reason, ReasonCode
from muster.core.reasons.of_sessions import Cancelled, RescheduleLimit
from muster.core.results import SchedulingResult
from muster.core.specs import SessionType
from muster.core.states import (
    KERNEL_TABLE,
    PLACED_SESSION,
    SESSION_TABLE,
    KernelStatus,
    SessionStatus,
)
from muster.scheduling.policy.validators import NEVER
from muster.store.entity import Record
from muster.store.records import MAX_FAILED_AGENTS, Kernel, Session
from muster.wire.messages import Stop

LOST_CODES = frozenset(
    {
        ReasonCode.AGENT_LOST,
        ReasonCode.AGENT_GIVEN_UP,
        ReasonCode.AGENT_REBOOTED,
        ReasonCode.SUPERVISOR_LOST,
        ReasonCode.KERNEL_VANISHED,
        ReasonCode.LEASE_EXPIRED,
    }
)
"""Reasons of ends for which the machine is to blame: the kernel is in ERROR, its task
WORKER_FAILED."""
UNFIT = frozenset(
    {
        ReasonCode.WORKDIR_MISSING,
        ReasonCode.NO_ACCOUNT,
        ReasonCode.UID_CLASH,
        ReasonCode.NO_UID,
        ReasonCode.BAD_FILE_PATH,
    }
)
"""Failures that would happen again on the same agent; on another agent the session may start."""
_FINAL = (
    LOST_CODES
    | NEVER
    | UNFIT
    | {
        ReasonCode.NEVER_STARTED,
        ReasonCode.RESCHEDULE_LIMIT,
        ReasonCode.NO_AGENT_ABLE,
    }
)
_BEGUN = KERNEL_TABLE.terminal | {KernelStatus.RUNNING}
_ENDING = SESSION_TABLE.live - {SessionStatus.TERMINATING}


def _waits(session: Record) -> bool:
    return session.status is SessionStatus.PENDING


def _is_unsent(kernel: Record) -> bool:
    """Whether the kernel has its place, and its agent has not heard of it."""
    return kernel.status is KernelStatus.SCHEDULED


def _has_begun(session: Record) -> bool:
    """Whether a kernel of the session runs or has ended, or its barrier was opened."""
    assert isinstance(session, Session)
    return session.barrier_opened_at is not None or session.tally.among(_BEGUN) > 0


def _may_have_ended(session: Session) -> bool:
    """Whether the kernel of a batch session may have run, and even ended, although no report says
    so: its agent was told to run it, and has not reported a failure of that."""
    if session.type is not SessionType.BATCH or len(session.kernels) > 1:
        return False
    kernel = session.kernels[0]
    return kernel.status is KernelStatus.CREATING and kernel.failure is None


def is_asked_back(session: Session) -> bool:
    """Whether the agent of a session that has to leave was told to stop it before it told that the
    session runs: its report decides (``SessionLifecycle.displace``)."""
    is_displaced = session.reason is not None and session.reason.code in DISPLACED
    return is_displaced and session.status is SessionStatus.CREATING


def _never_waits_anew(session: Record) -> bool:
    """Whether the session is stopped where another one goes back to the queue: it has begun, or is
    a service, which is about this one machine."""
    assert isinstance(session, Session)
    return session.service is not None or _has_begun(session)


_CANCEL_KERNEL = TransitionStatus(KernelStatus.CANCELLED)
STOP_KERNEL = TransitionStatus(KernelStatus.TERMINATING, unless=Unless(_is_unsent, _CANCEL_KERNEL))
CANCEL = TransitionStatus(SessionStatus.CANCELLED, _CANCEL_KERNEL)
STOP = TransitionStatus(SessionStatus.TERMINATING, STOP_KERNEL, unless=Unless(_waits, CANCEL))
"""The end of a session; one that waits has no kernels to stop, and is cancelled at once."""
AGAIN = TransitionStatus(
    SessionStatus.PENDING,
    TransitionStatus(KernelStatus.PENDING),
    unless=Unless(_never_waits_anew, STOP),
)
"""Back to the queue: the old generation of the kernels is told to stop. A session that has begun is
stopped instead, and its job begins another attempt: a terminal status is final, and an attempt that
may have run is not run again. So is a service, of which no machine but its own knows."""
UNPREPARED = frozenset(
    {
        KernelStatus.PENDING,
        KernelStatus.SCHEDULED,
        KernelStatus.PREPARING,
        KernelStatus.PULLING,
    }
)
UNSTARTED = UNPREPARED | {KernelStatus.PREPARED, KernelStatus.CREATING}
RECALL_AFTER_S = 1.0
"""How long a prefilled kernel waits on an agent before it is taken back to be placed anew."""
STOP_AGAIN_AFTER_S = 5.0
"""The time past a kernel's grace after which it is told again to stop, if it is not reported
gone."""


class SessionLifecycle(Lifecycle[Session]):
    """Moves sessions and, with them, their kernels."""

    entity = Session

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    # -- consequences of a move ----------------------------------------------------------------

    def moved(self, work: Work, record: Session, move: Move) -> None:
        why = move.reason
        match record.status:
            case SessionStatus.PENDING:
                self._back_in_queue(record, work.now, move)
            case SessionStatus.SCHEDULED:
                record.reason = None  # it no longer waits for what its last placement lacked
            case SessionStatus.RUNNING:
                record.started_at = work.now
                record.reason = None
            case SessionStatus.TERMINATING:
                record.reason = why
                record.stop_at = 0.0
                if is_forced(why):  # one that is asked back was told with its grace
                    for kernel in record.kernels:
                        kernel.stop_sent_at = None
            case SessionStatus.TERMINATED:
                record.finished_at = work.now
                record.reason = record.reason or why
            case SessionStatus.CANCELLED:
                record.finished_at = work.now
                record.reason = why

    def _back_in_queue(self, session: Session, now: float, move: Move) -> None:
        """Have a session that failed to start remember its agents, and wait anew. A session that
        was not tried (SKIPPED) keeps its place in the queue, unless it was displaced."""
        why, blame = move.reason, move.result is not SchedulingResult.SKIPPED
        displaced = why is not None and why.code in DISPLACED
        session.reason = why if blame or displaced else None
        if blame or displaced:
            session.queued_at = now
        if blame:
            session.reschedules += 1
            failed = {k.agent_id: None for k in session.kernels if k.agent_id and k.failure}
            failed = failed or {k.agent_id: None for k in session.kernels if k.agent_id}
            agents = dict.fromkeys((*session.failed_agents, *_ids(failed)))
            session.failed_agents = tuple(agents)[-MAX_FAILED_AGENTS:]
            session.unfit += tuple(_unfit(session))

    def followers(self, record: Session) -> Sequence[Kernel]:
        return record.kernels

    def followers_among(self, record: Session, statuses: Collection[str]) -> tuple[int, int]:
        return record.tally.among(statuses), len(record.kernels)

    def follower_moved(self, work: Work, follower: Record, before: StrEnum) -> None:
        assert isinstance(follower, Kernel)
        match follower.status:
            case KernelStatus.PENDING:
                self._take_back(work, follower, before)
            case KernelStatus.CANCELLED:  # whatever room it has, no agent has heard of it
                work.unit.release((follower.id, follower.generation))

    def settled(self, work: Work, record: Session) -> None:
        self._cluster.session_changed(record)

    def _take_back(self, work: Work, kernel: Kernel, before: StrEnum) -> None:
        """Have a kernel of a session that goes back to the queue be placed anew."""
        key = (kernel.id, kernel.generation)
        allocation = work.live.ledger.get(key)
        if allocation is not None:
            if before is KernelStatus.SCHEDULED:
                work.unit.release(key)
            else:
                work.emit(
                    TellAgent(allocation.agent_id, Stop(*key, kernel.process.grace, "re-scheduled"))
                )
        kernel.generation += 1
        kernel.agent_id = None
        kernel.shares = ()
        kernel.ports = ()
        work.unit.fail(kernel, None)
        kernel.failed_at = None
        kernel.session.tally.note_ready(kernel, False)
        kernel.recalled = False
        kernel.stop_sent_at = None
        kernel.started_at = None

    # -- moves on behalf of others -------------------------------------------------------------

    def reschedule(self, work: Work, session: Session, phase: str, why: Reason | None) -> None:
        """Have a placed session go back to the queue; no try is charged."""
        self.move(work, [session], PLACED_SESSION, AGAIN, _skipped(phase, why))

    def displace(
        self, work: Work, session: Session, phase: str, why: Reason, until: float = math.inf
    ) -> None:
        """Have a session leave its agents, as far as the service allows to which it may belong.

        Args:
            until: the moment from which no service holds it up.
        """
        if not self._cluster.guard.sees_to(work, session, phase, why, until):
            self._put_out(work, session, phase, why)

    def preempt(
        self, work: Work, session: Session, phase: str, why: Reason, *, again: bool
    ) -> None:
        """Have a session leave its agents at once.

        Args:
            again: whether it is placed anew if it has not started.
        """
        self._cluster.guard.withdraw(work, session, phase, why)
        if again:
            self._put_out(work, session, phase, why)
        else:
            self.terminate(work, [session], phase, why)

    def _put_out(self, work: Work, session: Session, phase: str, why: Reason) -> None:
        """Have a session that has not started be placed anew; any other is stopped, and its job
        begins another attempt, unless the report of its end says that it ended well before. Nobody
        would begin another attempt of a session without a job: where it may have started, its
        agent's report decides."""
        if session.status not in PLACED_SESSION:
            self.terminate(work, [session], phase, why)
        elif not _may_have_ended(session):
            self.reschedule(work, session, phase, why)
        elif session.job is not None:
            self.terminate(work, [session], phase, why)
        elif not is_asked_back(session):
            self._ask_back(work, session, phase, why)

    def _ask_back(self, work: Work, session: Session, phase: str, why: Reason) -> None:
        """Have the agent stop a session of which it is not known whether it has started. One that
        never did is placed anew then (``KernelReports``), any other ends."""
        session.reason = why
        work.unit.touch(session)
        work.unit.note(session, phase, SchedulingResult.SUCCESS, why)
        for kernel in session.kernels:
            stop_asked_back(work, kernel)

    def terminate(
        self, work: Work, sessions: Sequence[Session], phase: str, why: Reason | None
    ) -> None:
        """End sessions, whatever their status."""
        self.move(work, sessions, _ENDING, STOP, Move(phase, reason=why))

    def kill(self, work: Work, sessions: Iterable[Session], phase: str, why: Reason) -> None:
        """Have the kernels of sessions that end already be killed at once (``is_forced``). What
        they end for stays their reason, unless somebody had cancelled them; history tells of
        ``why``. Their room is theirs until they are proven gone, as ever."""
        for session in sessions:
            if session.status is SessionStatus.TERMINATING and not is_forced(session.reason):
                ends_for = session.reason
                is_own = ends_for is not None and ends_for.code is not ReasonCode.CANCELLED
                session.reason = replace(ends_for, forced=True) if ends_for and is_own else why
                session.stop_at = 0.0
                for kernel in session.kernels:
                    kernel.stop_sent_at = None
                work.forget_tries(session)
                work.unit.touch(session)
                work.unit.note(session, phase, SchedulingResult.SUCCESS, why)
                work.mark(session)

    # -- time and tries ------------------------------------------------------------------------

    def deadlines(self, record: Session, work: Work) -> Iterable[float]:
        preemption = work.live.groups[record.group].preemption
        if preemption is not None and record.status in IN_PLACE:
            yield placed_since(record) + preemption.minimum_lease
        match record.status:
            case SessionStatus.PENDING:
                yield record.created_at + work.live.groups[record.group].starvation_after
                workload = self._cluster.workload(record)
                if workload.not_before is not None:
                    yield workload.not_before
                if workload.port is not None:
                    yield self._cluster.ports.next_at(workload.port)
            case SessionStatus.CREATING if is_prefilled(record, work):
                yield record.status_changed_at + RECALL_AFTER_S
            case SessionStatus.RUNNING if record.timeout_s is not None:
                yield timed_out_at(record, record.timeout_s, work)
            case SessionStatus.TERMINATING:
                yield record.stop_at

    def retry_policy(self, record: Session, work: Work) -> RetryPolicy:
        group = work.live.groups[record.group]
        if record.status is SessionStatus.TERMINATING:
            # As many as have place in the time after which a Stop is not waited for.
            tries = math.ceil(group.terminate_timeout / STOP_AGAIN_AFTER_S)
            return RetryPolicy(tries, STOP_AGAIN_AFTER_S, STOP_AGAIN_AFTER_S)
        return RetryPolicy(group.max_tries, group.retry_backoff)

    def final(self, reason: Reason) -> bool:
        return reason.code in _FINAL

    def gave_up(self, phase: str, tries: int, reason: Reason) -> Reason:
        return reason if self.final(reason) else super().gave_up(phase, tries, reason)


def _skipped(phase: str, why: Reason | None) -> Move:
    return Move(phase, SchedulingResult.SKIPPED, why)


def _unfit(session: Session) -> Iterator[tuple[AgentId, Reason]]:
    """The agents that reported that they cannot run the session, and the reasons."""
    for kernel in session.kernels:
        if kernel.agent_id and kernel.failure is not None and kernel.failure.code in UNFIT:
            yield kernel.agent_id, kernel.failure


def _ids(agents: Iterable[AgentId | None]) -> list[AgentId]:
    return [agent for agent in agents if agent is not None]


def tried_in_place(success: TransitionStatus) -> StatusTransitions:
    """The transitions of a phase that agents carry out: tried again on the same agents, and once it
    is given up, or takes too long, again from the queue."""
    return StatusTransitions(success=success, need_retry=NO_CHANGE, expired=AGAIN, give_up=AGAIN)


def begin_again(session: Session, work: Work) -> Sequence[Kernel]:
    """Begin the next try of a phase in which kernels have failed, if its time has come. The answer
    is these kernels, which count as failed no more; none before that time."""
    if not work.may_try(session):
        return ()
    failed = list(session.tally.failed)
    if failed:
        work.begin_try(session)
    for kernel in failed:
        work.unit.fail(kernel, None)
    return failed


def stop_asked_back(work: Work, kernel: Kernel) -> None:
    """Tell the agent to stop a kernel whose session is asked back (``is_asked_back``)."""
    why = kernel.session.reason
    if kernel.agent_id is not None and why is not None:
        key, grace_s = (kernel.id, kernel.generation), kernel.process.grace
        kernel.stop_sent_at = work.now
        work.emit(TellAgent(kernel.agent_id, Stop(*key, grace_s, why.sentence()[:200])))


def failure_to_judge(session: Session) -> Reason | None:
    """The failure by which a phase is to be judged now; None if there is none. A failure that no
    other try can cure is judged at once, any other only if no next try is set."""
    for kernel in session.tally.take_unjudged():
        if kernel.failure is not None and kernel.failure.code in _FINAL:
            return kernel.failure
    first = next(iter(session.tally.failed), None)
    return first.failure if first is not None and session.retry_at == 0.0 else None


def cancelled(by: str, *, force: bool) -> Reason:
    """The reason of work that somebody cancels; with ``force`` its processes get no grace."""
    return Cancelled(by=by, forced=force)


def is_forced(why: Reason | None) -> bool:
    """Whether work that ends for this reason is killed at once."""
    return why is not None and why.forced


def stop_again_at(kernel: Kernel, sent_at: float) -> float:
    """The time at which a kernel that was told to stop, and is not reported gone, is told again."""
    grace_s = 0.0 if is_forced(kernel.session.reason) else kernel.process.grace
    return sent_at + grace_s + STOP_AGAIN_AFTER_S


def is_prefilled(session: Session, work: Work) -> bool:
    """Whether the session is prefilled: it waits in an agent's backlog, and is not charged."""
    kernel = session.kernels[0]
    allocation = work.live.ledger.get((kernel.id, kernel.generation))
    return allocation is not None and not allocation.charged


def why_given_up(session: Session, limit: int) -> Reason | None:
    """The reason to give a session up, once too many of its placements failed."""
    if session.reschedules <= limit:
        return None
    how = session.reason.sentence() if session.reason else "unknown"
    return RescheduleLimit(tried=session.reschedules, how=how)
