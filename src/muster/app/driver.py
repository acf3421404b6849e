"""Real time for the control plane: wakes it when hinted or when time needs it."""

import asyncio
import logging
from collections.abc import Callable

from muster.control.plane import ControlPlane
from muster.core.clock import Clock
from muster.core.errors import MustEnd

log = logging.getLogger(__name__)

PAUSE_AFTER_ERROR_S = 1.0
LONGEST_PAUSE_S = 0.01
"""Under load each wake is followed by a pause of the wake's own length, up to this. So the longer
wakes take, the more inputs share the next wake and its commit."""
PAUSE_BETWEEN_S = 0.001
"""The pause after a wake that left something undone: enough to hear what came meanwhile."""
SOON_S = 0.005
"""How long a wake is put off for inputs that can wait: a task of ``true`` ends 2 to 4 ms after the
report that it began."""
FEW_CHANGES = 12
"""Rows that a wake for one or two tasks changes, at most."""
CALM_S = 1.0
"""Seconds without a wake that changed more than ``FEW_CHANGES``, after which no pause follows a
wake, so that a single request need not wait."""


class Driver:
    """Calls ``plane.step`` on the event loop, one wake at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hinted = asyncio.Event()
        self._stopping = False
        self._calm_at_s = 0.0
        self._soon: asyncio.TimerHandle | None = None

    def hint(self) -> None:
        """Say that there is something to do."""
        self._hinted.set()

    def hint_soon(self) -> None:
        """Say that there is something to do, which can wait for a moment."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._soon_is_over)

    def _soon_is_over(self) -> None:
        self._soon = None
        self.hint()

    def _forget_soon(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def stop(self) -> None:
        self._stopping = True
        self._hinted.set()

    async def run(self, plane: ControlPlane) -> None:
        """Run the plane until ``stop`` was called; inputs from before that are still taken.

        Raises:
            MustEnd: another controller works on the plane's database, or that has gone back to
                an older state.
        """
        while True:
            stopping = self._stopping
            self._hinted.clear()
            self._forget_soon()  # this wake takes what waited
            began_s = self._clock.now()
            pause_s = self._wake(plane.step)
            took_s = self._clock.now() - began_s
            if stopping:
                return
            goes_on = pause_s is not None and pause_s <= 0
            longest_s = PAUSE_BETWEEN_S if goes_on else LONGEST_PAUSE_S
            await asyncio.sleep(min(took_s, longest_s) if self._is_loaded(plane) else 0)
            if not goes_on:
                await self._wait(pause_s)

    def _is_loaded(self, plane: ControlPlane) -> bool:
        """Whether a recent wake was about more than one or two tasks."""
        now = self._clock.now()
        if plane.changes > FEW_CHANGES:
            self._calm_at_s = now + CALM_S
        return now < self._calm_at_s

    def _wake(self, step: Callable[[], float | None]) -> float | None:
        """Run a wake; the answer is the time in seconds until the next one is due, None if only a
        hint will cause one."""
        try:
            due = step()
        except MustEnd:
            raise
        except Exception:
            log.exception("a wake failed")
            return PAUSE_AFTER_ERROR_S
        return None if due is None else due - self._clock.now()

    async def _wait(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        alarm = None if seconds is None else loop.call_later(seconds, self._hinted.set)
        await self._hinted.wait()
        if alarm is not None:
            alarm.cancel()
