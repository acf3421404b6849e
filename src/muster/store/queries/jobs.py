"""Jobs as the API tells them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, select

from muster.core.job_remarks import JobRemark
from muster.core.owner import Owner, Principal
from muster.core.states import JOB_TABLE, JobState, TaskState
from muster.core.views.base import ReasonView
from muster.core.views.work import JobDetail, JobPage, JobView
from muster.store import schema
from muster.store.entities import JOB
from muster.store.lookup import Lookup, given
from muster.store.queries.listing import (
    Listing,
    listed,
    owner_view,
    page_of,
    reason_view,
    spec_cut_view,
    spec_view,
)
from muster.store.queries.refs import resolve
from muster.store.records import JOBS
from muster.store.sql import one_of

_LONG = frozenset({"spec", "only"})
_WITHOUT_SPEC = [column for column in schema.jobs.c if column.name not in _LONG]
_RETRIES_SHOWN = 10
_load_remarks = JOBS.loader("remarks")
_MOST_LEFT = 1000
"""Ended jobs that are looked for because something of them is left, the newest."""
NONE_LEFT: Mapping[str, int] = {}
CALLED = Lookup(
    select(schema.jobs.c.id)
    .where(
        schema.jobs.c.name == given("called"),
        schema.jobs.c.domain == given("domain"),
        schema.jobs.c.project == given("project"),
        schema.jobs.c.user == given("user"),
    )
    .limit(1)
)
"""A job of an owner's that is ``called`` so."""
_ONE = Lookup(select(*_WITHOUT_SPEC).where(schema.jobs.c.id == given("id")))


def list_jobs(
    connection: Connection,
    principal: Principal,
    listing: Listing,
    *,
    ids: Collection[str] | None = None,
) -> JobPage:
    """A page of jobs, the newest first; of those with these ``ids`` if they are given."""
    query = select(*_WITHOUT_SPEC)
    if ids is not None:
        query = query.where(one_of(schema.jobs.c.id, ids))
    rows = [*connection.execute(listed(query, JOB, principal, listing))]
    if listing.with_left and listing.left:
        of_left = query.where(schema.jobs.c.id.in_(sorted(listing.left)[-_MOST_LEFT:]))
        found = connection.execute(listed(of_left, JOB, principal, replace(listing, states=None)))
        by_id = {row.id: row for row in (*rows, *found)}
        rows = [by_id[id_] for id_ in sorted(by_id, reverse=True)]
    items, cursor = page_of(rows, listing, lambda row: _view(row, listing.left))
    return JobPage(items=items, next=cursor)


def read_job(connection: Connection, principal: Principal, ref: str) -> JobView:
    """One job.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    id_ = resolve(connection, JOB, principal, ref)
    return _view(next(_ONE.named(connection, {"id": id_})))


def read_job_detail(
    connection: Connection, principal: Principal, ref: str, left: Mapping[str, int] = NONE_LEFT
) -> JobDetail:
    """One job, with its spec.

    Args:
        left: as in ``Listing``.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    jobs = schema.jobs
    id_ = resolve(connection, JOB, principal, ref)
    row = connection.execute(select(jobs).where(jobs.c.id == id_)).one()
    retries = select(jobs.c.id).where(jobs.c.retry_of == id_).order_by(jobs.c.id.desc())
    retried_by = connection.execute(retries.limit(_RETRIES_SHOWN)).scalars()
    return JobDetail(
        **msgspec.structs.asdict(_view(row, left)),
        spec=spec_view(row.spec),
        spec_cut=spec_cut_view(row),
        retried_by=tuple(retried_by),
    )


def all_counts(
    rows: dict[TaskState, int], tasks_total: int, next_task: int, *, ended: bool
) -> dict[TaskState, int]:
    """All of a job's tasks by state: the tasks with ``rows``, and the tasks without one."""
    counts = {state: count for state, count in rows.items() if count}
    if without_row := tasks_total - next_task:
        state = state_without_row(ended=ended)
        counts[state] = counts.get(state, 0) + without_row
    return counts


def state_without_row(*, ended: bool) -> TaskState:
    """The state of a task without a row: it waits, or never ran if its job has ended."""
    return TaskState.KILLED if ended else TaskState.PENDING


def row_counts(row: Row[Any]) -> dict[TaskState, int]:
    """The numbers of a job's task rows by state."""
    return {TaskState(state): count for state, count in json.loads(row.counts).items()}


def _view(row: Row[Any], left: Mapping[str, int] = NONE_LEFT) -> JobView:
    state = JobState(row.status)
    ended = state in JOB_TABLE.terminal
    return JobView(
        id=row.id,
        name=row.name,
        owner=owner_view(row),
        group=row.group,
        state=state,
        state_changed_at=row.status_changed_at,
        tasks_total=row.tasks_total,
        task_count=row.task_count,
        counts=all_counts(row_counts(row), row.tasks_total, row.next_task, ended=ended),
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        reason=reason_view(row),
        retry_of=row.retry_of,
        remarks=tuple(ReasonView.of(each.reason()) for each in _remarks(row.remarks)),
        kernels_left=left.get(row.id, 0) if ended else 0,
    )


def _remarks(text: str) -> Sequence[JobRemark]:
    found: tuple[JobRemark, ...] = _load_remarks(text)
    return found


def free_number(connection: Connection, owner: Owner, stem: str, after: int) -> int:
    """A number above ``after`` so that no stored job of the owner's is called "stem-number".

    The numbers in use have no large gaps, so the number of look-ups grows with their logarithm; it
    is one where the next number is free.
    """

    def is_taken(number: int) -> bool:
        called = {"called": f"{stem}-{number}", **asdict(owner)}
        return CALLED.first(connection, called) is not None

    step = 1
    while is_taken(after + step):
        step *= 2
    taken, free = after + step // 2, after + step
    while free - taken > 1:
        middle = (taken + free) // 2
        if is_taken(middle):
            taken = middle
        else:
            free = middle
    return free
