"""The records of a unit of work that the database does not take."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection

from muster.store.entity import Record
from muster.store.mapping import RowMapping
from muster.store.unit import NEW, Unit

Items = Sequence[tuple[Record, str]]
"""Records, each with its status in SQL."""


def unstorable_records(unit: Unit, connection: Connection) -> list[Record]:
    """Write the unit's records to find those that can never be stored, such as one with a number
    that no column holds. Everything else is written; the caller rolls the transaction back.

    The records are written in the order of ``Unit.write``, because a row may be storable only once
    others are written, and in halves of halves: one of N records costs the writing of them log N
    times.
    """
    found: list[Record] = []
    for kind, entity in unit.live.entities.items():
        touched = [*unit.touched[kind].items()]
        old = [item for item in touched if item[1] != NEW]
        new = [item for item in touched if item[1] == NEW]

        found += _refused(old, partial(_update, entity.rows, connection), connection)
        found += _refused(new, partial(_insert, entity.rows, connection), connection)
    return found


def _update(mapping: RowMapping[Any], connection: Connection, items: Items) -> None:
    mapping.update.execute(connection, [mapping.changed(*item) for item in items])


def _insert(mapping: RowMapping[Any], connection: Connection, items: Items) -> None:
    mapping.insert.execute(connection, [mapping.whole(record) for record, _ in items])


def _refused(items: Items, write: Callable[[Items], None], connection: Connection) -> list[Record]:
    """Write those of the items that can be written; the answer is the records of the others."""
    if not items:
        return []
    try:
        with connection.begin_nested():
            write(items)
    except Exception:  # of the database, or of the function that makes a value for it
        if connection.invalidated:
            raise
        if len(items) == 1:
            return [items[0][0]]
        middle = len(items) // 2
        first = _refused(items[:middle], write, connection)
        return first + _refused(items[middle:], write, connection)
    return []
