"""Moments as people write them: by their own clock, or from now on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from typing import Any

_KEY = "not_before"
_DAYS = {"today": 0, "tomorrow": 1}
_FIRST_EPOCH_S = 1e9
"""Smaller numbers are not taken for moments: YAML makes 1110 of an unquoted 18:30."""


def with_absolute_moments(keys: Mapping[str, Any], now: datetime | None = None) -> dict[str, Any]:
    """The keys of a spec with ``not_before`` as a moment with its time zone.

    ``+5m`` counts from ``now``; ``08:00`` is the next time that the clock shows it, ``tomorrow
    08:00`` and ``2027-01-31 08:00`` are by the clock of the caller. Text that cannot be read, and a
    number too small for a moment, are left to the spec to refuse, together with all other problems.
    """
    found = dict(keys)
    value = found.get(_KEY)
    if isinstance(value, int | float) and not isinstance(value, bool) and value < _FIRST_EPOCH_S:
        found[_KEY] = value = str(value)
    if isinstance(value, timedelta):
        found[_KEY] = ((now or datetime.now().astimezone()) + value).isoformat()
    if isinstance(value, str | date):
        moment = _read(value, now or datetime.now().astimezone())
        if moment is not None:
            found[_KEY] = moment.isoformat()
    return found


def _read(value: str | date, now: datetime) -> datetime | None:
    """The moment with its time zone; None if the value is no moment."""
    if isinstance(value, datetime):
        return _by_the_clock(value)
    if isinstance(value, date):
        return _by_the_clock(datetime.combine(value, time()))
    text = " ".join(value.split())
    if len(text) > 64:
        return None
    if text.startswith("+"):
        from muster.core.specs.amounts import parse_duration

        with suppress(ValueError):
            return now + timedelta(seconds=parse_duration(text[1:]))
        return None
    day, blank, rest = text.partition(" ")
    if blank and day.lower() in _DAYS:
        at = _time(rest)
        on = now.date() + timedelta(days=_DAYS[day.lower()])
        return None if at is None else _by_the_clock(datetime.combine(on, at))
    if (at := _time(text)) is not None:
        today = datetime.combine(now.date(), at)
        moments = map(_by_the_clock, (today, today.replace(fold=1), today + timedelta(days=1)))
        return next(moment for moment in moments if moment > now)
    with suppress(ValueError):
        return _by_the_clock(datetime.fromisoformat(text))
    return None


def _by_the_clock(moment: datetime) -> datetime:
    """The moment at which the clock of the caller shows this time. Of an hour that the clock shows
    twice it is the first, unless ``fold`` is set; a time that the clock leaves out, when summer
    time begins, has come once the clock has passed it, and not before."""
    found = moment.astimezone()
    if moment.tzinfo is not None or found.replace(tzinfo=None) == moment.replace(fold=0):
        return found
    # The offsets before and after the clock is put on, one of which gives a moment too early.
    return max(moment.replace(fold=fold).astimezone() for fold in (0, 1))


def _time(text: str) -> time | None:
    """A time of day, as 8:00 or 18:30:15."""
    hours, colon, rest = text.partition(":")
    with suppress(ValueError):
        if colon and hours.isdecimal() and len(hours) <= 2:
            found = time.fromisoformat(f"{hours:0>2}:{rest}")
            return found if found.tzinfo is None else None
    return None
