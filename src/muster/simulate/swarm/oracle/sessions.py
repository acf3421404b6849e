"""Why sessions end, and with what codes their kernels do, compared with what happened."""

from collections.abc import Callable, Mapping

from sqlalchemy import select

from muster.core import exit_codes
from muster.core.owner import Principal
from muster.core.reasons import ReasonCode
from muster.core.specs import SessionType
from muster.core.states import JOB_TABLE, SESSION_TABLE, SessionStatus, TaskState
from muster.simulate.swarm.judge import Invariant, Judge
from muster.simulate.swarm.oracle.facts import End, Facts, How
from muster.simulate.swarm.scene import ADMIN
from muster.store import schema
from muster.store.queries.tasks import read_task
from muster.store.records import Session
from muster.store.unit import Unit


class SessionsEndForCause(Invariant):
    """The reason of a session's end is true: somebody asked, a time was over, a higher priority
    waited and its lease was over, all exited with 0."""

    says = "a session ends for the reason that it tells, and its kernels with their own codes"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._facts = judge.of(Facts)

    def committed(self, unit: Unit) -> None:
        for session, stored in unit.touched[Session].items():
            if stored is SessionStatus.RUNNING and session.status is SessionStatus.TERMINATING:
                self._judge_lease(session, unit)
            if session.status in SESSION_TABLE.terminal:
                ends = self._ends(session)
                self._judge_codes(session, ends)
                self._judge_reason(session, ends, unit)

    def _judge_lease(self, session: Session, unit: Unit) -> None:
        code = None if session.reason is None else session.reason.code
        preemption, began = unit.live.groups[session.group].preemption, session.started_at
        if code in _PREEMPTED and preemption is not None and began is not None:
            ran_s = unit.now - began
            right = ran_s >= preemption.minimum_lease
            self.expect(right, f"{session.id} was displaced after {ran_s:.3f} s")

    def _ends(self, session: Session) -> list[End | None]:
        """The end of each kernel; None where it is not known, or two pieces of news cross."""
        known = [self._facts.known[k.id, k.generation] for k in session.kernels]
        return [
            each.ends[0] if len(each.ends) == 1 and not each.is_unsure else None for each in known
        ]

    def _judge_codes(self, session: Session, ends: list[End | None]) -> None:
        for kernel, end in zip(session.kernels, ends, strict=True):
            if end is not None and kernel.ended_at is not None:
                told, true = (kernel.exit_code, kernel.signal), (end.exit_code, end.signal)
                self.expect(told == true, f"{kernel.id} ended with {told}, and not {true}")

    def _judge_reason(self, session: Session, ends: list[End | None], unit: Unit) -> None:
        code = None if session.reason is None else session.reason.code
        cause = _CAUSES.get(code) if code is not None else None
        if cause is ReasonCode.CANCELLED:
            name = session.id if session.job is None else session.job.id
            self.expect(name in self.scene.cancelled, f"nobody asked to cancel {name}")
        elif callable(cause):
            self.expect(cause(session, unit), f"{session.id} ended for {session.reason}")
        elif code is ReasonCode.COMPLETED and None not in ends:
            well = [each is not None and _is_well(each) for each in ends]
            right = all(well) if session.type is SessionType.BATCH else any(well)
            self.expect(right, f"{session.id} is told to have completed: {ends}")


def _is_well(end: End) -> bool:
    return end.how is How.BY_ITSELF and end.exit_code == 0


def _ran_too_long(session: Session, unit: Unit) -> bool:
    timeout_s, began = session.timeout_s, session.started_at
    return timeout_s is not None and began is not None and unit.now >= began + timeout_s


def _waited_too_long(session: Session, unit: Unit) -> bool:
    handed_in = session.created_at if session.job is None else session.job.submitted_at
    timeout_s = session.scheduling_timeout_s
    return timeout_s is not None and unit.now >= handed_in + timeout_s


def _job_has_ended(session: Session, unit: Unit) -> bool:
    return session.job is not None and session.job.status in JOB_TABLE.terminal


def _may_be_displaced(session: Session, unit: Unit) -> bool:
    reason = session.reason
    assert reason is not None, "that it was displaced is its reason"
    return bool(dict(reason.numbers)["priority"] > session.priority)


def _was_placed_in_vain(session: Session, unit: Unit) -> bool:
    return session.reschedules > unit.live.groups[session.group].max_reschedules


_PREEMPTED = (ReasonCode.PREEMPTED, ReasonCode.PREEMPTED_FOR_GOOD)
_CAUSES: Mapping[ReasonCode, Callable[[Session, Unit], bool] | ReasonCode] = {
    ReasonCode.CANCELLED: ReasonCode.CANCELLED,
    ReasonCode.TIMEOUT: _ran_too_long,
    ReasonCode.SCHEDULING_TIMEOUT: _waited_too_long,
    ReasonCode.JOB_ENDED: _job_has_ended,
    ReasonCode.JOB_FAILED: _job_has_ended,
    ReasonCode.RESCHEDULE_LIMIT: _was_placed_in_vain,
    ReasonCode.PREEMPTED: _may_be_displaced,
    ReasonCode.PREEMPTED_FOR_GOOD: _may_be_displaced,
}


class TasksEndWithTheirCode(Invariant):
    """The exit code that is answered for a task is the one that a shell would give for its last
    attempt."""

    says = "a task that ended by itself ends with its own exit code"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._facts = judge.of(Facts)

    def at_rest(self) -> None:
        tasks, kernels = schema.tasks, schema.kernels
        ended = select(tasks.c.job_id, tasks.c.idx, kernels.c.id, kernels.c.generation).join(
            kernels, kernels.c.id == tasks.c.kernel_id
        )
        by_itself = ended.where(
            tasks.c.status.in_([TaskState.SUCCEEDED, TaskState.FAILED]),
            kernels.c.exit_code.is_not(None),
        )
        with self.world.store.engine.connect() as connection:
            rows = connection.execute(by_itself.limit(MOST_ASKED)).all()
            for row in rows:
                known = self._facts.known[row.id, row.generation]
                ends = [] if known.is_unsure else known.ends
                detail = read_task(connection, _READER, row.job_id, row.idx)
                told = exit_codes.of_task(detail)
                self.expect(
                    len(ends) != 1 or told == ends[0].exit_code,
                    f"task {row.idx} of {row.job_id} ends with {told}, and not as {ends}",
                )


MOST_ASKED = 8
"""Tasks that are asked about, of those that ended by themselves: each takes several queries."""
_READER = Principal(ADMIN.owner, ADMIN.role)
