"""How the ends and starts of its kernels, its time limit, and the end of its job move a session
(design: Promotion)."""

from collections.abc import Sequence

from muster.control.engine.handler import (
    DerivationHandler,
    KernelMatchType,
    PromotionHandler,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.heard_time import timed_out_at
from muster.control.session.lifecycle import STOP, UNPREPARED, UNSTARTED, is_forced
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_kernels import Timeout
from muster.core.reasons.of_sessions import Cancelled, Completed, KernelEnded, LeaderEnded
from muster.core.reasons.of_tasks import JobEnded, JobFailed
from muster.core.states import (
    JOB_TABLE,
    KERNEL_TABLE,
    SESSION_TABLE,
    JobState,
    SessionStatus,
)
from muster.store.records import Job, Session


class SessionPromotionHandler(PromotionHandler[Session]):
    """Promotes a session by the statuses of its kernels (design: Promotion)."""

    entity = Session


class PromoteToPrepared(SessionPromotionHandler):
    """SCHEDULED or PREPARING → PREPARED once no kernel is unprepared."""

    name = "PromoteToPrepared"
    statuses = frozenset({SessionStatus.SCHEDULED, SessionStatus.PREPARING})
    check_kernel_statuses = UNPREPARED
    match_type = KernelMatchType.NOT_ANY
    success = TransitionStatus(SessionStatus.PREPARED)


class PromoteToRunning(SessionPromotionHandler):
    """CREATING → RUNNING once every kernel has started."""

    name = "PromoteToRunning"
    statuses = frozenset({SessionStatus.CREATING})
    check_kernel_statuses = UNSTARTED
    match_type = KernelMatchType.NOT_ANY
    success = TransitionStatus(SessionStatus.RUNNING)


class DetectTermination(SessionPromotionHandler):
    """RUNNING → TERMINATING once a kernel has ended with whose end the session is over, as the hook
    of its type decides (design: Promotion): the rest of a gang is stopped, which runs whole or not
    at all (design: Gang barrier)."""

    name = "DetectTermination"
    statuses = frozenset({SessionStatus.RUNNING})
    check_kernel_statuses = KERNEL_TABLE.terminal
    match_type = KernelMatchType.ANY
    success = STOP

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def promotes(self, record: Session) -> bool:
        return self._cluster.hooks.is_over(record)

    def reason(self, record: Session) -> Reason | None:
        leader = record.leader
        if leader is not None and leader.ended_well and not _has_ended_well(record):
            return LeaderEnded(index=leader.index)
        for kernel in record.kernels:
            if kernel.status in KERNEL_TABLE.terminal and not kernel.ended_well:
                how = kernel.reason.sentence() if kernel.reason else kernel.status
                return KernelEnded(index=kernel.index, how=how)
        return Completed()


def _has_ended_well(session: Session) -> bool:
    return session.tally.ended_well == len(session.kernels)


class PromoteToTerminated(SessionPromotionHandler):
    """TERMINATING → TERMINATED once no kernel is live."""

    name = "PromoteToTerminated"
    statuses = frozenset({SessionStatus.TERMINATING})
    check_kernel_statuses = KERNEL_TABLE.live
    match_type = KernelMatchType.NOT_ANY
    success = TransitionStatus(SessionStatus.TERMINATED)

    def reason(self, record: Session) -> Reason | None:
        return record.reason


class EnforceTimeout(DerivationHandler[Session]):
    """RUNNING → TERMINATING when the session ran longer than its spec allows, by its agents' clocks
    too."""

    name = "EnforceTimeout"
    entity = Session
    statuses = frozenset({SessionStatus.RUNNING})

    def derive(self, record: Session, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        timeout_s = record.timeout_s
        if timeout_s is None or record.started_at is None:
            return None
        if work.now < timed_out_at(record, timeout_s, work):
            return None
        if work.is_full:
            work.look_later([record])
            return None
        return STOP, Timeout(timeout_s=timeout_s)


class EndWithJob(DerivationHandler[Session]):
    """A session whose job has ended, or is about to, ends too: whatever has a process is stopped, a
    bounded number a wake, because a job may have tens of thousands. It is the first handler of a
    pass, so that no other one begins anything for such a session."""

    name = "EndWithJob"
    entity = Session
    statuses = SESSION_TABLE.live - {SessionStatus.TERMINATING}
    narrows = True

    def gather(self, candidates: Sequence[Session], work: Work) -> Sequence[Session]:
        ended = JOB_TABLE.terminal
        suspects = [
            each
            for each in candidates
            if (job := each.job) is not None and (job.reason is not None or job.status in ended)
        ]
        return super().gather(suspects, work) if suspects else suspects

    def derive(self, record: Session, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        job = record.job
        if job is None or not is_over(job):
            return None
        if work.is_full:
            work.look_later([record])
            return None
        return STOP, why_with_job(job)


def is_over(job: Job) -> bool:
    """Whether the job has ended or was cancelled, which ends it in one of the next passes."""
    cancelled = job.reason is not None and job.reason.code is ReasonCode.CANCELLED
    return cancelled or job.status in JOB_TABLE.terminal


def why_with_job(job: Job) -> Reason:
    """The reason for which the tasks and sessions of a job that is over end."""
    if isinstance(job.reason, Cancelled):
        return job.reason
    kind = JobFailed if job.status is JobState.FAILED else JobEnded
    return kind(state=job.status, forced=is_forced(job.reason))
