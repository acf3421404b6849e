"""The lines of outputs that a person wants to see: those that a pattern matches, or the first."""

import re
import signal
from collections.abc import Iterator
from types import FrameType

import click

from muster.cli.follow.lines import MAX_LINE_BYTES
from muster.core.errors import MusterError

MAX_PATTERN = 1000
LONGEST_S = 2.0
"""How long a pattern may take for one line. Patterns that repeat what repeats, as (a+)+, may take
for ever: they try each division of the line."""


class PatternTooSlow(MusterError):
    """A pattern takes too long for a line."""


def line_pattern(text: str) -> "re.Pattern[bytes]":
    """A pattern in the dialect of Python's ``re``, for bytes: text is in UTF-8, and classes such as
    \\w are those of ASCII.

    Raises:
        click.BadParameter: it is none, or too long.
    """
    if len(text) > MAX_PATTERN:
        raise click.BadParameter(f"--grep takes at most {MAX_PATTERN:,} characters")
    try:
        return re.compile(text.encode())
    except (re.error, OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise click.BadParameter(f"--grep {text!r} is no pattern: {error}") from None


class ChosenLines:
    """Cuts the outputs of tasks, by their indexes, to the lines that are wanted. Only the main
    thread may use it: a signal ends a search that takes too long.

    Args:
        pattern: of the lines; None for all.
        head: how many of these lines of each output at most; None for all.
    """

    def __init__(self, pattern: "re.Pattern[bytes] | None", head: int | None) -> None:
        self._pattern = pattern
        self._head = head
        self._open: dict[int, bytes] = {}
        self._shown: dict[int, int] = {}

    def add(self, index: int, data: bytes) -> bytes:
        """The lines that are wanted of those that have ended.

        Raises:
            PatternTooSlow: the pattern takes too long for one of them.
        """
        if self._pattern is None and self._head is None:
            return data
        *whole, rest = (self._open.pop(index, b"") + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            whole, rest = [*whole, rest], b""
        if rest:
            self._open[index] = rest
        return b"".join(line + b"\n" for line in whole if self._is_wanted(index, line))

    def finish(self, index: int) -> bytes:
        """The rest of an output that has ended, if it is wanted.

        Raises:
            PatternTooSlow: as ``add``.
        """
        rest = self._open.pop(index, b"")
        return rest if rest and self._is_wanted(index, rest) else b""

    def is_full(self, index: int) -> bool:
        """Whether no more of the output is wanted."""
        return self._head is not None and self._shown.get(index, 0) >= self._head

    def _is_wanted(self, index: int, line: bytes) -> bool:
        if self.is_full(index) or (self._pattern is not None and not _matches(self._pattern, line)):
            return False
        self._shown[index] = self._shown.get(index, 0) + 1
        return True


def first_lines(pieces: Iterator[bytes], lines: int) -> Iterator[bytes]:
    """The pieces up to the one in which the last of so many lines ends; no more are read."""
    for piece in pieces if lines else ():
        yield piece
        lines -= piece.count(b"\n")
        if lines <= 0:
            return


def _matches(pattern: "re.Pattern[bytes]", line: bytes) -> bool:
    """
    Raises:
        PatternTooSlow: it takes too long to find out.
    """

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise PatternTooSlow(
            f"--grep took more than {LONGEST_S:g} s for one line of {len(line):,} bytes: write the "
            "pattern without repetitions of repetitions, such as (a+)+"
        )

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        return pattern.search(line) is not None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
