"""Time as the rest of Muster sees it: one injected axis that never steps back.

Timeouts must not fire because somebody set the machine's clock, and history must show the time of
day. Both are served by one axis: seconds since the epoch, anchored to the wall clock when the
process starts and advanced by the monotonic clock from there (design: Time). The controller's axis
goes on over its restarts: ``resumed``.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.core.text import duration

LEAP_S = 10.0
"""The least difference between two clocks that counts as a leap of the time of day: adjustments of
a clock that is kept right are smaller."""


class Clock(Protocol):
    """The source of time."""

    def now(self) -> float:
        """Seconds since the epoch; never less than an earlier answer."""

    def boot_s(self) -> float:
        """Seconds since the machine booted, those included in which it was suspended: a process
        must keep by these what others count on while it cannot run."""

    def processor_s(self) -> float | None:
        """Processor seconds of the calling thread so far; None where that is not known."""


class SteadyClock:
    """The machine's time: the wall clock at construction, the monotonic clock since. It stands
    still while the machine is suspended, so that no time limit ends anything when it wakes."""

    def __init__(self) -> None:
        self.go_on_from(time.time())

    def go_on_from(self, moment_s: float) -> None:
        """Have it be ``moment_s`` now."""
        self._offset_s = moment_s - time.monotonic()
        self._asleep_s = self.boot_s() - time.monotonic()

    def now(self) -> float:
        return self._offset_s + time.monotonic()

    def leap_s(self) -> float:
        """By how much the time of day is ahead of this clock; negative if it is behind."""
        return time.time() - self.now()

    def suspended_s(self) -> float:
        """For how long the machine was suspended since the clock began or was set."""
        return self.boot_s() - time.monotonic() - self._asleep_s

    def boot_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def processor_s(self) -> float | None:
        return time.thread_time()


def said_leap(leap_s: float) -> str:
    """A sentence about a time of day that is ahead of a controller's time by so much, or behind."""
    side = "ahead of" if leap_s > 0 else "behind"
    return (
        f"the time of day is {duration(abs(leap_s))} {side} the cluster's time, which goes on as "
        f"it was: nothing ends because a clock was set"
    )


def said_suspended(suspended_s: float) -> str:
    """A sentence about a machine that was suspended for so long while its controller ran."""
    return (
        f"the machine was suspended for {duration(suspended_s)}, which the cluster's time has left "
        f"out"
    )


NOT_CONFIRMED = (
    "no agent has confirmed how much time has passed since the last commit of the controller "
    "before this one; until then no time limit counts it"
)


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """A moment of a controller's time, and of the boot clock of its machine.

    Args:
        boot_id: the boot of the machine; empty if it is not known.
        boot_s: the moment by the boot clock, which nobody can set.
        at_s: the same moment by the controller's time.
        confirmed: whether it is known how much time had passed by then (``Resumed``).
    """

    boot_id: str
    boot_s: float
    at_s: float
    confirmed: bool = True


@dataclass(frozen=True, slots=True)
class Resumed:
    """The start of a controller's time.

    Args:
        at_s: the moment from which it goes on.
        confirmed: whether it is known how much time has passed since the last commit. If not,
            ``at_s`` is the earliest moment that is possible, so that nothing ends too early.
    """

    at_s: float
    confirmed: bool


def resumed(
    anchor: ClockAnchor | None,
    last_commit_s: float,
    time_of_day_s: float,
    boot_id: str,
    boot_s: float,
) -> Resumed:
    """The moment from which a controller's time goes on when it starts: no earlier than the last
    commit, which is at 0 where there was none.

    In the boot of the ``anchor``, which an earlier controller wrote down, the boot clock proves how
    much time has passed, and the time of day is not believed where it differs. In another boot, and
    on another machine, a time of day far from the last commit may be a downtime or a wrong clock:
    the time of the last commit goes on until that is confirmed (``confirmed_ahead_s``).
    """
    known_s, confirmed = last_commit_s, not last_commit_s
    if anchor is not None and boot_id and anchor.boot_id == boot_id:
        known_s = max(anchor.at_s + (boot_s - anchor.boot_s), last_commit_s)
        confirmed = anchor.confirmed
    if abs(time_of_day_s - known_s) < LEAP_S or not last_commit_s:
        return Resumed(max(time_of_day_s, last_commit_s), True)
    return Resumed(known_s, confirmed)


@dataclass(frozen=True, slots=True)
class ClockWords:
    """The evidence of agents about a controller's time that is not confirmed.

    Args:
        proven_s: by how much time is ahead of the controller's, as proven by the boot clocks of
            agents that an earlier controller has heard in the same boot.
        told_s: by how much the times of day are ahead of the controller's time on machines that
            have booted since.
        awaited: how many agents that may be alive have not been heard yet.
    """

    proven_s: Sequence[float] = ()
    told_s: Sequence[float] = ()
    awaited: int = 0


def confirmed_ahead_s(words: ClockWords, leap_s: float, is_over: bool) -> float | None:
    """By how much time is ahead of the controller's; None if that is not known.

    A boot clock proves it. Where no agent can prove it, the time of day is believed if it is ahead
    and a machine that booted since agrees with it, and if there is no agent that could be asked.

    Args:
        leap_s: by how much the time of day of the controller's machine is ahead.
        is_over: whether agents are waited for no longer.
    """
    if words.proven_s:
        proven_s = max(0.0, min(words.proven_s))
        return leap_s if leap_s >= 0 and abs(leap_s - proven_s) < LEAP_S else proven_s
    if words.awaited and not is_over:
        return None
    if not words.awaited and not words.told_s:
        return max(0.0, leap_s)
    agrees = any(abs(told_s - leap_s) < LEAP_S for told_s in words.told_s)
    return leap_s if agrees and leap_s >= 0 else None
