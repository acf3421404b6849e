"""Real time for the control plane: wakes it when hinted or when time needs it."""

import asyncio
import logging
from collections.abc import Callable

from muster.control.plane import ControlPlane
from muster.core.clock import Clock

log = logging.getLogger(__name__)

PAUSE_AFTER_ERROR_S = 1.0
WAKES_A_SECOND = 100.0
"""Wakes of a busy plane: each costs a commit, which more inputs then share."""
BURST = 10.0
"""Wakes that a plane at rest may do at once, so that a lone request waits for nothing."""


class Driver:
    """Calls ``plane.step`` on the event loop, one wake at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hinted = asyncio.Event()
        self._stopping = False
        self._tokens = BURST
        self._tokens_at = clock.now()

    def hint(self) -> None:
        """There is something to do."""
        self._hinted.set()

    def stop(self) -> None:
        self._stopping = True
        self._hinted.set()

    async def run(self, plane: ControlPlane) -> None:
        """Until ``stop`` was called; what was put in before that is still done."""
        while True:
            stopping = self._stopping
            self._hinted.clear()
            pause_s = self._wake(plane.step)
            if stopping:
                return
            if pause_s is None or pause_s > 0:
                await self._wait(pause_s)
            await asyncio.sleep(self._take_token())

    def _take_token(self) -> float:
        """How long to wait before the next wake: nothing until the burst is used up."""
        now = self._clock.now()
        self._tokens = min(self._tokens + (now - self._tokens_at) * WAKES_A_SECOND, BURST)
        self._tokens_at = now
        self._tokens -= 1.0
        return max(-self._tokens / WAKES_A_SECOND, 0.0)

    def _wake(self, step: Callable[[], float | None]) -> float | None:
        """How long until time needs the next wake; None if only a hint will."""
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
