"""Virtual time, and the events that are to come in it."""

import heapq
import itertools
from collections.abc import Callable

from proving.hollow.virtual_clock import VirtualClock


class Appointment:
    """One call at one moment; it can be called off."""

    __slots__ = ("at", "call")

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at = at
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class Timeline:
    """Calls in the order of their moments; calls of one moment in the order in which they were
    made."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._coming: list[tuple[float, int, Appointment]] = []
        self._numbers = itertools.count()

    def at(self, moment: float, call: Callable[[], object]) -> Appointment:
        """Have ``call`` called at a moment, at once if that has passed."""
        appointment = Appointment(max(moment, self.clock.now()), call)
        heapq.heappush(self._coming, (appointment.at, next(self._numbers), appointment))
        return appointment

    def after(self, delay_s: float, call: Callable[[], object]) -> Appointment:
        return self.at(self.clock.now() + delay_s, call)

    def next_at(self) -> float | None:
        """The moment of the next call; None if there is none."""
        while self._coming and self._coming[0][2].call is None:
            heapq.heappop(self._coming)
        return self._coming[0][0] if self._coming else None

    def step(self) -> None:
        """Move time to the next call, and make it.

        Raises:
            IndexError: there is none.
        """
        while True:
            moment, _, appointment = heapq.heappop(self._coming)
            if appointment.call is not None:
                self.clock.advance_to(moment)
                appointment.call()
                return

    def run(self, seconds: float) -> None:
        """Let so much time pass, and make the calls that are due in it. It may be called from
        within a call."""
        end = self.clock.now() + seconds
        while (at := self.next_at()) is not None and at <= end:
            self.step()
        self.clock.advance_to(end)
