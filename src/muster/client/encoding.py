"""A caller's values as the bytes of a request: text in UTF-8, numbers that JSON has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from enum import Enum
from numbers import Integral, Real
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from muster.core.errors import InvalidSpec, Problem
from muster.core.views.base import RecordView

Value = str | int | float | bool | Sequence[str] | None


class Identified(Protocol):
    """A record, such as a job that a client has answered."""

    @property
    def id(self) -> str: ...


Ref = str | Identified
"""A name, an id, the beginning of an id, or a record."""

_SHOWN = 20
"""Characters shown on each side of one that cannot be encoded."""


def ref_of(ref: Ref) -> str:
    """The text of a reference; of a record its id.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(ref, str):
        return ref
    id_: object = getattr(ref, "id", None)
    if not isinstance(id_, str):
        raise TypeError(f"expected a name, an id, or a record that has one, not {ref!r:.80}")
    return id_


def quoted(ref: Ref) -> str:
    """One segment of a path. An empty text is refused, because it would make another path.

    Raises:
        InvalidSpec: it is not text in UTF-8.
        TypeError: as ``ref_of``.
    """
    return quoted_path(ref, between="")


def quoted_path(ref: Ref, between: str = "/") -> str:
    """A reference as a path; its parts, which ``between`` separates, are the segments.

    Raises:
        InvalidSpec: it is not text in UTF-8.
        TypeError: as ``ref_of``.
    """
    with _refused():
        return quote(ref_of(ref) or "-", safe=between)


def query_of(params: Mapping[str, Value]) -> str:
    """The query string of the parameters that are not None. One of several values stands there once
    for each.

    Raises:
        InvalidSpec: a value is not text in UTF-8, or as ``plain_of``.
    """
    said = {name: said_of(value, name) for name, value in params.items() if value is not None}
    with _refused():
        return urlencode(said, doseq=True)


def said_of(value: Any, name: str) -> Any:
    """The value of a parameter of a query: true and false as JSON has them.

    Raises:
        InvalidSpec: as ``plain_of``.
    """
    return str(value).lower() if isinstance(value, bool) else plain_of(value, name)


def plain_of(value: Any, field: str = "") -> Any:
    """A caller's value as JSON has it: a path and a member of an enumeration are text or what they
    stand for, a time span is its seconds, a moment is text, a record its id, a number of another
    library a number.

    Args:
        field: the dotted path of the value, for refusals.

    Raises:
        InvalidSpec: a value that no request can hold, such as a function.
    """
    match value:
        case None | bool() | int() | float() if not isinstance(value, Enum):
            return value
        case Enum():
            return plain_of(value.value, field)
        case str():
            return str(value)
        case RecordView():
            return _named(value, field)
        case Integral():
            return int(value)
        case Real():
            return float(value)
        case range() if field == "only" and value:
            return _indexes(value)
        case Mapping():
            return {
                plain_of(key, field): plain_of(each, f"{field}.{key}".lstrip("."))
                for key, each in value.items()
            }
        case list() | tuple() | range():
            return [
                plain_of(each, f"{field}.{number}".lstrip(".")) for number, each in enumerate(value)
            ]
        case os.PathLike():
            return os.fsdecode(value)
        case timedelta():
            return value.total_seconds()
        case date():
            return value.isoformat()
    if (as_json := getattr(value, "model_dump", None)) is not None:  # a part of a spec
        return plain_of(as_json(mode="json", exclude_defaults=True), field)
    if callable(value):
        expected = (
            "Python functions are not sent: write a program into a file, and give the command that "
            "runs it, such as ['python', 'train.py']"
        )
        raise InvalidSpec([Problem(field or "command", f"{value!r:.80}", expected)])
    raise InvalidSpec([Problem(field or "spec", f"{value!r:.80}", "expected text or a number")])


def _named(record: RecordView, field: str) -> str:
    """The text by which a key of a spec names a record."""
    name: object = getattr(record, "name", None)
    by_name = field.startswith(_BY_NAME) and isinstance(name, str)
    return str(name) if by_name else record.id


_BY_NAME = ("uses", "placement.agents")
"""Fields that name deployments and agents, and take no ids."""


def _indexes(indexes: range) -> str:
    """Indexes of tasks as a spec has them: 0-860:4."""
    rising = indexes if indexes.step > 0 else indexes[::-1]
    return f"{rising[0]}-{rising[-1]}:{rising.step}"


def json_of(value: Any) -> bytes:
    """
    Raises:
        InvalidSpec: a text is not UTF-8, a number is not finite, or as ``plain_of``.
    """
    value = plain_of(value)
    import json  # late: requests without content need it not

    with _refused():
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


@contextmanager
def _refused() -> Iterator[None]:
    """Refuse lone surrogates, which Python makes of bytes of a command line or a directory's name
    that are no text."""
    try:
        yield
    except UnicodeEncodeError as error:
        near = error.object[max(error.start - _SHOWN, 0) : error.end + _SHOWN]
        raise InvalidSpec([Problem("text", repr(near), "expected UTF-8")]) from None
    except ValueError:
        raise InvalidSpec([Problem("number", "", "expected a finite one")]) from None
