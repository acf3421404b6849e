"""A job's tasks as the API tells them, those that have no rows yet too (DESIGN section 5)."""

from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, select

from muster.core.errors import NotFound
from muster.core.owner import Principal
from muster.core.states import JOB_TABLE, TaskState
from muster.core.views import TaskDetail, TaskPage, TaskView
from muster.store import schema
from muster.store.queries.jobs import row_counts, state_without_row
from muster.store.queries.listing import reason_view
from muster.store.queries.refs import JOBS, resolve
from muster.store.queries.sessions import kernel_view, kernels_with_agents

MAX_ATTEMPTS = 100
"""Attempts of a task that are shown: the latest."""


def list_tasks(
    connection: Connection,
    principal: Principal,
    ref: str,
    state: TaskState | None,
    offset: int,
    limit: int,
) -> TaskPage:
    """A job's tasks by index, from the ``offset``-th on; only those in ``state`` if it is given.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    tasks = schema.tasks
    job = job_row(connection, principal, ref)
    query = select(tasks).where(tasks.c.job_id == job.id).order_by(tasks.c.idx).limit(limit)
    if state is None:
        rows_total = job.next_task
        query = query.where(tasks.c.idx >= offset)  # the indexes of rows have no gaps
    else:
        rows_total = row_counts(job).get(state, 0)
        query = query.where(tasks.c.state == state).offset(offset)
    items = [_view(row) for row in connection.execute(query)]
    without_row = 0
    if state is None or state is state_without_row(ended=_ended(job)):
        without_row = job.tasks_total - job.next_task
        first = job.next_task + max(offset - rows_total, 0)
        last = min(first + limit - len(items), job.tasks_total)
        items += [_view_without_row(job, index) for index in range(first, last)]
    return TaskPage(items=tuple(items), total=rows_total + without_row)


def read_task(connection: Connection, principal: Principal, ref: str, index: int) -> TaskDetail:
    """One task with its attempts.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``; NotFound also when there is no such index.
    """
    kernels = schema.kernels
    job = job_row(connection, principal, ref)
    view = task_view(connection, job, index)
    latest = (
        kernels_with_agents()
        .where(kernels.c.job_id == job.id, kernels.c.task_index == index)
        .order_by(kernels.c.attempt.desc())
        .limit(MAX_ATTEMPTS)
    )
    attempts = [kernel_view(row) for row in connection.execute(latest)]
    return TaskDetail(**msgspec.structs.asdict(view), attempts=tuple(reversed(attempts)))


def job_row(connection: Connection, principal: Principal, ref: str) -> Row[Any]:
    """What of a job's row its tasks need.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    c = schema.jobs.c
    id_ = resolve(connection, JOBS, principal, ref)
    needed: Select[Any] = select(
        c.id, c.state, c.state_changed_at, c.submitted_at, c.tasks_total, c.next_task, c.counts
    )
    return connection.execute(needed.where(c.id == id_)).one()


def task_view(connection: Connection, job: Row[Any], index: int) -> TaskView:
    """A task of the job, whether or not it has a row.

    Raises:
        NotFound: there is no such index.
    """
    tasks = schema.tasks
    if not 0 <= index < job.tasks_total:
        raise NotFound(
            f"job {job.id} has no task {index}: its tasks are 0 to {job.tasks_total - 1}"
        )
    row = connection.execute(
        select(tasks).where(tasks.c.job_id == job.id, tasks.c.idx == index)
    ).one_or_none()
    return _view_without_row(job, index) if row is None else _view(row)


def _ended(job: Row[Any]) -> bool:
    return job.state in JOB_TABLE.terminal


def _view(row: Row[Any]) -> TaskView:
    return TaskView(
        job_id=row.job_id,
        index=row.idx,
        state=TaskState(row.state),
        state_changed_at=row.state_changed_at,
        attempt=row.attempt,
        failure_count=row.failure_count,
        preemption_count=row.preemption_count,
        session_id=row.session_id,
        kernel_id=row.kernel_id,
        started_at=row.started_at,
        finished_at=row.finished_at,
        exit_code=row.exit_code,
        reason=reason_view(row),
    )


def _view_without_row(job: Row[Any], index: int) -> TaskView:
    ended = _ended(job)
    return TaskView(
        job_id=job.id,
        index=index,
        state=state_without_row(ended=ended),
        state_changed_at=job.state_changed_at if ended else job.submitted_at,
    )
