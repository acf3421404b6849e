"""How the fields of a record's class are stored.

A field says so by its type: texts, numbers and truth values are stored as they are, enums by their
values, an owner as three columns, a reason as its code and its numbers, everything else as JSON. A
field that may be None may be NULL. What the type does not say, its annotation does:

    id: Key[IncidentId]                       a part of the primary key
    agent: Fixed[str]                         written when the row is inserted, and never again
    spec: Seldom[PoolSpec]                    written by itself, when a unit of work asks for it
    outcome: Memory[Outcome | None] = None    not stored
    job: Annotated[Job, Reference("job_id")]  the id of another record, which the loader is given
    url: Annotated[str, StoredAs(sql=Text)]   stored in another way
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, dataclass
from enum import Enum, IntEnum, StrEnum
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel
from sqlalchemy import BigInteger, Boolean, Float, Integer, String, Text

from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.reasons.catalogue import reason_from_json
from muster.core.specs.amounts import STORED
from muster.store.batch import Dump

T = TypeVar("T")
Load: TypeAlias = Callable[..., Any]
"""A function that makes a field's value from those of its columns."""
SqlType: TypeAlias = Any
"""A type of SQLAlchemy's, or its class."""
OWNER_COLUMNS = ("domain", "project", "user")


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
class FieldColumn:
    """A column: its value is that at the end of ``path``, once ``dump`` has made one for the driver
    of it."""

    name: str
    path: str
    dump: Dump | None
    may_be_null: bool
    written: Written
    sql: SqlType = String


@dataclass(frozen=True, slots=True)
class StoredField:
    """A stored field with its columns; ``is_given`` says that the loader is given its value."""

    name: str
    columns: Sequence[FieldColumn]
    load: Load | None = None
    is_given: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    """How the values of a type are stored in one column."""

    sql: SqlType
    dump: Dump | None = None
    load: Load | None = None


def stored_field(field: "Field[Any]") -> StoredField | None:
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
        column = FieldColumn(reference.name, path, dump, may_be_none, written)
        return StoredField(field.name, [column], is_given=True)
    if type_ is Owner:
        paths = {part: f"{field.name}.{part}" for part in OWNER_COLUMNS}
        parts = [FieldColumn(name, path, None, False, written) for name, path in paths.items()]
        return StoredField(field.name, parts, load_owner)
    if type_ is Reason:
        name = field.name
        code = FieldColumn(name, name, _code, may_be_none, written)
        numbers = FieldColumn(f"{name}_numbers", name, _numbers, may_be_none, written, Text)
        return StoredField(name, [code, numbers], load_reason)
    return _in_one_column(field.name, type_, may_be_none, written, _mark(StoredAs, marks))


def _in_one_column(
    name: str, type_: Any, may_be_none: bool, written: Written, said: StoredAs | None
) -> StoredField:
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
    column = FieldColumn(said.name or name, name, dump, may_be_null, written, sql)
    return StoredField(name, [column], load)


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
        return _Form(Text, _dump_model, partial(type_.model_validate_json, context=STORED))
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
        return type_.model_validate(value, context=STORED)
    raise NotImplementedError(f"{type_} is not stored")


def _unless_none(function: Dump | None) -> Dump | None:
    if function is None:
        return None
    return lambda value: None if value is None else function(value)


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
    return None if code is None else reason_from_json(code, numbers or "{}")


@lru_cache(maxsize=4096)
def load_owner(domain: str, project: str, user: str) -> Owner:
    """The owner of these columns."""
    return Owner(domain, project, user)
