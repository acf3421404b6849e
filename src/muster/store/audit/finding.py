"""Audits and their findings. An audit is a rule that all stored rows must obey; a finding names a
row that does not.

An audit changes nothing in the database that it reads. A row that it cannot read is a finding too,
so that a damaged row does not end the audit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, func, select

from muster.store import schema
from muster.store.entity import Entities, Entity

SETTLED_S = 120.0
"""Seconds before the last commit in which a row may have changed whose consequences are not stored
yet: a wake may end between two handlers, and a controller between two wakes, but handlers look at
each record once a minute."""
ROWS_AT_A_TIME = 5_000

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)
"""Errors that are raised for a value that does not belong into its column."""
MAX_SENTENCE = 500


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A row that contradicts other rows: its name in history, or its table and key, and a sentence
    on the contradiction."""

    subject: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Stored:
    """All rows of a database at one moment. Consequences of a row that are stored later than the
    row are looked for only if it changed before ``settled``, in seconds since the epoch."""

    connection: Connection
    entities: Entities
    settled: float


Find: TypeAlias = Callable[[Stored], Iterator[AuditFinding]]


@dataclass(frozen=True, slots=True)
class Audit:
    """One rule that all rows must obey; ``title`` says it in a few words."""

    title: str
    find: Find


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of an audit: how many findings there are, and the first of them. ``trouble`` is
    why the audit could not be finished; None if it was."""

    title: str
    found: int
    first: Sequence[AuditFinding]
    trouble: str | None = None


def stored_in(connection: Connection, entities: Entities) -> Stored:
    """The database as the connection's transaction sees it. From now on the connection reads rows
    in batches, because findings may be many."""
    last_commit_at = connection.execute(select(func.max(schema.outbox.c.at))).scalar() or 0.0
    streaming = connection.execution_options(yield_per=ROWS_AT_A_TIME)
    return Stored(streaming, entities, last_commit_at - SETTLED_S)


def carry_out(audit: Audit, stored: Stored, most: int) -> Audited:
    """Run an audit, and keep ``most`` of its findings at most."""
    found, first = 0, []
    try:
        for finding in audit.find(stored):
            found += 1
            if found <= most:
                first.append(finding)
    except UNREADABLE as error:
        return Audited(audit.title, found, first, f"{type(error).__name__}: {error}"[:MAX_SENTENCE])
    return Audited(audit.title, found, first)


def name_column(entity: Entity[Any]) -> ColumnElement[str]:
    """The name of a record in history, in SQL."""
    return entity.table.c.id if entity.id_column is None else entity.id_column
