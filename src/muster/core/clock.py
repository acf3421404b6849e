"""Time as the rest of Muster sees it: one injected axis that never steps back.

Timeouts must not fire because somebody set the machine's clock, and history must show the time of
day. Both are served by one axis: seconds since the epoch, anchored to the wall clock when the
process starts and advanced by the monotonic clock from there (design: Time).
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The source of time."""

    def now(self) -> float:
        """Seconds since the epoch; never less than an earlier answer."""

    def boot_s(self) -> float:
        """Seconds since the machine booted, those included in which it was suspended: a process
        must keep by these what others count on while it cannot run."""


class SteadyClock:
    """The machine's time: the wall clock at construction, the monotonic clock since."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def not_before(self, moment_s: float) -> None:
        """Go on from ``moment_s``, a time that an earlier process wrote down, where the wall clock
        was set back since."""
        self._offset_s = max(self._offset_s, moment_s - time.monotonic())

    def now(self) -> float:
        return self._offset_s + time.monotonic()

    def boot_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class VirtualClock:
    """Time that moves only when told to: for tests and simulation."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self._now_s = start_s
        self.suspended_s = 0.0

    def now(self) -> float:
        return self._now_s

    def boot_s(self) -> float:
        return self._now_s + self.suspended_s

    def advance(self, seconds: float) -> None:
        """Move time forward.

        Raises:
            ValueError: ``seconds`` is negative; time never steps back.
        """
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._now_s += seconds

    def advance_to(self, moment_s: float) -> None:
        """Move time to ``moment_s``, or leave it where it is if that moment has passed."""
        self._now_s = max(self._now_s, moment_s)
