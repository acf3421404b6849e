"""A job's tasks as the API tells them, including tasks without a row (design: Tasks follow
attempts)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, func, or_, select

from muster.core.errors import InvalidSpec, NotFound, Problem
from muster.core.owner import Principal
from muster.core.reasons import ReasonCode
from muster.core.specs.matrix import Matrix, Point
from muster.core.states import JOB_TABLE, TaskState
from muster.core.task_ranges import TaskRanges
from muster.core.views.work import KernelView, TaskDetail, TaskPage
from muster.store import schema
from muster.store.entities import JOB
from muster.store.lookup import Lookup, given
from muster.store.queries.jobs import row_counts, state_without_row
from muster.store.queries.listing import reason_view
from muster.store.queries.refs import resolve
from muster.store.queries.sessions import kernel_view, kernels_with_agents

MAX_ATTEMPTS = 100
"""Attempts of a task that are shown, the latest."""
LISTED_ATTEMPTS = 10
"""Attempts of each task that are shown in a list of tasks."""

_jobs, _tasks, _kernels = schema.jobs.c, schema.tasks.c, schema.kernels.c
_JOB = Lookup(
    select(
        _jobs.id,
        _jobs.name,
        _jobs.status,
        _jobs.status_changed_at,
        _jobs.submitted_at,
        _jobs.tasks_total,
        _jobs.task_count,
        _jobs.only,
        _jobs.matrix,
        _jobs.next_task,
        _jobs.counts,
    ).where(_jobs.id == given("id"))
)
_TASK = Lookup(
    select(schema.tasks).where(_tasks.job_id == given("job"), _tasks.idx == given("index"))
)
_ATTEMPTS = Lookup(
    kernels_with_agents()
    .where(_kernels.job_id == given("job"), _kernels.task_index == given("index"))
    .order_by(_kernels.attempt.desc())
    .limit(MAX_ATTEMPTS)
)


def failed_by_itself() -> ColumnElement[bool]:
    """The condition for tasks that failed by themselves, and were not only stopped with their
    job."""
    c = schema.tasks.c
    ends = (TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.UNSCHEDULABLE)
    timed_out = and_(c.status == TaskState.KILLED, c.reason == ReasonCode.TIMEOUT)
    return or_(c.status.in_(ends), timed_out)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """A choice of a job's tasks.

    Args:
        state: only tasks in this state; None is all.
        failed: only tasks that failed by themselves; ``state`` is not looked at then.
        where: only tasks with these values of their parameters.
    """

    state: TaskState | None = None
    failed: bool = False
    where: Mapping[str, str] = field(default_factory=dict)


def list_tasks(
    connection: Connection,
    principal: Principal,
    ref: str,
    asked: TaskFilter,
    offset: int,
    limit: int,
) -> TaskPage:
    """A job's tasks by index with their latest attempts, from the ``offset``-th on.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
        InvalidSpec: the job has no parameter of a name that is asked for.
    """
    job = job_row(connection, principal, ref)
    matrix = matrix_of(job)
    if asked.where:
        page = _with_values(connection, job, matrix, asked, offset, limit)
    else:
        page = _page(connection, job, asked, offset, limit)
    if matrix is None:
        return page
    items = tuple(_with_parameters(each, matrix) for each in page.items)
    return msgspec.structs.replace(page, items=items)


def _page(
    connection: Connection, job: Row[Any], asked: TaskFilter, offset: int, limit: int
) -> TaskPage:
    tasks, state = schema.tasks, asked.state
    ranges = _ranges(job)
    query = select(tasks).where(tasks.c.job_id == job.id).order_by(tasks.c.idx).limit(limit)
    if asked.failed:
        condition = and_(tasks.c.job_id == job.id, failed_by_itself())
        total = connection.execute(select(func.count()).where(condition)).scalar_one()
        rows = connection.execute(query.where(failed_by_itself()).offset(offset)).all()
        return TaskPage(items=tuple(_with_attempts(connection, job, rows)), total=total)
    if state is None:
        rows_total = job.next_task
        if offset < rows_total:
            query = query.where(tasks.c.idx >= (ranges[offset] if ranges else offset))
        rows = connection.execute(query).all() if offset < rows_total else []
    else:
        rows_total = row_counts(job).get(state, 0)
        rows = connection.execute(query.where(tasks.c.status == state).offset(offset)).all()
    items = list(_with_attempts(connection, job, rows))
    without_row = 0
    if state is None or state is state_without_row(ended=_ended(job)):
        without_row = job.tasks_total - job.next_task
        first = job.next_task + max(offset - rows_total, 0)
        last = min(first + limit - len(items), job.tasks_total)
        positions = range(first, last)
        items += [_without_row(job, ranges[each] if ranges else each) for each in positions]
    return TaskPage(items=tuple(items), total=rows_total + without_row)


MAX_LOOKED_AT = 100_000
"""Tasks that have the values asked for, at most."""
_LOOKED_AT_ONCE = 10_000


def _with_values(
    connection: Connection,
    job: Row[Any],
    matrix: Matrix | None,
    asked: TaskFilter,
    offset: int,
    limit: int,
) -> TaskPage:
    """The tasks that have the values asked for, and the state.

    Raises:
        InvalidSpec: a parameter is none of the job's, or too many tasks have these values.
    """
    names = () if matrix is None else matrix.names
    for name in asked.where:
        if name not in names:
            known = f"known are {', '.join(names)}" if names else "the job has none"
            raise InvalidSpec([Problem("where", name[:80], f"no such parameter; {known}")])
    assert matrix is not None
    chosen = _matching(matrix, asked.where, _ranges(job))
    if asked.state is not None or asked.failed:
        chosen = _in_state(connection, job, chosen, asked)
    shown = chosen[offset : offset + limit]
    return TaskPage(items=tuple(_of(connection, job, shown)), total=len(chosen))


def _matching(matrix: Matrix, where: Point, ranges: TaskRanges | None) -> list[int]:
    """The indexes of the tasks of the job that have these values.

    Raises:
        InvalidSpec: too many tasks have them.
    """
    if ranges is not None and len(ranges) <= MAX_LOOKED_AT:
        return [index for index in ranges if where.items() <= matrix.point(index).items()]
    found = list(islice(matrix.matching(where), MAX_LOOKED_AT + 1))
    if len(found) > MAX_LOOKED_AT:
        expected = f"expected values that at most {MAX_LOOKED_AT:,} tasks have: name more of them"
        raise InvalidSpec([Problem("where", "", expected)])
    return [index for index in found if ranges is None or index in ranges]


def _in_state(
    connection: Connection, job: Row[Any], indexes: Sequence[int], asked: TaskFilter
) -> list[int]:
    """The indexes of those of some tasks that are in the state asked for."""
    tasks = schema.tasks.c
    condition = failed_by_itself() if asked.failed else tasks.status == asked.state
    counts_rowless = not asked.failed and asked.state is state_without_row(ended=_ended(job))
    found: list[int] = []
    for at in range(0, len(indexes), _LOOKED_AT_ONCE):
        some = indexes[at : at + _LOOKED_AT_ONCE]
        those = select(tasks.idx).where(tasks.job_id == job.id, tasks.idx.in_(some))
        in_state = set(connection.execute(those.where(condition)).scalars())
        if counts_rowless:
            in_state |= set(some) - set(connection.execute(those).scalars())
        found += [index for index in some if index in in_state]
    return found


def _of(connection: Connection, job: Row[Any], indexes: Sequence[int]) -> Iterable[TaskDetail]:
    """The tasks with these indexes."""
    tasks = schema.tasks
    query = select(tasks).where(tasks.c.job_id == job.id, tasks.c.idx.in_(indexes))
    rows = connection.execute(query.order_by(tasks.c.idx)).all()
    with_rows = {each.index: each for each in _with_attempts(connection, job, rows)}
    for index in indexes:
        yield with_rows.get(index) or _without_row(job, index)


def _with_parameters(task: TaskDetail, matrix: Matrix) -> TaskDetail:
    return msgspec.structs.replace(task, parameters=matrix.point(task.index))


def _with_attempts(
    connection: Connection, job: Row[Any], rows: Sequence[Row[Any]]
) -> Iterable[TaskDetail]:
    """Rows of tasks, by index, with the latest attempts of each: one query for all of them."""
    if not rows:
        return
    kernels = schema.kernels
    latest = func.row_number().over(
        partition_by=kernels.c.task_index, order_by=kernels.c.attempt.desc()
    )
    numbered = (
        kernels_with_agents()
        .add_columns(latest.label("latest"))
        .where(kernels.c.job_id == job.id)
        .where(kernels.c.task_index.between(rows[0].idx, rows[-1].idx))
        .where(kernels.c.task_index.in_([row.idx for row in rows]))
        .subquery()
    )
    found = connection.execute(
        select(numbered)
        .where(numbered.c.latest <= LISTED_ATTEMPTS)
        .order_by(numbered.c.task_index, numbered.c.attempt)
    )
    attempts: dict[int, list[KernelView]] = {}
    for kernel in found:
        attempts.setdefault(kernel.task_index, []).append(kernel_view(kernel))
    for row in rows:
        yield _view(row, attempts.get(row.idx, ()))


def read_task(connection: Connection, principal: Principal, ref: str, index: int) -> TaskDetail:
    """One task with its attempts.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``; NotFound also when there is no such index.
    """
    job = job_row(connection, principal, ref)
    found = task_view(connection, job, index)
    matrix = matrix_of(job)
    if matrix is not None:
        found = _with_parameters(found, matrix)
    latest = _ATTEMPTS.named(connection, {"job": job.id, "index": index})
    attempts = [kernel_view(row) for row in latest]
    return msgspec.structs.replace(found, attempts=tuple(reversed(attempts)))


def job_row(connection: Connection, principal: Principal, ref: str) -> Row[Any]:
    """The columns of a job's row that its tasks need.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    id_ = resolve(connection, JOB, principal, ref)
    row: Row[Any] = next(_JOB.named(connection, {"id": id_}))
    return row


def _ranges(job: Row[Any]) -> TaskRanges | None:
    """The tasks that the job runs; None stands for all."""
    return None if job.only is None else TaskRanges.parse(job.only)


def matrix_of(job: Row[Any]) -> Matrix | None:
    """The parameters of the job's tasks, if they have any."""
    return None if job.matrix is None else Matrix.stored(job.matrix)


def task_view(connection: Connection, job: Row[Any], index: int) -> TaskDetail:
    """A task of the job, whether or not it has a row; without its attempts.

    Raises:
        NotFound: there is no such index.
    """
    ranges = _ranges(job)
    if not 0 <= index < job.task_count or (ranges is not None and index not in ranges):
        last = job.task_count - 1
        told = f"its tasks are 0 to {last}" if last else "its only task is 0"
        if ranges is not None:
            shown = str(ranges)
            told = f"it runs only tasks {shown if len(shown) < 80 else shown[:80] + '…'}"
        raise NotFound(f"job {job.name} has no task {index}: {told}")
    row = next(_TASK.named(connection, {"job": job.id, "index": index}), None)
    return _without_row(job, index) if row is None else _view(row)


def _ended(job: Row[Any]) -> bool:
    return job.status in JOB_TABLE.terminal


def _view(row: Row[Any], attempts: Iterable[KernelView] = ()) -> TaskDetail:
    return TaskDetail(
        job_id=row.job_id,
        index=row.idx,
        state=TaskState(row.status),
        state_changed_at=row.status_changed_at,
        attempt=row.attempt,
        failure_count=row.failure_count,
        preemption_count=row.preemption_count,
        timeout_count=row.timeout_count,
        session_id=row.session_id,
        kernel_id=row.kernel_id,
        started_at=row.started_at,
        finished_at=row.finished_at,
        exit_code=row.exit_code,
        reason=reason_view(row),
        attempts=tuple(attempts),
    )


def _without_row(job: Row[Any], index: int) -> TaskDetail:
    ended = _ended(job)
    return TaskDetail(
        job_id=job.id,
        index=index,
        state=state_without_row(ended=ended),
        state_changed_at=job.status_changed_at if ended else job.submitted_at,
        attempts=(),
    )
