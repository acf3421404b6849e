"""A caller's values as the bytes of a request: text in UTF-8, numbers that JSON has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from muster.core.errors import InvalidSpec, Problem

Value = str | int | float | bool | None

_SHOWN = 20
"""Characters shown on each side of one that cannot be encoded."""


def quoted(ref: str) -> str:
    """One segment of a path. An empty text is refused, because it would make another path.

    Raises:
        InvalidSpec: it is not text in UTF-8.
    """
    return quoted_path(ref, between="")


def quoted_path(ref: str, between: str = "/") -> str:
    """A reference as a path; its parts, which ``between`` separates, are the segments.

    Raises:
        InvalidSpec: it is not text in UTF-8.
    """
    with _refused():
        return quote(ref or "-", safe=between)


def query_of(params: Mapping[str, Value]) -> str:
    """The query string of the parameters that are not None.

    Raises:
        InvalidSpec: a value is not text in UTF-8.
    """
    said = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in params.items()
        if value is not None
    }
    with _refused():
        return urlencode(said)


def json_of(value: Any) -> bytes:
    """
    Raises:
        InvalidSpec: a text is not UTF-8, or a number is not finite.
        TypeError: it has a value that JSON lacks.
    """
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
