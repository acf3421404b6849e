"""Audits of references: a row to which another row refers exists."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Column, Select, and_, except_, select

from muster.store.audit.finding import Audit, AuditFinding, Stored
from muster.store.lookup import Lookup
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


def _naming_nothing(columns: Columns, named: Columns) -> Select[Any]:
    """The rows that name a row which is not there: their keys, then these columns."""
    table = columns[0].table
    names = select(*columns).where(*(column.is_not(None) for column in columns))
    missing = except_(names, select(*named)).cte("missing")
    matches = (mine == theirs for mine, theirs in zip(columns, missing.c, strict=True))
    return select(*table.primary_key, *columns).select_from(table.join(missing, and_(*matches)))


_NAMING_NOTHING = [Lookup(_naming_nothing(*reference)) for reference in REFERENCES]


def _dangling(stored: Stored) -> Iterator[AuditFinding]:
    for (columns, named), naming in zip(REFERENCES, _NAMING_NOTHING, strict=True):
        table = columns[0].table
        keys = len(table.primary_key)
        told = "+".join(column.name for column in columns)
        for row in naming.each(stored.connection):
            key, name = ("/".join(map(str, part)) for part in (row[:keys], row[keys:]))
            where = named[0].table.name
            yield AuditFinding(
                f"{table.name} {key}", f"has the {told} {name}, which is not in {where}"
            )


AUDITS = (Audit("each row that is named is there", _dangling),)
