"""A reason: why something does not start, or why it ended."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.wording import differences

PRIVATE: Mapping[str, bool] = {"private": True}
"""The metadata of a field that ``Reason.public_numbers`` leaves out."""


class _Unknown(str):
    """A question mark that counts as nothing."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


UNKNOWN: Any = _Unknown("?")
"""The value of a number that a stored reason lacks: it reads as a question mark, and is false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reason with its numbers, each a field; equal reasons merge in history.

    Every code has one subclass. A field with a default is left out of what is stored and told while
    it has that default. ``PRIVATE`` fields are stored and not told: they may be about work of which
    the reader must not know.

    Args:
        forced: whether work that ends for this reason is killed at once.
    """

    code: ClassVar[ReasonCode]
    kind: ClassVar[ReasonKind]

    forced: bool = field(default=False, metadata=PRIVATE)

    def sentence(self) -> str:
        """The reason in words, for people."""
        raise NotImplementedError

    def remedy(self) -> str:
        """The words for what a person can do; empty where nothing can be done."""
        return ""

    def numbers(self) -> dict[str, Any]:
        """The numbers by name, as they are stored."""
        found = {}
        for name, default, _ in _fields_of(type(self)):
            value = getattr(self, name)
            if value is not default and value is not UNKNOWN:
                found[name] = value
        return found

    def public_numbers(self) -> dict[str, Any]:
        """The numbers, by name, that are shown to the outside. Differences are told as text."""
        private = {each.name for each in _fields_of(type(self)) if each.is_private}
        found = {name: value for name, value in self.numbers().items() if name not in private}
        if CHANGES in found:
            found[CHANGES] = differences(found[CHANGES])
        return found

    def to_json(self) -> str:
        """The numbers as JSON; the code has a column of its own."""
        return json.dumps(self.numbers())


R = TypeVar("R", bound=Reason)

CHANGES = "changes"
"""The field of the differences of a setting (``core.settings``)."""


class _Field(NamedTuple):
    """A field of a kind of reasons; ``default`` is ``MISSING`` where it has none."""

    name: str
    default: Any
    is_private: bool


_FIELDS: dict[type[Reason], tuple[_Field, ...]] = {}


def _fields_of(kind: type[Reason]) -> tuple[_Field, ...]:
    """The fields in the order in which they are stored: those of all reasons come last. They are
    looked up once."""
    if kind in _FIELDS:
        return _FIELDS[kind]
    common = {each.name for each in fields(Reason)}
    own_first = sorted(fields(kind), key=lambda each: each.name in common)
    _FIELDS[kind] = tuple(
        _Field(each.name, each.default, "private" in each.metadata) for each in own_first
    )
    return _FIELDS[kind]


def with_numbers(kind: type[R], numbers: Mapping[str, Any]) -> R:
    """A reason of this kind with numbers that were stored, perhaps by another version: numbers
    that the kind does not have are left out, and a missing one has its default, or is ``UNKNOWN``
    if it has none."""
    known = {}
    for name, default, _ in _fields_of(kind):
        value = numbers.get(name)
        if value is not None:
            known[name] = _hashable(value)
        elif default is MISSING:
            known[name] = UNKNOWN
    return kind(**known)


def _hashable(value: Any) -> Any:
    """A value of JSON; lists become tuples."""
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return str(value) if isinstance(value, dict) else value
