"""What has run of late, for sequencers that remember (scheduling.fairness)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, select

from muster.core.owner import Owner
from muster.core.specs import ResourcesSpec
from muster.core.states import SESSION_TABLE
from muster.scheduling.fairness import Stay
from muster.store import schema

MAX_LOOKED_AT = 100_000
"""Sessions, the newest of all groups: reading them takes a second or two."""
_CHUNK = 500  # bound parameters a statement

_Amounts = Mapping[str, int]


def read_stays(connection: Connection, group: str, since: float) -> list[Stay]:
    """The sessions of a group that have run and ended since then, of the newest ones.

    They count from when they ran, not from when they were placed: the difference is not stored.
    """
    sessions = schema.sessions
    columns = sessions.c
    newest = (
        select(columns.id).order_by(columns.id.desc()).limit(1).offset(MAX_LOOKED_AT - 1)
    ).scalar_subquery()
    oldest = connection.execute(select(newest)).scalar_one() or ""
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
            columns.id >= oldest,
            columns.group == group,
            columns.status.in_(sorted(SESSION_TABLE.terminal)),
            columns.started_at.is_not(None),
            columns.finished_at >= since,
        )
    ).all()
    of_job = dict(_of_jobs(connection, sorted({row.job_id for row in rows if row.job_id})))
    return [
        Stay(
            Owner(row.domain, row.project, row.user),
            of_job[row.job_id] if row.job_id else _of_session(row),
            row.started_at,
            row.finished_at,
        )
        for row in rows
    ]


def _of_jobs(connection: Connection, ids: list[str]) -> Iterator[tuple[str, _Amounts]]:
    """What one session of each job asks for."""
    jobs = schema.jobs
    columns = select(jobs.c.id, jobs.c.tasks_total, jobs.c.spec)
    for first in range(0, len(ids), _CHUNK):
        for row in connection.execute(columns.where(jobs.c.id.in_(ids[first : first + _CHUNK]))):
            spec = json.loads(row.spec)
            kernels = row.tasks_total if spec.get("coscheduled") else 1
            yield row.id, _sum([(spec, kernels)])


def _of_session(row: Any) -> _Amounts:
    kernels = json.loads(row.spec)["kernels"]
    return _sum([(kernel, kernel.get("replicas", 1)) for kernel in kernels])


def _sum(processes: list[tuple[dict[str, Any], int]]) -> _Amounts:
    """What so many kernels of each process ask for; read without the rest, which may be long."""
    amounts: dict[str, int] = {}
    for process, kernels in processes:
        asked = ResourcesSpec.model_validate(process.get("resources", {})).resources()
        for name, amount in asked.as_dict().items():
            amounts[name] = amounts.get(name, 0) + amount * kernels
    return amounts
