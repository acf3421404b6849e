"""A record's table, its statements and its loader, made from the record's class.

Each field of the class is a column of the same name, but for those that say otherwise:

    id: Key[IncidentId]                      a part of the primary key
    agent: Fixed[str]                        written when the row is inserted, and never again
    spec: Seldom[PoolSpec]                   written by itself, when a unit of work asks for it
    outcome: Memory[Outcome | None] = None   not stored
    job: Annotated[Job, Reference("job_id")] the id of another record, which the loader is given
    url: Annotated[str, StoredAs(sql=Text)]    stored in another way than its type suggests

The type of a field decides how it is stored: texts, numbers and truth values as they are, enums by
their values, an owner as three columns, a reason as its code and its numbers, everything else as
JSON. A field that may be None may be NULL.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from enum import Enum, IntEnum, StrEnum
from functools import cached_property, lru_cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import msgspec
from pydantic import BaseModel
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    select,
)

from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.states import StateTable
from muster.store.batch import Dump
from muster.store.lookup import Lookup
from muster.store.mapping import RowMapping, Source
from muster.store.sql import one_of

R = TypeVar("R")
T = TypeVar("T")
Load: TypeAlias = Callable[..., Any]
"""A function that makes a field's value from those of its columns."""
SqlType: TypeAlias = Any
"""A type of SQLAlchemy's, or its class."""

metadata = MetaData()


class Written(Enum):
    """When the column of a field is written."""

    AS_KEY = "as key"
    ONCE = "once"
    SELDOM = "seldom"
    WITH_CHANGES = "with changes"
    NEVER = "never"


Key: TypeAlias = Annotated[T, Written.AS_KEY]
Fixed: TypeAlias = Annotated[T, Written.ONCE]
Seldom: TypeAlias = Annotated[T, Written.SELDOM]
Memory: TypeAlias = Annotated[T, Written.NEVER]


@dataclass(frozen=True, slots=True)
class StoredAs:
    """How a field is stored, where its type does not say it.

    Args:
        sql: the column's type.
        dump: turns a value into one for the driver; None leaves it as it is.
        load: turns the driver's value into the field's.
        may_be_null: whether the column may; whether the field may be None unless given. A value
            that is None is NULL then, without ``dump`` and ``load``.
        name: the column's; the field's unless given.
    """

    sql: SqlType | None = None
    dump: Dump | None = None
    load: Load | None = None
    may_be_null: bool | None = None
    name: str | None = None


LongInteger: TypeAlias = Annotated[int, StoredAs(sql=BigInteger)]
LongText: TypeAlias = Annotated[str, StoredAs(sql=Text)]
Flag: TypeAlias = Annotated[bool, StoredAs(sql=Integer, dump=int, load=bool)]
"""A truth value that is stored as a number."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A field that refers to another record, by whose id it is stored in the column ``name``; the
    loader is given the record."""

    name: str


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
    return {part: Computed(String, f"{path}.{part}") for part in _OWNER}


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
        stored = [each for each in map(_stored, fields(cast(Any, record))) if each]
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
    owner = (table.c[part] for part in _OWNER)
    Index(f"{table.name}_by_owner", *owner, table.c.id)


# The columns of a field

_OWNER = ("domain", "project", "user")


@dataclass(frozen=True, slots=True)
class _ColumnOf:
    """A column: its value is that at the end of ``path``, once ``dump`` has made one for the driver
    of it."""

    name: str
    path: str
    dump: Dump | None
    may_be_null: bool
    written: Written
    sql: SqlType = String


@dataclass(frozen=True, slots=True)
class _Field:
    """A stored field with its columns; ``is_given`` says that the loader is given its value."""

    name: str
    columns: Sequence[_ColumnOf]
    load: Load | None = None
    is_given: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    """How the values of a type are stored in one column."""

    sql: SqlType
    dump: Dump | None = None
    load: Load | None = None


def _stored(field: "Field[Any]") -> _Field | None:
    """How a field is stored; None if it is not."""
    if isinstance(field.type, str):
        raise TypeError(f"{field.name}: quote only the type inside of Memory[]")
    type_, marks, may_be_none = _unwrapped(field.type)
    reference = _mark(Reference, marks)
    written = _mark(Written, marks) or (Written.ONCE if reference else Written.WITH_CHANGES)
    if written is Written.NEVER:
        return None
    if reference is not None:
        path, dump = (field.name, id_or_none) if may_be_none else (f"{field.name}.id", None)
        column = _ColumnOf(reference.name, path, dump, may_be_none, written)
        return _Field(field.name, [column], is_given=True)
    if type_ is Owner:
        paths = {part: f"{field.name}.{part}" for part in _OWNER}
        parts = [_ColumnOf(name, path, None, False, written) for name, path in paths.items()]
        return _Field(field.name, parts, load_owner)
    if type_ is Reason:
        name = field.name
        code = _ColumnOf(name, name, _code, may_be_none, written)
        numbers = _ColumnOf(f"{name}_numbers", name, _numbers, may_be_none, written, Text)
        return _Field(name, [code, numbers], load_reason)
    return _in_one_column(field.name, type_, may_be_none, written, _mark(StoredAs, marks))


def _in_one_column(
    name: str, type_: Any, may_be_none: bool, written: Written, said: StoredAs | None
) -> _Field:
    """How a field is stored that has one column.

    Args:
        said: what it says itself about that.
    """
    said = said or StoredAs()
    form = _Form(said.sql) if said.sql and said.dump else _form(type_)
    may_be_null = may_be_none if said.may_be_null is None else said.may_be_null
    dump, load = said.dump or form.dump, said.load or form.load
    if may_be_none and may_be_null:
        dump, load = _unless_none(dump), _unless_none(load)
    sql = said.sql or form.sql
    column = _ColumnOf(said.name or name, name, dump, may_be_null, written, sql)
    return _Field(name, [column], load)


def _mark(kind: type[T], marks: Iterable[Any]) -> T | None:
    """The first of the marks of a field that is of this kind."""
    return next((each for each in marks if isinstance(each, kind)), None)


def _unwrapped(type_: Any) -> tuple[Any, Sequence[Any], bool]:
    """A type without ``Annotated`` and None, all that the former says, and whether it had None."""
    marks: list[Any] = []
    may_be_none = False
    while True:
        if get_origin(type_) is Annotated:
            marks += type_.__metadata__
            type_ = type_.__origin__
            continue
        is_union = get_origin(type_) in (Union, UnionType)
        others = tuple(each for each in get_args(type_) if each is not NoneType)
        if not is_union or len(others) == len(get_args(type_)):
            return type_, marks, may_be_none
        may_be_none = True
        type_ = others[0] if len(others) == 1 else Union[others]  # noqa: UP007


def _form(type_: Any) -> _Form:
    """How the values of a type are stored."""
    while hasattr(type_, "__supertype__"):  # of NewType
        type_ = type_.__supertype__
    if not isinstance(type_, type):
        return _json(type_)
    if issubclass(type_, StrEnum):
        return _Form(String, load={str(each): each for each in type_}.__getitem__)
    if issubclass(type_, BaseModel):
        return _Form(Text, _dump_model, type_.model_validate_json)
    if issubclass(type_, IntEnum):
        return _Form(Integer, int, type_)
    if type_ is bool:
        return _Form(Boolean, load=bool)  # SQLite has numbers only
    plain = {str: String, int: Integer, float: Float}.get(type_)
    return _json(type_) if plain is None else _Form(plain)


def _json(type_: Any) -> _Form:
    """A form as JSON: enums by their values, dataclasses and models as objects."""
    encoder = msgspec.json.Encoder(enc_hook=_encoded)
    decoder = msgspec.json.Decoder(type_, dec_hook=_decoded)
    return _Form(Text, lambda value: encoder.encode(value).decode(), decoder.decode)


def _dump_model(model: BaseModel) -> str:
    return model.model_dump_json(exclude_defaults=True)


def _encoded(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    raise NotImplementedError(f"{type(value)} is not stored")


def _decoded(type_: type, value: Any) -> Any:
    if issubclass(type_, BaseModel):
        return type_.model_validate(value)
    raise NotImplementedError(f"{type_} is not stored")


def _unless_none(function: Dump | None) -> Dump | None:
    if function is None:
        return None
    return lambda value: None if value is None else function(value)


def _computed(name: str, how: Computed) -> _ColumnOf:
    return _ColumnOf(name, how.source, how.dump, how.may_be_null, how.written, how.sql)


def _column(column: _ColumnOf) -> Column[Any]:
    is_key = column.written is Written.AS_KEY
    return Column(
        column.name,
        column.sql,
        primary_key=is_key,
        autoincrement=False,
        nullable=column.may_be_null,
    )


def _written(columns: Iterable[_ColumnOf], when: Written) -> Sequence[str]:
    return [each.name for each in columns if each.written is when]


def _source(column: _ColumnOf) -> Source:
    return column.path if column.dump is None else (column.path, column.dump)


def id_or_none(record: Any) -> str | None:
    """The id of a record, if there is one."""
    return None if record is None else record.id


def _code(reason: Reason | None) -> str | None:
    return None if reason is None else reason.code


# Reasons and owners are many, and mostly equal: each is made once.


@lru_cache(maxsize=4096)
def _numbers(reason: Reason | None) -> str | None:
    return None if reason is None else reason.to_json()


@lru_cache(maxsize=4096)
def load_reason(code: str | None, numbers: str | None) -> Reason | None:
    """The reason of these columns; None without a code."""
    return None if code is None else Reason.from_json(code, numbers or "{}")


@lru_cache(maxsize=4096)
def load_owner(domain: str, project: str, user: str) -> Owner:
    """The owner of these columns."""
    return Owner(domain, project, user)
