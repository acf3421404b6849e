"""Audits of references: a row that names another one finds it."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Column, and_, select

from muster.store.audit.finding import Audit, Finding, Stored
from muster.store.schema import (
    agents,
    allocations,
    groups,
    jobs,
    kernels,
    sessions,
    tasks,
    tokens,
    users,
)

Columns: TypeAlias = Sequence[Column[Any]]

REFERENCES: Sequence[tuple[Columns, Columns]] = (
    *(
        ([column], [named])
        for named, columns in (
            (jobs.c.id, (tasks.c.job_id, sessions.c.job_id, kernels.c.job_id, jobs.c.retry_of)),
            (sessions.c.id, (kernels.c.session_id, tasks.c.session_id)),
            (kernels.c.id, (tasks.c.kernel_id, allocations.c.kernel_id)),
            (agents.c.id, (kernels.c.agent_id, allocations.c.agent_id)),
            (groups.c.name, (agents.c.group, jobs.c.group, sessions.c.group)),
        )
        for column in columns
    ),
    ([kernels.c.job_id, kernels.c.task_index], [tasks.c.job_id, tasks.c.idx]),
    ([tokens.c.domain, tokens.c.user], [users.c.domain, users.c.name]),
)
"""Columns that name a row of another table, unless one of them is null; and the columns by which
that row is found."""


def _dangling(stored: Stored) -> Iterator[Finding]:
    for columns, named in REFERENCES:
        table, other = columns[0].table, named[0].table.alias()
        found = [other.c[column.name] for column in named]
        joined = and_(*(mine == its for mine, its in zip(columns, found, strict=True)))
        rows = (
            select(*table.primary_key, *columns)
            .select_from(table.outerjoin(other, joined))
            .where(found[0].is_(None), *(column.is_not(None) for column in columns))
        )
        keys = len(table.primary_key)
        for row in stored.connection.execute(rows):
            subject = "/".join(map(str, row[:keys]))
            named_as = "/".join(map(str, row[keys:]))
            told = "+".join(column.name for column in columns)
            yield Finding(
                f"{table.name} {subject}",
                f"has the {told} {named_as}, which is not in {named[0].table.name}",
            )


AUDITS = (Audit("each row that is named is there", _dangling),)
