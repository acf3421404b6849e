"""What has run of late, for sequencers that remember (scheduling.fairness), and what was asked for,
for selectors that learn."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from muster.core.owner import Owner
from muster.core.resources import Resources
from muster.core.specs import ResourcesSpec
from muster.core.states import SESSION_TABLE
from muster.scheduling.fairness import Stay
from muster.store import schema

MAX_LOOKED_AT = 100_000
"""Sessions, the newest of all groups: reading them takes a second or two."""
MAX_LEARNT = 20_000
"""Sessions that a selector learns from."""
_CHUNK = 500  # bound parameters a statement

_Asked = Sequence[tuple[Resources, int]]
"""Distinct requests, and for how many kernels each."""


def read_stays(connection: Connection, group: str, since: float) -> list[Stay]:
    """The sessions of a group that have run and ended since then, of the newest ones.

    They count from when they ran, not from when they were placed: the difference is not stored.
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
    of_job = {id_: _sum(asked) for id_, asked in _of_jobs(connection, rows)}
    return [
        Stay(
            Owner(row.domain, row.project, row.user),
            of_job[row.job_id] if row.job_id else _sum(_of_session(row)),
            row.started_at,
            row.finished_at,
        )
        for row in rows
    ]


def read_asked(connection: Connection, group: str) -> list[tuple[Resources, int]]:
    """What the newest sessions of a group asked for of those that have ended, the oldest first."""
    columns = schema.sessions.c
    newest = select(columns.job_id, columns.spec).where(*_ended(connection, group))
    rows = connection.execute(newest.order_by(columns.id.desc()).limit(MAX_LEARNT)).all()[::-1]
    of_job = dict(_of_jobs(connection, rows))
    return [
        asked for row in rows for asked in (of_job[row.job_id] if row.job_id else _of_session(row))
    ]


def _ended(connection: Connection, group: str) -> list[ColumnElement[bool]]:
    """Which sessions of the group have ended, of the newest ones."""
    columns = schema.sessions.c
    newest = (
        select(columns.id).order_by(columns.id.desc()).limit(1).offset(MAX_LOOKED_AT - 1)
    ).scalar_subquery()
    oldest = connection.execute(select(newest)).scalar_one() or ""
    terminal = sorted(SESSION_TABLE.terminal)
    return [columns.id >= oldest, columns.group == group, columns.status.in_(terminal)]


def _of_jobs(connection: Connection, sessions: Sequence[Any]) -> Iterator[tuple[str, _Asked]]:
    """What one session of each job asks for that has some of these."""
    ids = sorted({row.job_id for row in sessions if row.job_id})
    jobs = schema.jobs
    columns = select(jobs.c.id, jobs.c.tasks_total, jobs.c.spec)
    for first in range(0, len(ids), _CHUNK):
        for row in connection.execute(columns.where(jobs.c.id.in_(ids[first : first + _CHUNK]))):
            spec = json.loads(row.spec)
            kernels = row.tasks_total if spec.get("coscheduled") else 1
            yield row.id, [(_request(spec), kernels)]


def _of_session(row: Any) -> _Asked:
    kernels = json.loads(row.spec)["kernels"]
    return [(_request(kernel), kernel.get("replicas", 1)) for kernel in kernels]


def _request(process: dict[str, Any]) -> Resources:
    """What a process asks for; read without the rest, which may be long."""
    return ResourcesSpec.model_validate(process.get("resources", {})).resources()


def _sum(asked: _Asked) -> dict[str, int]:
    """What all kernels ask for together."""
    amounts: dict[str, int] = {}
    for request, kernels in asked:
        for name, amount in request.as_dict().items():
            amounts[name] = amounts.get(name, 0) + amount * kernels
    return amounts
