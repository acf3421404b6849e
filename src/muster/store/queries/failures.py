"""A job's failed tasks, grouped by the way in which they failed."""

from collections.abc import Mapping
from itertools import groupby, islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from muster.core.errors import Conflict
from muster.core.owner import Principal
from muster.core.states import JOB_TABLE, TaskState
from muster.core.task_ranges import MAX_RANGES, TaskRanges
from muster.core.views.work import FailurePage, FailureView
from muster.store import schema
from muster.store.entities import JOB
from muster.store.load import load_job
from muster.store.queries.listing import reason_view, spec_cut_view
from muster.store.queries.refs import resolve
from muster.store.queries.tasks import failed_by_itself, job_row, matrix_of
from muster.store.records import Job

WAYS = 10
"""Groups in an answer, at most."""
SUCH_AS = 3
"""Tasks of each group that are named, at most."""
MIN_ALIKE, MOST_ALIKE = 2, 10_000
"""Tasks of a group for which it is told which values they all have, at least and at most."""


def list_failures(connection: Connection, principal: Principal, ref: str) -> FailurePage:
    """A job's failed tasks, grouped by how they failed.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    tasks = schema.tasks
    job = job_row(connection, principal, ref)
    way = (tasks.c.status, tasks.c.exit_code, tasks.c.reason, tasks.c.reason_numbers)
    conditions = (tasks.c.job_id == job.id, failed_by_itself())
    in_all = connection.execute(select(func.count()).where(*conditions)).scalar_one()
    within = func.row_number().over(partition_by=way, order_by=tasks.c.idx)
    alike = func.count().over(partition_by=way)
    numbered = (
        select(tasks.c.idx, *way, within.label("within"), alike.label("alike"))
        .where(*conditions)
        .subquery()
    )
    first = func.min(numbered.c.idx).over(partition_by=[numbered.c[each.name] for each in way])
    rows = connection.execute(
        select(numbered, first.label("first"))
        .where(numbered.c.within <= SUCH_AS)
        .order_by(numbered.c.alike.desc(), first, numbered.c.idx)
        .limit(WAYS * SUCH_AS)
    ).all()
    matrix = matrix_of(job)
    items = []
    for _, each in islice(groupby(rows, lambda row: row.first), WAYS):
        members = [*each]
        row = members[0]
        parameters: Mapping[str, str] = {}
        if matrix is not None and MIN_ALIKE <= row.alike <= MOST_ALIKE:
            same = (column.is_not_distinct_from(getattr(row, column.name)) for column in way)
            indexes = connection.execute(select(tasks.c.idx).where(*conditions, *same)).scalars()
            parameters = matrix.common(indexes)
        items.append(
            FailureView(
                state=TaskState(row.status),
                exit_code=row.exit_code,
                reason=reason_view(row),
                tasks=row.alike,
                such_as=tuple(member.idx for member in members),
                parameters=parameters,
            )
        )
    return FailurePage(items=tuple(items), others=in_all - sum(each.tasks for each in items))


def read_to_retry(
    connection: Connection, principal: Principal, ref: str, *, failed: bool
) -> tuple[Job, TaskRanges | None]:
    """A job that has ended, and the tasks of it that are to be run again; None stands for all.

    Args:
        failed: whether only tasks that failed by themselves are to run again, not all that did not
            succeed.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
        Conflict: the job has not ended, is somebody else's, its spec is no longer kept whole, or it
            has no such tasks.
    """
    jobs = schema.jobs
    id_ = resolve(connection, JOB, principal, ref)
    row = connection.execute(select(jobs).where(jobs.c.id == id_)).one()
    job = load_job(row)
    if not principal.owns(job.owner):
        raise Conflict(f"job {job.name} is {job.owner}'s: only they can hand it in again")
    if (lacks := spec_cut_view(row)) is not None:
        raise Conflict(f"job {job.name} cannot be run again: {lacks.sentence}. {lacks.remedy}")
    if job.status not in JOB_TABLE.terminal:
        raise Conflict(f"job {job.name} is {job.status}: it can be retried once it has ended")
    if failed:
        condition = failed_by_itself()
        left: list[tuple[int, int]] = []
    else:
        condition = schema.tasks.c.status != TaskState.SUCCEEDED
        whole = job.spec.only or TaskRanges.of([(0, job.spec.tasks - 1)])
        left = list(whole.after(job.next_task))  # tasks without rows
    rows = connection.execute(_islands(job, condition)).all()
    if len(rows) > MAX_RANGES:
        raise Conflict(f"the tasks lie too far apart: in more than {MAX_RANGES} ranges")
    again = TaskRanges.of([*((each.first, each.last) for each in rows), *left])
    if not again.ranges:
        outcome = "none of its tasks failed" if failed else "all of its tasks succeeded"
        raise Conflict(f"there is nothing of job {job.name} to run again: {outcome}")
    if job.spec.coscheduled or len(again) == job.spec.tasks:
        return job, None
    return job, again


def _islands(job: Job, condition: ColumnElement[bool]) -> Select[Any]:
    """The first and the last index of each run of tasks that meet the condition."""
    tasks = schema.tasks
    behind = (tasks.c.idx - func.row_number().over(order_by=tasks.c.idx)).label("behind")
    chosen = select(tasks.c.idx, behind).where(tasks.c.job_id == job.id, condition).subquery()
    return (
        select(func.min(chosen.c.idx).label("first"), func.max(chosen.c.idx).label("last"))
        .group_by(chosen.c.behind)
        .limit(MAX_RANGES + 1)
    )
