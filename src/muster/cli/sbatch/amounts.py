"""Times, sizes, numbers, arrays and moments as Slurm's people write them."""

import re
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from muster.cli.sbatch.header import SbatchError
from muster.core.task_ranges import MAX_TASKS, TaskRanges

_MIB = 1024 * 1024
_SIZE = re.compile(r"([0-9]+)([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"k": 1024, "": _MIB, "m": _MIB, "g": 1024 * _MIB, "t": 1024 * 1024 * _MIB}
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")
_ARRAY = re.compile(r"([0-9,:-]+)(?:%([0-9]+))?")
_NAMED_TIMES = {"midnight": 0, "noon": 12, "fika": 15, "teatime": 16}
_SPANS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_FROM_NOW = re.compile(r"now(?:\+([0-9]+) ?([a-z]*))?")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:T(.+))?")


class Array(NamedTuple):
    """Indexes of an array's tasks, and how many of them may run at a time."""

    indexes: TaskRanges
    at_once: int | None

    @property
    def step(self) -> int:
        """The distance of the indexes, if it is one and the same; else 1."""
        ranges = self.indexes.ranges
        if len(ranges) < 2 or any(first != last for first, last in ranges):
            return 1
        steps = {after[0] - before[0] for before, after in pairwise(ranges)}
        return steps.pop() if len(steps) == 1 else 1


def minutes(text: str) -> int | None:
    """Whole minutes of a time limit, upwards; None for no limit. A number alone is minutes, two are
    minutes and seconds, three hours, minutes and seconds; after ``days-`` they are hours, minutes
    and seconds.

    Raises:
        SbatchError: it is of no such form.
    """
    if text.lower() in ("infinite", "unlimited"):
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise SbatchError(f"invalid --time {text!r}: expected such as 90, 1:30:00 or 2-12")
    days = found[1]
    numbers = [int(each) for each in found.groups()[1:] if each is not None]
    if days is not None:
        hours, minute, second = [*numbers, 0, 0][:3]
        seconds = int(days) * 86_400 + hours * 3600 + minute * 60 + second
    elif len(numbers) == 3:
        seconds = numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    else:
        minute, second = [*numbers, 0][:2]
        seconds = minute * 60 + second
    return -(-seconds // 60) or None


def size(option: str, text: str) -> int:
    """Bytes of an amount of memory, whose unit is MiB when none is written.

    Raises:
        SbatchError: it is no whole number of a known unit.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise SbatchError(f"invalid --{option} {text!r}: expected such as 512, 512M or 16G")
    return int(found[1]) * _UNITS[found[2].lower()]


def number(option: str, text: str, least: int = 1) -> int:
    """
    Raises:
        SbatchError: it is no whole number of at least ``least``.
    """
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise SbatchError(f"invalid numeric value {text!r} for --{option}")
    return int(text)


def array(text: str) -> Array:
    """The tasks of ``1-4``, ``0-90:10``, ``1,3,7-9`` or ``1-100%8``.

    Raises:
        SbatchError: it is of another form, or has an index that is too large.
    """
    found = _ARRAY.fullmatch(text)
    expected = f"invalid --array {text!r}: expected such as 1-4, 0-90:10, 1,3,7-9 or 1-100%8"
    if found is None:
        raise SbatchError(expected)
    try:
        indexes = TaskRanges.parse(found[1])
    except ValueError:
        raise SbatchError(expected) from None
    if indexes.last >= MAX_TASKS:
        raise SbatchError(f"invalid --array {text!r}: expected indexes below {MAX_TASKS:,}")
    at_once = int(found[2]) if found[2] else None
    return Array(indexes, at_once or None)


def gpus(option: str, text: str) -> tuple[int, str]:
    """How many GPUs, and of which model if it is named: ``2``, ``a100:2``.

    Raises:
        SbatchError: it is of no such form.
    """
    if "," in text:
        raise SbatchError(f"--{option}={text} cannot be done: expected GPUs of one model")
    model, _, count = text.rpartition(":")
    return number(option, count, least=0), model


def gres(text: str) -> tuple[int, str, list[str]]:
    """How many GPUs, of which model, and what else is asked for: ``gpu:2``, ``gpu:a100:2,nvme:1``.

    Raises:
        SbatchError: a number is none.
    """
    count, others = 0, []
    models: set[str] = set()
    for part in text.split(","):
        name, *rest = part.split("(")[0].split("/")[-1].split(":")
        if name == "gpu":
            has_count = bool(rest) and rest[-1].isdecimal()
            count += number("gres", rest.pop() if has_count else "1", least=0)
            models.update([":".join(rest)] if rest else [])
        elif name and name != "none":
            others.append(part)
    if len(models) > 1:
        raise SbatchError(f"--gres={text} cannot be done: expected GPUs of one model")
    return count, "".join(models), others


def begin(text: str, now: datetime) -> datetime | None:
    """The earliest start; None for now.

    Args:
        now: with its zone, which is that of the text.

    Raises:
        SbatchError: it is of no form that is known here.
    """
    word = text.lower()
    if (found := _FROM_NOW.fullmatch(word)) is not None:
        unit = found[2].removesuffix("s") if found[2] else "second"
        if found[1] is None:
            return None
        if unit in _SPANS:
            with suppress(OverflowError):  # no such day
                return now + timedelta(seconds=int(found[1]) * _SPANS[unit])
    start = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if word in ("today", "tomorrow"):
        return None if word == "today" else now + timedelta(days=1)
    if (day := _DAY.fullmatch(text)) is not None:
        try:
            start = start.replace(year=int(day[1]), month=int(day[2]), day=int(day[3]))
            return start if day[4] is None else _at(start, day[4])
        except ValueError:
            pass  # no such day, or no such time
    else:
        try:
            moment = _at(start, word)
            return moment if moment > now else moment + timedelta(days=1)
        except ValueError:
            pass
    raise SbatchError(
        f"invalid --begin {text!r}: expected such as now+2hours, 16:00, tomorrow or "
        "2027-01-31T08:00"
    )


def _at(day: datetime, text: str) -> datetime:
    """
    Raises:
        ValueError: it is no time of a day.
    """
    if text in _NAMED_TIMES:
        return day.replace(hour=_NAMED_TIMES[text])
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return day.replace(hour=int(found[1]), minute=int(found[2]), second=int(found[3] or 0))
