"""The mapping between an entity's records and its rows."""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

from sqlalchemy import Connection, Table, bindparam, select

from muster.store.batch import (
    Batch,
    Dump,
    RangeUpdate,
    Together,
    deleting,
    inserting,
    inserting_together,
    updating,
    updating_together,
)

R = TypeVar("R")
Row = tuple[Any, ...]
Source: TypeAlias = str | tuple[str, Dump]
"""The source of a column's value: an attribute, and a function that turns it into a value for the
driver."""


class RowMapping(Generic[R]):
    """The table of one kind of record, and the statements that write it.

    Args:
        table: its rows may have a ``status``.
        changing: the columns that may change after the insert; they are always written together.
        seldom: columns that hardly ever change; they are written by themselves, by ``rewrite``.
        sources: the sources of columns whose values are not the attributes of the same name.
        differ: columns in which rows differ that are inserted together, and are alike otherwise.
        alike: whether many rows change alike; they have a primary key of one column.
        number: the part of the primary key by which the rows of a gang follow each other.
        lagging: columns whose stored values may be older than the record's, because a change of
            them alone costs no commit.

    ``update`` is a compare-and-set: it finds a row by its primary key and its former status.
    """

    def __init__(
        self,
        table: Table,
        changing: Sequence[str],
        seldom: Sequence[str] = (),
        sources: Mapping[str, Source] = MappingProxyType({}),
        differ: Sequence[str] = (),
        alike: bool = False,
        number: str | None = None,
        lagging: Collection[str] = (),
    ) -> None:
        self.table = table
        self.lagging = frozenset(lagging)
        columns = [column.name for column in table.columns]
        changing = [name for name in columns if name in changing]
        keys = [column.name for column in table.primary_key]
        status = ["status"] if "status" in changing else []
        dumps = {name: source[1] for name, source in sources.items() if isinstance(source, tuple)}
        self.insert: Batch | Together = (
            inserting_together(table, columns, differ, dumps)
            if differ
            else inserting(table, columns, dumps)
        )
        found_by = [*keys, *status]
        self.update: Batch | Together | RangeUpdate
        if number:
            self.update = RangeUpdate(table, changing, found_by, number, dumps)
        elif alike:
            (key,) = keys
            self.update = updating_together(table, changing, found_by, key, dumps)
        else:
            self.update = updating(table, changing, found_by, dumps)
        self.rewrite = updating(table, seldom, keys, dumps)
        self.rewritten = _reading([*seldom, *keys], sources)
        """A function that makes the row of a record for ``rewrite``."""
        self.delete = deleting(table, keys)
        self.whole = _reading(columns, sources)
        """A function that makes the row of a record for ``insert``."""
        self._changed = _reading([*changing, *keys], sources)
        self._key_names = [f"key_{name}" for name in keys]
        is_row = (table.c[name] == bindparam(f"key_{name}") for name in keys)
        self._stored = select(table.c[(status or keys)[0]]).where(*is_row)
        self._key = _reading(keys, sources)

    def changed(self, record: R, *status: str) -> Row:
        """The row for ``update``; ``status`` is the status that the stored row still has."""
        return self._changed(record) + status

    def stored(self, connection: Connection, record: R) -> str | None:
        """The status that SQL has for the record, or its key where it has no status; None if there
        is no such row."""
        key = self._key(record)
        found: str | None = connection.execute(
            self._stored, dict(zip(self._key_names, key, strict=True))
        ).scalar()
        return found


def _reading(columns: Sequence[str], sources: Mapping[str, Source]) -> Callable[[Any], Row]:
    """A function that reads the attributes for these columns, as a row."""
    found = (sources.get(name, name) for name in columns)
    attributes = [each if isinstance(each, str) else each[0] for each in found]
    get = attrgetter(*attributes)
    return get if len(attributes) > 1 else lambda record: (get(record),)
