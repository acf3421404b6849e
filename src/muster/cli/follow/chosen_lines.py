"""The lines of outputs that a person wants to see: those that a pattern matches, or the first."""

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
        self._open: dict[int, bytearray] = {}
        self._shown: dict[int, int] = {}

    def add(self, index: int, data: bytes) -> bytes:
        """The lines that are wanted of those that have ended.

        Raises:
            PatternTooSlow: the pattern takes too long for one of them.
        """
        if self._pattern is None and self._head is None:
            return data
        first, *others = data.split(b"\n")
        open_line = self._open.setdefault(index, bytearray())
        open_line += first
        whole: list[bytes] = []
        if others:
            *between, rest = others
            whole = [bytes(open_line), *between]
            open_line = self._open[index] = bytearray(rest)
        if len(open_line) > MAX_LINE_BYTES:
            whole.append(bytes(open_line))
            del self._open[index]
        return b"".join(line + b"\n" for line in self._wanted(index, whole))

    def finish(self, index: int) -> bytes:
        """The rest of an output that has ended, if it is wanted.

        Raises:
            PatternTooSlow: as ``add``.
        """
        rest = bytes(self._open.pop(index, b""))
        return b"".join(self._wanted(index, [rest] if rest else []))

    def is_full(self, index: int) -> bool:
        """Whether no more of the output is wanted."""
        return self._head is not None and self._shown.get(index, 0) >= self._head

    def _wanted(self, index: int, lines: Sequence[bytes]) -> list[bytes]:
        """
        Raises:
            PatternTooSlow: the pattern takes too long for one of them.
        """
        if self._pattern is None:
            return [line for line in lines if self._takes(index)]
        found: list[bytes] = []
        line = b""
        with _searches_end(lambda: len(line)):
            for line in lines:
                signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
                if self._pattern.search(line) is not None and self._takes(index):
                    found.append(line)
                if self.is_full(index):
                    break
        return found

    def _takes(self, index: int) -> bool:
        """Whether one more line of an output is wanted; it is counted then."""
        if self.is_full(index):
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


@contextmanager
def _searches_end(length: Callable[[], int]) -> Iterator[None]:
    """Have an alarm end the search that goes on when it rings; each search sets it anew.

    Args:
        length: tells how long the line is that is searched.

    Raises:
        PatternTooSlow: it rang.
    """

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise PatternTooSlow(
            f"--grep took more than {LONGEST_S:g} s for one line of {length():,} bytes: write the "
            "pattern without repetitions of repetitions, such as (a+)+"
        )

    before = signal.signal(signal.SIGALRM, give_up)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
