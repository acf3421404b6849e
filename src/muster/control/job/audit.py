"""Audits of jobs against their tasks, and of tasks against their attempts."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Row, and_, func, or_, select, tuple_

from muster.control.job.derive import state_of
from muster.control.job.settle import STATE_OF
from muster.core.states import JOB_TABLE, SESSION_TABLE, TASK_TABLE, JobState, TaskState
from muster.store.audit.finding import MAX_SENTENCE, UNREADABLE, Audit, AuditFinding, Stored
from muster.store.load import load_job
from muster.store.lookup import Lookup, given
from muster.store.schema import jobs, kernels, sessions, tasks

_WITH_COUNTS = (
    select(
        jobs,
        tasks.c.status.label("task_status"),
        func.count(tasks.c.idx).label("tasks"),
        func.max(tasks.c.status_changed_at).label("changed_at"),
    )
    .select_from(jobs.outerjoin(tasks, tasks.c.job_id == jobs.c.id))
    .group_by(jobs.c.id, tasks.c.status)
    .order_by(jobs.c.id)
)


def _wrong_jobs(stored: Stored) -> Iterator[AuditFinding]:
    rows = stored.connection.execute(_WITH_COUNTS)
    for id_, alike in groupby(rows, attrgetter("id")):
        counted = list(alike)
        try:
            for sentence in _wrong_with(counted, stored.settled):
                yield AuditFinding(id_, sentence)
        except UNREADABLE as error:
            yield AuditFinding(id_, f"cannot be read: {error!r}"[:MAX_SENTENCE])


def _wrong_with(counted: Sequence[Row[Any]], settled: float) -> Iterator[str]:
    """Sentences on the faults of a job; ``counted`` has a row for each state of its tasks."""
    job = load_job(counted[0])
    counts = {TaskState(row.task_status): row.tasks for row in counted if row.tasks}
    told = {state: count for state, count in job.counts.items() if count}
    if told != counts:
        yield f"counts tasks that are {_said(told)}, and has tasks that are {_said(counts)}"
    if job.next_task != sum(counts.values()):
        yield f"has made {job.next_task} tasks, and has {sum(counts.values())}"
    if job.next_task > job.tasks_total:
        yield f"has made {job.next_task} tasks of {job.tasks_total}"
    stored_status, job.counts = job.status, counts
    if stored_status in JOB_TABLE.terminal:
        job.status = JobState.RUNNING
    elif any((row.changed_at or 0.0) >= settled for row in counted):
        return
    derived = state_of(job)
    if derived is not stored_status:
        yield f"is {stored_status}, and would be {derived} by its tasks: {_said(counts)}"


def _said(counts: dict[TaskState, int]) -> str:
    return ", ".join(f"{state} {counts[state]}" for state in sorted(counts)) or "none"


_OUTLIVING = Lookup(
    select(tasks.c.job_id, tasks.c.idx, tasks.c.status, jobs.c.status)
    .select_from(tasks.join(jobs, jobs.c.id == tasks.c.job_id))
    .where(
        tasks.c.status.in_(sorted(TASK_TABLE.live)),
        jobs.c.status.in_(sorted(JOB_TABLE.terminal)),
    )
)


def _outliving(stored: Stored) -> Iterator[AuditFinding]:
    for job, index, status, job_status in _OUTLIVING.each(stored.connection):
        yield AuditFinding(f"{job}/{index}", f"is {status}, and its job is {job_status}")


@cache
def _with_wrong_attempts() -> Lookup:
    t, k = tasks.c, kernels.c
    of_task = and_(k.job_id == t.job_id, k.task_index == t.idx, k.attempt == t.attempt)
    return Lookup(
        select(t.job_id, t.idx, t.attempt, t.session_id, t.kernel_id, k.id, k.session_id)
        .select_from(tasks.outerjoin(kernels, of_task))
        .where(
            t.attempt > 0,
            or_(
                k.id.is_(None),
                k.id.is_distinct_from(t.kernel_id),
                and_(t.session_id.is_not(None), k.session_id != t.session_id),
            ),
        )
    )


def _wrong_attempts(stored: Stored) -> Iterator[AuditFinding]:
    wrong = _with_wrong_attempts().each(stored.connection)
    for job, index, attempt, *named, kernel, session in wrong:
        told, found = "/".join(map(str, named)), f"{session}/{kernel}"
        yield AuditFinding(f"{job}/{index}", f"names {told} as attempt {attempt}, which is {found}")


@cache
def _with_other_states() -> Lookup:
    t, s = tasks.c, sessions.c
    pairs = [(session, state) for session, state in STATE_OF.items()]
    placed = [
        (session, TaskState.BUILDING) for session, each in pairs if each is TaskState.ASSIGNED
    ]
    return Lookup(
        select(t.job_id, t.idx, t.status, s.id, s.status)
        .select_from(tasks.outerjoin(sessions, s.id == t.session_id))
        .where(
            t.status.in_(sorted(TASK_TABLE.live)),
            or_(
                and_(t.session_id.is_(None), t.status != TaskState.PENDING),
                and_(
                    s.status_changed_at < given("settled"),
                    or_(
                        s.status.in_(sorted(SESSION_TABLE.terminal)),
                        and_(
                            s.status.in_(sorted(STATE_OF)),
                            tuple_(s.status, t.status).not_in([*pairs, *placed]),
                        ),
                    ),
                ),
            ),
        )
    )


def _unsettled(stored: Stored) -> Iterator[AuditFinding]:
    found = _with_other_states().each(stored.connection, {"settled": stored.settled})
    for job, index, status, session, session_status in found:
        attempt = f"its attempt {session} is {session_status}" if session else "it has no attempt"
        yield AuditFinding(f"{job}/{index}", f"is {status}, and {attempt}")


AUDITS = (
    Audit("each job has the status and the counts that follow from its tasks", _wrong_jobs),
    Audit("no task is live once its job has ended", _outliving),
    Audit("each task has the kernel and the session of its last attempt", _wrong_attempts),
    Audit("each live task has the status that follows from its attempt", _unsettled),
)
