"""Some of a job's tasks, as ranges of their indexes."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

MAX_TASKS = 10_000_000
"""Tasks of one job."""
MAX_RANGES = 20_000
"""Ranges of one job; each costs memory for as long as the job lives."""
_MAX_DIGITS = 8
_ONE_RANGE = re.compile(r"[0-9]{1,8}-[0-9]{1,8}(:[0-9]{1,8})?")
EXPECTED_RANGES = "indexes of tasks and ranges of them, such as '3,17,40-45' or '0-100:25'"


@dataclass(frozen=True, slots=True)
class TaskRanges:
    """Indexes of tasks in rising order, none twice. Make it with ``of`` or ``parse``.

    ``ranges`` holds the first and last index of each range, both included; no two ranges touch.
    """

    ranges: tuple[tuple[int, int], ...]
    _before: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """How many indexes lie before each range; one more entry counts all of them."""

    def __post_init__(self) -> None:
        sizes = (last - first + 1 for first, last in self.ranges)
        object.__setattr__(self, "_before", tuple(accumulate(sizes, initial=0)))

    @staticmethod
    def of(ranges: Iterable[tuple[int, int]]) -> "TaskRanges":
        """These ranges (first and last index), in order; ranges that touch or overlap become
        one."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], last)
            else:
                merged.append((first, last))
        return TaskRanges(tuple(merged))

    @staticmethod
    def parse(text: str) -> "TaskRanges":
        """``3,17,40-45``, and ``0-100:25``, which is every 25th index from 0 to 100.

        Raises:
            ValueError: the text is of another form, or has too many ranges.
        """
        ranges: list[tuple[int, int]] = []
        for part in text.split(",", MAX_RANGES):
            first, last, step = _range(part)
            indexes = range(first, last + 1, step)
            if len(ranges) + (1 if step == 1 else len(indexes)) > MAX_RANGES:
                raise ValueError(f"expected at most {MAX_RANGES} ranges, or indexes in steps")
            if step == 1:
                ranges.append((first, last))
            else:
                ranges += [(index, index) for index in indexes]
        return TaskRanges.of(ranges)

    def __str__(self) -> str:
        return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in self.ranges)

    def in_steps(self) -> str:
        """The text for people, which ``parse`` reads too: ``0-100:25`` where three indexes or more
        follow each other in equal steps."""
        parts: list[str] = []
        alone: list[int] = []  # indexes in equal steps that are not told yet
        for first, last in self.ranges:
            goes_on = len(alone) < 2 or first - alone[-1] == alone[1] - alone[0]
            if first != last or not goes_on:
                parts += _stepped(alone)
                alone = []
            if first == last:
                alone.append(first)
            else:
                parts.append(f"{first}-{last}")
        return ",".join([*parts, *_stepped(alone)])

    def __len__(self) -> int:
        return self._before[-1]

    def __iter__(self) -> Iterator[int]:
        """The indexes, in rising order."""
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __contains__(self, index: int) -> bool:
        at = bisect_right(self.ranges, index, key=lambda each: each[0]) - 1
        return at >= 0 and index <= self.ranges[at][1]

    def __getitem__(self, position: int) -> int:
        """The index at a position, from 0.

        Raises:
            IndexError: there are fewer.
        """
        if not 0 <= position < len(self):
            raise IndexError(position)
        at = bisect_right(self._before, position) - 1
        return self.ranges[at][0] + position - self._before[at]

    def below(self, index: int) -> int:
        """How many of the indexes are below this one."""
        at = bisect_left(self.ranges, index, key=lambda each: each[1])
        within = max(index - self.ranges[at][0], 0) if at < len(self.ranges) else 0
        return self._before[at] + within

    def after(self, position: int) -> Iterable[tuple[int, int]]:
        """The ranges of the indexes from a position on."""
        if position >= len(self):
            return
        at = bisect_right(self._before, position) - 1
        yield self[position], self.ranges[at][1]
        yield from self.ranges[at + 1 :]

    @property
    def last(self) -> int:
        """The largest index."""
        return self.ranges[-1][1]


def _stepped(indexes: Sequence[int]) -> list[str]:
    """Indexes in equal steps, as one part of a text if they are three or more."""
    if len(indexes) < 3:
        return [str(index) for index in indexes]
    return [f"{indexes[0]}-{indexes[-1]}:{indexes[1] - indexes[0]}"]


def is_range(text: str) -> bool:
    """Whether a text has the form of one range, as ``1-5`` or ``0-100:25``."""
    return _ONE_RANGE.fullmatch(text) is not None


def _range(text: str) -> tuple[int, int, int]:
    """The first index of a part, the last, and the step between two, as ``0-100:25`` writes them.

    Raises:
        ValueError: the text is of another form.
    """
    ends, colon, step = (part.strip() for part in text.partition(":"))
    first, dash, last = (part.strip() for part in ends.partition("-"))
    last = last if dash else first
    step = step if colon else "1"
    for number in (first, last, step):
        if not (number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS):
            raise ValueError(f"expected {EXPECTED_RANGES}")
    if int(first) > int(last):
        raise ValueError(f"expected the smaller index first, not {text.strip()!r}")
    if colon and (not dash or int(step) == 0):
        raise ValueError(f"expected a step of 1 or more after a range, not {text.strip()!r}")
    return int(first), int(last), int(step)
