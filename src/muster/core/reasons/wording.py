"""Parts of the sentences of reasons. Numbers may be missing, or be texts that older versions
stored: these are shown as they are."""

from typing import Any

from muster.core.resources import AmountUnit
from muster.core.settings import difference_said
from muster.core.text import duration

PRICE = "price"
"""The ``unit`` of prices, in any currency."""
_UNITS = frozenset(AmountUnit)


def shown(value: Any) -> str:
    """A number as people write it: 1.0 is 1, and ? is missing."""
    if value is None:
        return "?"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def counted(number: Any, noun: str) -> str:
    """1 agent, 2 agents."""
    return f"{shown(number)} {noun}{'' if number == 1 else 's'}"


def amount(value: Any, unit: Any) -> str:
    """An amount as a person writes it: 16GiB, 0.5, 3.

    Args:
        unit: of ``AmountUnit``, or ``PRICE``; older versions stored counts without one.
    """
    if unit == PRICE and isinstance(value, int | float):
        return f"{value:,.2f}"
    if unit in _UNITS and isinstance(value, int):
        return AmountUnit(unit).written(value)
    return shown(value)


def lasting(seconds: Any) -> str:
    """A length of time: 1m35s."""
    if not isinstance(seconds, int | float):
        return shown(seconds)
    return duration(seconds) if seconds else "0s"


def differences(changes: Any) -> str:
    """The differences of a setting: ``limits.gpu: 8 → 10``."""
    if not isinstance(changes, list | tuple):
        return shown(changes)
    return "; ".join(difference_said(*each) for each in changes)


def after_colon(text: Any) -> str:
    """The rest of a sentence, where there is one."""
    return f": {text}" if text else ""


def before_colon(text: Any) -> str:
    """The beginning of a sentence, where there is one."""
    return f"{text}: " if text else ""


def in_brackets(text: Any) -> str:
    """A remark, where there is one."""
    return f" ({text})" if text else ""


def and_more(others: Any) -> str:
    """How many others there are besides the one that is named."""
    return f" and {others} more" if others else ""


def starts_when(leaving: bool, otherwise: str) -> str:
    """The time at which work starts that waits for room.

    Args:
        leaving: whether sessions leave already to make room for it.
    """
    return "when those that make room for it have left" if leaving else otherwise
