"""The rows of a cluster as they are read, and their checksums."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, MetaData, Table, select

ROWS_AT_A_TIME = 2_000
"""Rows that are read or written at a time, and so are in memory together."""
_NOT_STATE = frozenset({"alembic_version", "fence"})
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of rows. ``migration`` is the number of the newest migration of their tables,
    ``version`` that of Muster, and ``made_at`` when they were read, in seconds since the epoch."""

    migration: str
    version: str
    made_at: float


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one table, to be read once. Each comes as a line of JSON, the form in which rows
    are compared and stored."""

    table: str
    columns: Sequence[str]
    lines: Iterator[bytes]


class Source(Protocol):
    """Something that has all rows of a cluster as of one moment."""

    @property
    def origin(self) -> Origin: ...

    def tables(self) -> Iterator[Rows]:
        """All tables, one after the other: each has to be read to its end before the next."""


class Tally:
    """A count of rows and their checksum, which does not depend on their order: databases sort
    differently."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def counted(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """These lines, each counted when it is read."""
        blake, number = hashlib.blake2b, int.from_bytes
        for line in lines:
            self.rows += 1
            self._sum += number(blake(line, digest_size=_DIGEST_BYTES).digest(), "big")
            yield line

    @property
    def checksum(self) -> str:
        return f"{self._sum % (1 << 8 * _DIGEST_BYTES):032x}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (self.rows, self.checksum) == (other.rows, other.checksum)

    __hash__ = None  # type: ignore[assignment]


class DatabaseSource:
    """The rows that the connection's transaction sees; ``origin`` is as told."""

    def __init__(self, connection: Connection, origin: Origin) -> None:
        self.origin = origin
        self._connection = connection

    def tables(self) -> Iterator[Rows]:
        for table in state_tables(self._connection):
            columns = table.columns.keys()
            yield Rows(table.name, columns, lines_of(self._connection, table, columns))


def state_tables(connection: Connection) -> Sequence[Table]:
    """The tables of a database as they are, whatever its migration."""
    metadata = MetaData()
    metadata.reflect(connection)
    return [table for name, table in sorted(metadata.tables.items()) if name not in _NOT_STATE]


def lines_of(connection: Connection, table: Table, columns: Sequence[str]) -> Iterator[bytes]:
    """The rows of a table, a line of JSON each; a number is infinite where JSON has no word for it
    but Python's."""
    every = select(*(table.c[name] for name in columns))
    encode = json.JSONEncoder(
        ensure_ascii=False, separators=(",", ":"), check_circular=False
    ).encode
    for row in connection.execute(every, execution_options={"yield_per": ROWS_AT_A_TIME}):
        yield encode(list(row)).encode() + b"\n"
