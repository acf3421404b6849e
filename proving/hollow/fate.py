"""The faults that will happen to a hollow controller and its database."""

from dataclasses import dataclass, field
from enum import StrEnum


class Killed(BaseException):
    """The controller's process ends here: nothing of Muster catches this."""


class Misfortune(StrEnum):
    """A fault of one of the next commits, or of the messages sent after it."""

    FULL = "full"  # the disk is full: nothing is written
    RACE = "race"  # somebody else wrote first
    UNKNOWN = "unknown"  # it is written, and the answer is lost
    UNWRITTEN = "unwritten"  # it is not written, and for a while that cannot be known
    SLOW = "slow"  # it takes a while, in which messages come in
    KILLED_BEFORE = "killed before the commit"
    KILLED_AFTER = "killed after the commit"
    KILLED_AMONG_SENDS = "killed among the sends"


class Outage(StrEnum):
    """The ways in which the database may fail for a while."""

    FULL = "full"  # nothing is written
    BUSY = "busy"  # each write waits for others, in vain
    SLOW = "slow"  # each write takes a while
    AWAY = "away"  # nothing is read or written


SLOW_S = 0.8
"""How long a slow write takes."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A misfortune that will happen. If it kills the controller, that stays away for ``away_s``
    seconds; among its sends it is killed after ``sends`` messages to agents."""

    misfortune: Misfortune
    away_s: float
    sends: int = 1


@dataclass(slots=True)
class Fate:
    """The faults that will happen to a controller.

    Args:
        coming: the next misfortunes. Each commit that changes something takes the first of them.
        outage: the way in which the database fails until ``outage_ends``.
        sends_left: how many messages are sent before the controller is killed.
        away_s: the seconds for which the controller stays away after the misfortune drawn last.
    """

    coming: list[Coming] = field(default_factory=list)
    outage: Outage = Outage.FULL
    outage_ends: float = 0.0
    sends_left: int | None = None
    away_s: float = 0.0

    def draw(self) -> Coming | None:
        if not self.coming:
            return None
        drawn = self.coming.pop(0)
        self.away_s = drawn.away_s
        return drawn

    def clear(self) -> None:
        """Have no further faults from now on."""
        self.coming.clear()
        self.outage_ends = 0.0
        self.sends_left = None
