"""Errors that a person meets. Each tells the mistake, its place, and a remedy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from muster.core.text import either


class MusterError(Exception):
    """Base of every error that Muster raises on purpose; its text is a sentence for a person."""


class NotFound(MusterError):
    """There is no such thing, or it belongs to somebody else (design: Access)."""


def nothing_named(ref: str, *kinds: str) -> NotFound:
    """The error that no thing of these kinds is called so: "there is no job or session 'x'"."""
    return NotFound(f"there is no {either(kinds)} {ref!r}")


class Ambiguous(MusterError):
    """A short prefix means more than one thing."""


class Conflict(MusterError):
    """The request contradicts the present state: a name is taken, a job has ended."""


class MustEnd(MusterError):
    """This process can do no more work; another one in its place can."""

    exit_code: ClassVar[int] = 1


class Superseded(MustEnd):
    """Another process does the work of this one now: nobody is to start this one again."""

    exit_code: ClassVar[int] = 3


class Unwelcome(MustEnd):
    """Another process that this one needs does not want it, and refuses it again: nobody is to
    start this one again before a person has done something."""

    exit_code: ClassVar[int] = 77  # EX_NOPERM of sysexits.h


class Hindered(MustEnd):
    """Something outside keeps this process from its work, which time may cure: a full disk, a
    server that is away. However often it is started again in vain, that is no defect."""

    exit_code: ClassVar[int] = 75  # EX_TEMPFAIL of sysexits.h


class Busy(MusterError):
    """A bounded queue is full; the same request may pass later."""


class LimitExceeded(MusterError):
    """More of something than is allowed; the text tells the limit and the count (design: Everything
    is bounded)."""


MAX_PROBLEMS = 50
"""Problems that one error tells."""
_MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a spec.

    ``field`` is a dotted path, ``value`` the text that stood there, ``expected`` a sentence on the
    values that may.
    """

    field: str
    value: str
    expected: str

    def sentence(self) -> str:
        shown = f" is {self.value}" if self.value else ""
        return f"{self.field}{shown}: {self.expected}"


class InvalidSpec(MusterError):
    """A spec that cannot be accepted; it is refused whole and nothing was written.

    Args:
        problems: the first ``MAX_PROBLEMS`` are told, each cut to a length that can be read.
        found: how many problems there are, where ``problems`` does not hold all of them.
    """

    def __init__(self, problems: Sequence[Problem], found: int = 0) -> None:
        found = max(found, len(problems))
        told = [_bounded(problem) for problem in problems[:MAX_PROBLEMS]]
        if found > MAX_PROBLEMS:
            more = f"{found - MAX_PROBLEMS + 1} more problems; they are told once these are mended"
            told[MAX_PROBLEMS - 1 :] = [Problem("spec", "", more)]
        self.problems = tuple(told)
        super().__init__("; ".join(problem.sentence() for problem in self.problems))

    def in_file(self, file: str) -> "InvalidSpec":
        """The same problems, each with the file that it is in."""
        return InvalidSpec([replace(each, field=f"{file}: {each.field}") for each in self.problems])


def _bounded(problem: Problem) -> Problem:
    return Problem(_cut(problem.field), _cut(problem.value), _cut(problem.expected))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
