"""Errors that a person meets. Each says what was wrong, where, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass


class MusterError(Exception):
    """Base of every error that Muster raises on purpose; its text is a sentence for a person."""


class NotFound(MusterError):
    """There is no such thing, or it belongs to somebody else (DESIGN section 13)."""


class Ambiguous(MusterError):
    """A short prefix means more than one thing."""


class Conflict(MusterError):
    """The request contradicts what is: a name that is taken, a job that has ended."""


class Busy(MusterError):
    """A bounded queue is full; the same request may pass later."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a spec.

    ``field`` is a dotted path, ``value`` what stood there, ``expected`` a sentence on what should.
    """

    field: str
    value: str
    expected: str

    def sentence(self) -> str:
        shown = f" is {self.value}" if self.value else ""
        return f"{self.field}{shown}: {self.expected}"


class InvalidSpec(MusterError):
    """A spec that cannot be accepted; it is refused whole and nothing was written."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.sentence() for problem in self.problems))
