"""A record's table, its statements and its loader, made from the record's class, whose fields say
how they are stored (``store.fields``)."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar, cast

from sqlalchemy import Column, ColumnElement, Index, MetaData, String, Table, select

from muster.core.states import StateTable
from muster.store.batch import Dump
from muster.store.fields import (
    OWNER_COLUMNS,
    FieldColumn,
    Load,
    SqlType,
    Written,
    stored_field,
)
from muster.store.lookup import Lookup
from muster.store.mapping import RowMapping, Source
from muster.store.sql import one_of

R = TypeVar("R")

metadata = MetaData()


@dataclass(frozen=True, slots=True)
class Computed:
    """A column that follows from a record and is not read back: to look for rows by it.

    Args:
        sql: the column's type.
        source: the path of the attributes from which its value comes.
        dump: turns that value into one for the driver; None leaves it as it is.
    """

    sql: SqlType
    source: str
    dump: Dump | None = None
    may_be_null: bool = False
    written: Written = Written.ONCE


def owner_through(path: str) -> Mapping[str, Computed]:
    """The columns of an owner to whom the record itself does not refer, for queries.

    Args:
        path: of the owner, from the record.
    """
    return {part: Computed(String, f"{path}.{part}") for part in OWNER_COLUMNS}


class RecordTable(RowMapping[R]):
    """The table of a class of records, with the statements that write them (``RowMapping``) and
    the loader.

    Args:
        record: the class.
        name: the table's.
        states: of the records, if they have any.
        computed: further columns by their names.
        differ, alike, number, lagging: see ``RowMapping``.
        among: the tables to which it belongs; those of the product unless given.

    Raises:
        TypeError: a field is of a type that cannot be stored, or its annotation is a text.
    """

    def __init__(
        self,
        record: type[R],
        name: str,
        states: StateTable[Any] | None = None,
        computed: Mapping[str, Computed] = MappingProxyType({}),
        differ: Sequence[str] = (),
        alike: bool = False,
        number: str | None = None,
        lagging: Collection[str] = (),
        among: MetaData = metadata,
    ) -> None:
        self.record = record
        self.states = states
        stored = [each for each in map(stored_field, fields(cast(Any, record))) if each]
        columns = [column for field in stored for column in field.columns]
        columns += [_computed(*item) for item in computed.items()]
        table = Table(name, among, *map(_column, columns), sqlite_with_rowid=False)
        super().__init__(
            table,
            changing=_written(columns, Written.WITH_CHANGES),
            seldom=_written(columns, Written.SELDOM),
            sources={each.name: _source(each) for each in columns},
            differ=differ,
            alike=alike,
            number=number,
            lagging=lagging,
        )
        self.is_whole = not any(each.is_given for each in stored)
        """Whether a row is all that a record needs."""
        self._loaders = {each.name: each.load for each in stored if each.load is not None}
        self._dumpers = {each.name: each.dump for each in columns if each.dump is not None}
        self._fields = stored
        self._makers: dict[tuple[str, ...], Callable[..., R]] = {}

    def loader(self, name: str) -> Load:
        """The function that makes the value of a field from those of its columns."""
        return self._loaders[name]

    def dumper(self, column: str) -> Dump:
        """The function that makes a value for the driver from that of a record."""
        return self._dumpers[column]

    @cached_property
    def live(self) -> Lookup:
        """The rows of the records that have not ended, in the order of their ids."""
        assert self.states is not None, "the records of the table have no states"
        is_live = one_of(self.table.c.status, self.states.live)
        return Lookup(select(self.table).where(is_live).order_by(self.table.c.id))

    def load(self, row: Sequence[Any], **given: Any) -> R:
        """The record of a row.

        Args:
            row: begins with the columns of the table, in their order.
            given: the fields that are not stored or refer to other records, and those to which
                the caller has a value already.
        """
        return self.maker(*given)(row, **given)

    def maker(self, *given: str) -> Callable[..., R]:
        """The function behind ``load``, which takes a row and then the values of these fields. It
        is written as a text, as the methods of dataclasses are: a loop over the fields takes twice
        as long."""
        if given in self._makers:
            return self._makers[given]
        values = [f"{name}={name}" for name in given]
        place = 0
        for field in self._fields:
            places = range(place, place + len(field.columns))
            place += len(field.columns)
            if field.name in given:
                continue
            assert not field.is_given, f"the loader is not given {field.name}"
            value = ", ".join(f"row[{each}]" for each in places)
            loaded = value if field.load is None else f"load_{field.name}({value})"
            values.append(f"{field.name}={loaded}")
        known = {f"load_{name}": load for name, load in self._loaders.items()}
        text = f"lambda {', '.join(['row', *given])}: record({', '.join(values)})"
        self._makers[given] = eval(text, {**known, "record": self.record})
        return self._makers[given]


def index(
    name: str, *columns: Column[Any], where: ColumnElement[bool], unique: bool = False
) -> None:
    """Add an index of those rows of a table for which a condition holds."""
    Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def index_live(rows: RecordTable[Any]) -> None:
    """Add an index of the records that have not ended."""
    assert rows.states is not None, "the records of the table have no states"
    table, live = rows.table, sorted(rows.states.live)
    index(f"{table.name}_live", table.c.id, where=table.c.status.in_(live))


def index_by_owner(table: Table) -> None:
    """Add an index by which the rows of an owner are found, in the order of their ids."""
    owner = (table.c[part] for part in OWNER_COLUMNS)
    Index(f"{table.name}_by_owner", *owner, table.c.id)


def _computed(name: str, how: Computed) -> FieldColumn:
    return FieldColumn(name, how.source, how.dump, how.may_be_null, how.written, how.sql)


def _column(column: FieldColumn) -> Column[Any]:
    is_key = column.written is Written.AS_KEY
    return Column(
        column.name,
        column.sql,
        primary_key=is_key,
        autoincrement=False,
        nullable=column.may_be_null,
    )


def _written(columns: Iterable[FieldColumn], when: Written) -> Sequence[str]:
    return [each.name for each in columns if each.written is when]


def _source(column: FieldColumn) -> Source:
    return column.path if column.dump is None else (column.path, column.dump)
