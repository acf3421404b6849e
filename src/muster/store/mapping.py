"""The mapping between an entity's records and its rows."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Table, bindparam, select

from muster.store.batch import deleting, inserting, updating

R = TypeVar("R")
Row = list[Any]


class RowMapping(Generic[R]):
    """The mapping between the records of an entity and the rows of its table.

    Args:
        table: of the rows; it may or may not have a column ``status``.
        changing: columns that may change after the insert; always written together.
        sources: a function from record to column value, where the value is not the record's
            attribute of the column's name.

    ``update`` is a compare-and-set: it finds a row by its primary key and its former status.
    """

    def __init__(
        self, table: Table, changing: Sequence[str], **sources: Callable[[R], Any]
    ) -> None:
        self.table = table
        keys = [column.name for column in table.primary_key]
        status = ["status"] if "status" in changing else []
        self.insert = inserting(table)
        self.update = updating(table, changing, [*keys, *status])
        self.delete = deleting(table, keys)
        self._whole = [sources.get(c.name) or attrgetter(c.name) for c in table.columns]
        self._changing = [sources.get(name) or attrgetter(name) for name in changing]
        self._key_names = [f"key_{name}" for name in keys]
        is_row = (table.c[name] == bindparam(f"key_{name}") for name in keys)
        self._stored = select(table.c[(status or keys)[0]]).where(*is_row)
        self._key = [sources.get(name) or attrgetter(name) for name in keys]

    def whole(self, record: R) -> Row:
        return [get(record) for get in self._whole]

    def changed(self, record: R, *status: str) -> Row:
        """The row for ``update``; ``status`` is the one that the stored row still has."""
        return [*[get(record) for get in self._changing], *self.key(record), *status]

    def key(self, record: R) -> Row:
        return [get(record) for get in self._key]

    def stored(self, connection: Connection, record: R) -> str | None:
        """The status that SQL has for the record, or its key where it has no status; None if there
        is no such row."""
        found: str | None = connection.execute(
            self._stored, dict(zip(self._key_names, self.key(record), strict=True))
        ).scalar()
        return found
