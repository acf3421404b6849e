"""The usage of ended sessions, for sequencers that order by it, and their requests, for selectors
that learn."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from muster.core.health.service import SERVICE_OWNER
from muster.core.owner import Owner
from muster.core.resources import Resources
from muster.core.specs import ResourcesSpec
from muster.core.specs.amounts import STORED
from muster.core.states import SESSION_TABLE
from muster.scheduling.accounting.fairness import UsageSpan
from muster.store import schema

MAX_LOOKED_AT = 100_000
"""The number of the newest sessions of all groups that are read, which takes a second or two."""
MAX_LEARNT = 20_000
"""The number of sessions from which a selector learns."""
_CHUNK = 500  # bound parameters a statement

_Requests = Sequence[tuple[Resources, int]]
"""Distinct requests, each with the number of kernels that make it."""


def read_ended_usage(connection: Connection, group: str, since: float) -> list[UsageSpan]:
    """The sessions of a group, among the newest, that ran and have ended since the moment
    ``since``.

    A span begins when the session ran, not when it was placed: the time of its placement is not
    stored.
    """
    columns = schema.sessions.c
    rows = connection.execute(
        select(
            columns.job_id,
            columns.domain,
            columns.project,
            columns.user,
            columns.spec,
            columns.started_at,
            columns.finished_at,
        ).where(
            *_ended(connection, group),
            columns.started_at.is_not(None),
            columns.finished_at >= since,
        )
    ).all()
    of_job = {id_: _sum(requests) for id_, requests in _of_jobs(connection, rows)}
    return [
        UsageSpan(
            Owner(row.domain, row.project, row.user),
            of_job[row.job_id] if row.job_id else _sum(_of_session(row)),
            row.started_at,
            row.finished_at,
        )
        for row in rows
    ]


def read_ended_requests(connection: Connection, group: str) -> list[tuple[Resources, int]]:
    """The requests of the newest ended sessions of a group, the oldest first."""
    columns = schema.sessions.c
    newest = select(columns.job_id, columns.spec).where(*_ended(connection, group))
    rows = connection.execute(newest.order_by(columns.id.desc()).limit(MAX_LEARNT)).all()[::-1]
    of_job = dict(_of_jobs(connection, rows))
    return [
        requests
        for row in rows
        for requests in (of_job[row.job_id] if row.job_id else _of_session(row))
    ]


def _ended(connection: Connection, group: str) -> list[ColumnElement[bool]]:
    """The condition for sessions of the group that have ended, among the newest; services, which
    are nobody's work, are none of them."""
    columns = schema.sessions.c
    newest = (
        select(columns.id).order_by(columns.id.desc()).limit(1).offset(MAX_LOOKED_AT - 1)
    ).scalar_subquery()
    oldest = connection.execute(select(newest)).scalar_one() or ""
    terminal = sorted(SESSION_TABLE.terminal)
    return [
        columns.id >= oldest,
        columns.group == group,
        columns.status.in_(terminal),
        columns.domain != SERVICE_OWNER.domain,
    ]


def _of_jobs(connection: Connection, sessions: Sequence[Any]) -> Iterator[tuple[str, _Requests]]:
    """The requests of one session, by job, for the jobs of these sessions."""
    ids = sorted({row.job_id for row in sessions if row.job_id})
    jobs = schema.jobs
    columns = select(jobs.c.id, jobs.c.tasks_total, jobs.c.spec)
    for first in range(0, len(ids), _CHUNK):
        for row in connection.execute(columns.where(jobs.c.id.in_(ids[first : first + _CHUNK]))):
            spec = json.loads(row.spec)
            kernels = row.tasks_total if spec.get("coscheduled") else 1
            yield row.id, [(request_of(spec), kernels)]


def _of_session(row: Any) -> _Requests:
    kernels = json.loads(row.spec)["kernels"]
    return [(request_of(kernel), kernel.get("replicas", 1)) for kernel in kernels]


def request_of(process: dict[str, Any]) -> Resources:
    """The request of a process; the rest of its JSON, which may be long, is not validated."""
    spec = ResourcesSpec.model_validate(process.get("resources", {}), context=STORED)
    return spec.resources()


def _sum(requests: _Requests) -> dict[str, int]:
    """The sum of the requests of all kernels."""
    amounts: dict[str, int] = {}
    for request, kernels in requests:
        for name, amount in request.as_dict().items():
            amounts[name] = amounts.get(name, 0) + amount * kernels
    return amounts
