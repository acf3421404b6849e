"""The lifecycle of recoveries: what their moves mean for their rounds and for their job's tasks."""

from collections.abc import Iterable

from muster.control.engine.handler import TransitionStatus
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.work import Move, Work
from muster.control.recovery.book import Recoveries
from muster.control.recovery.entity import Recovery
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_recovery import RecoveryRunsAgain
from muster.core.specs import RecoverySpec
from muster.core.states import JOB_TABLE
from muster.core.states.recovery import RECOVERY_TABLE, RecoveryStatus

LOOK_AGAIN_S = 30.0
"""How often a restart is looked at that is late, and waits for work ahead of it."""


def spec_of(recovery: Recovery) -> RecoverySpec:
    """The limits of a recovery."""
    return recovery.job.spec.recovery or RecoverySpec()


class RecoveryLifecycle(Lifecycle[Recovery]):
    """Begins and closes rounds with the moves of their recovery."""

    entity = Recovery

    def __init__(self, recoveries: Recoveries) -> None:
        self._recoveries = recoveries

    def moved(self, work: Work, record: Recovery, move: Move) -> None:
        record.reason = move.reason
        match record.status:
            case RecoveryStatus.PENDING_HEALTHCHECK:
                record.open, record.next = record.next, None
            case RecoveryStatus.PENDING_RESTART if record.open is not None:
                record.open = record.open.at(checked_at=work.now)
            case RecoveryStatus.RESTARTING if record.open is not None:
                record.open = record.open.at(healed_at=work.now)
            case RecoveryStatus.IN_PROGRESS:
                if _is_restart(record, move):
                    record.restarts += 1
                record.close_round(work.now, move.reason)
        if record.status in RECOVERY_TABLE.terminal:
            record.close_round(work.now, move.reason)
            record.next = None
            record.finished_at = work.now
            count_run(record, work.now, runs=False)
        self._recoveries.changed(record)
        if record.job.status in JOB_TABLE.live:
            work.mark(record.job)  # its tasks may begin

    def end(self, work: Work, recovery: Recovery, status: RecoveryStatus, move: Move) -> None:
        """End a recovery with its job."""
        live = RECOVERY_TABLE.live
        if status is RecoveryStatus.COMPLETE and recovery.status is not RecoveryStatus.IN_PROGRESS:
            going_on = TransitionStatus(RecoveryStatus.IN_PROGRESS)
            why = None  # its tasks began and ended since it was looked at
            if recovery.status is RecoveryStatus.RESTARTING and recovery.open is not None:
                after_s = work.now - recovery.open.began_at
                why = RecoveryRunsAgain(after_s=after_s)
            self.move(work, [recovery], live, going_on, Move(move.phase, reason=why))
        self.move(work, [recovery], live, TransitionStatus(status), move)

    def deadlines(self, record: Recovery, work: Work) -> Iterable[float]:
        for each in (record.open, record.next):  # whose tasks wait for their own machines
            if each is not None and not record.is_whole:
                checked_by = each.began_at + spec_of(record).check_timeout
                yield checked_by if work.now < checked_by else work.now + LOOK_AGAIN_S
        limit_s = time_limit_s(record)
        if limit_s is None:
            return
        ends_at = record.status_changed_at + limit_s
        yield ends_at if work.now < ends_at else work.now + LOOK_AGAIN_S


def _is_restart(recovery: Recovery, move: Move) -> bool:
    """Whether the move is the end of a restart that counts: a task had failed."""
    runs = move.reason is not None and move.reason.code is ReasonCode.RECOVERY_RUNS_AGAIN
    round_ = recovery.open
    return runs and round_ is not None and not round_.is_leave and not round_.is_counted


def time_limit_s(recovery: Recovery) -> float | None:
    """How long the recovery may stay in its status; None without a limit."""
    spec = spec_of(recovery)
    match recovery.status:
        case RecoveryStatus.PENDING_HEALTHCHECK:
            return spec.check_timeout
        case RecoveryStatus.PENDING_RESTART:
            return spec.return_timeout
        case RecoveryStatus.RESTARTING:
            return spec.restart_timeout
        case _:
            return None


def count_run(recovery: Recovery, now: float, *, runs: bool) -> bool:
    """Take note that tasks of the job run from now on, or that none does any more; whether that is
    news."""
    if runs is (recovery.runs_since is not None):
        return False
    if recovery.runs_since is not None:
        recovery.ran_s += now - recovery.runs_since
        recovery.runs_since = None
    else:
        recovery.runs_since = now
        recovery.started_at = now if recovery.started_at is None else recovery.started_at
    return True
