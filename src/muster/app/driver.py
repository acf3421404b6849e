"""Real time for the control plane: wakes it when hinted or when time needs it."""

import asyncio
import logging
import math
from collections.abc import Callable

from muster.control.plane import ControlPlane
from muster.core.clock import Clock

log = logging.getLogger(__name__)

PAUSE_AFTER_ERROR_S = 1.0
LONGEST_PAUSE_S = 0.01
"""Under load a wake is followed by a pause as long as itself, up to this: the longer wakes take,
the more inputs share the next one and its commit."""
LOAD_S = 0.1
"""How long wakes are remembered: load is when they took more than half of that time. So what comes
of a lone request waits for nothing."""


class Driver:
    """Calls ``plane.step`` on the event loop, one wake at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hinted = asyncio.Event()
        self._stopping = False
        self._busy_s = 0.0  # of the time of late, which counts less the longer ago it was
        self._ended_s = 0.0

    def hint(self) -> None:
        """Say that there is something to do."""
        self._hinted.set()

    def stop(self) -> None:
        self._stopping = True
        self._hinted.set()

    async def run(self, plane: ControlPlane) -> None:
        """Run the plane until ``stop`` was called; inputs from before that are still taken."""
        while True:
            stopping = self._stopping
            self._hinted.clear()
            began_s = self._clock.now()
            pause_s = self._wake(plane.step)
            took_s = self._clock.now() - began_s
            if stopping:
                return
            await asyncio.sleep(min(took_s, LONGEST_PAUSE_S) if self._is_loaded(took_s) else 0)
            if pause_s is None or pause_s > 0:
                await self._wait(pause_s)

    def _is_loaded(self, took_s: float) -> bool:
        """Whether wakes, with the last one that took so long, leave little time between them."""
        now = self._clock.now()
        forgotten = math.exp(-(now - self._ended_s) / LOAD_S)
        self._busy_s = self._busy_s * forgotten + took_s
        self._ended_s = now
        return self._busy_s > LOAD_S / 2

    def _wake(self, step: Callable[[], float | None]) -> float | None:
        """Run a wake; the answer is the time in seconds until the next one is due, None if only a
        hint will cause one."""
        try:
            due = step()
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
