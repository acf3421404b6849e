"""A reason, and its sentence."""

import json
from dataclasses import dataclass
from functools import cache
from string import Formatter
from typing import Any

from muster.core.reasons.catalogue import CATALOGUE
from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.resources import AmountUnit
from muster.core.settings import difference_said
from muster.core.text import duration


@dataclass(frozen=True, slots=True)
class Reason:
    """A code and its numbers; equal reasons merge in history."""

    code: ReasonCode
    numbers: tuple[tuple[str, Any], ...] = ()

    @property
    def kind(self) -> ReasonKind:
        return CATALOGUE[self.code].kind

    def sentence(self) -> str:
        return CATALOGUE[self.code].template.format_map(_Shown(self.numbers))

    def remedy(self) -> str:
        return CATALOGUE[self.code].remedy.format_map(_Shown(self.numbers))

    def told(self) -> dict[str, Any]:
        """The numbers, by name, that the sentence and the remedy tell. The other numbers may be
        about work of which the reader must not know. Differences are told as text."""
        names = numbers_of(self.code)
        return {name: _scalar(value) for name, value in self.numbers if name in names}

    def to_json(self) -> str:
        """The numbers as JSON; the code has a column of its own."""
        return json.dumps(dict(self.numbers)) if self.numbers else "{}"

    @staticmethod
    def from_json(code: str, numbers: str) -> "Reason":
        return Reason(ReasonCode(code), tuple(json.loads(numbers).items()))


def reason(code: ReasonCode, **numbers: Any) -> Reason:
    """A reason with its numbers by name, in the order that the template reads best."""
    return Reason(code, tuple(numbers.items()))


@cache
def numbers_of(code: ReasonCode) -> frozenset[str]:
    """The names of the numbers that the texts of a reason tell, also in their optional parts."""
    definition = CATALOGUE[code]
    return frozenset([*_names_in(definition.template), *_names_in(definition.remedy)])


def _names_in(template: str) -> list[str]:
    found = []
    for _, name, form, _ in Formatter().parse(template):
        if name:
            found += [name, *(["unit"] if form == "=" else _names_in(form or ""))]
    return found


_UNITS = frozenset(AmountUnit)
PRICE = "price"
"""The ``unit`` of prices, in any currency."""


def _scalar(value: Any) -> Any:
    """The value of a number; differences of a setting as text."""
    if isinstance(value, list | tuple):
        return "; ".join(difference_said(*each) for each in value)
    return value


class _Shown(dict[str, "_Number"]):
    """Numbers for a template; one that is missing shows as a question mark, never as an error."""

    def __init__(self, numbers: tuple[tuple[str, Any], ...]) -> None:
        super().__init__((name, _Number(value, self)) for name, value in numbers)

    def __missing__(self, key: str) -> "_Number":
        return _Number(None, self)


class _Number:
    """A value in a sentence, None if it is missing, formatted as ``Definition`` describes.

    Args:
        others: all values of the sentence, by name; an amount's unit is among them.
    """

    def __init__(self, value: Any, others: "_Shown") -> None:
        self.value = value
        self._others = others

    def __format__(self, form: str) -> str:
        value = self.value
        if form.startswith(("?", "!")):
            return form[1:] if bool(value) is form.startswith("?") else ""
        if form == ">":
            value = _scalar(value)
        if form == "~" and isinstance(value, int | float):
            return duration(value) if value else "0s"
        unit = self._others["unit"].value if form == "=" else None
        if unit == PRICE and isinstance(value, int | float):
            return f"{value:,.2f}"
        if unit in _UNITS and isinstance(value, int):
            return AmountUnit(unit).written(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # nobody writes 1.0 s
        shown = "?" if value is None else str(value)
        # Older versions stored amounts as texts, and counts without a unit.
        if form in ("", "=", "~", ">"):
            return shown
        return f"{shown} {form}" + ("" if value == 1 else "s")
