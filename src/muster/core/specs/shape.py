"""The bounds of parsed data before anything looks at its fields: few values, shallow, storable.

Validation costs time for each value and each problem, so their number is bounded first. Text and
numbers are checked here once for all fields, including the fields that take anything.
"""

import math
from collections.abc import Sequence
from typing import Any

from muster.core.errors import InvalidSpec, Problem
from muster.core.text import MAX_ARGUMENT, check_text

MAX_VALUES = 20_000
"""Values and items in all, so that a validation holds the event loop for some 10 ms at most."""
MAX_DEPTH = 16
MAX_KEYS = 1_000
"""Keys of one mapping."""
_LARGEST = 2**63
_WRITTEN = 80  # characters of a text that are shown


_SECRET_KEYS = frozenset({"notify", "url"})
"""Under which secrets stand: a channel's URL has its token in it."""


def is_secret(place: Sequence[object]) -> bool:
    """Whether nothing of what stands at this place may be shown, even where it is wrong."""
    return bool(place) and place[0] in _SECRET_KEYS


def named(place: Sequence[object]) -> str:
    """A place in a spec as it may be shown: without keys that are URLs, where secrets stand."""
    secret = is_secret(place)
    parts = ("…" if secret and "://" in str(part) else str(part) for part in place)
    return ".".join(parts) or "spec"


def check_shape(data: Any) -> None:
    """Refuse data parsed from JSON or YAML that exceeds the bounds.

    Raises:
        InvalidSpec: too many values, too deep, a text or number that cannot be stored; with the
            first place where that is so.
    """
    left = MAX_VALUES
    waiting: list[tuple[tuple[object, ...], Any]] = [((), data)]
    while waiting:
        place, value = waiting.pop()
        try:
            _check_scalar(value)
            if not isinstance(value, dict | list | tuple):
                continue
            left -= len(value)
            if left < 0:
                raise ValueError(f"expected at most {MAX_VALUES} values in all")
            if value and len(place) == MAX_DEPTH:
                raise ValueError(f"expected at most {MAX_DEPTH} levels")
            if isinstance(value, dict):
                if len(value) > MAX_KEYS:
                    raise ValueError(f"expected at most {MAX_KEYS} keys")
                for key in value:
                    _check_scalar(key)
                waiting.extend(((*place, key), each) for key, each in value.items())
            else:
                waiting.extend(((*place, index), each) for index, each in enumerate(value))
        except ValueError as wrong:
            field = named(place)
            written = repr(value)[:_WRITTEN] if isinstance(value, str) else ""
            if is_secret(place):
                written = ""
            raise InvalidSpec([Problem(field, written, str(wrong))]) from None


def _check_scalar(value: Any) -> None:
    match value:
        case str():
            check_text(value, MAX_ARGUMENT)
        case float() if not math.isfinite(value):
            raise ValueError("expected a finite number")
        case int() if not -_LARGEST <= value < _LARGEST:
            raise ValueError("expected a number of at most 64 bits; write text in quotes")
