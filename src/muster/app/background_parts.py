"""The parts of a controller that run beside its control plane. One that fails is told in the log,
in the controller's health, and to admins, and runs again after a rest."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

log = logging.getLogger(__name__)

REST_S = 5.0
MOST_TOLD = 5
"""Parts that are told to rest; others are counted."""


class BackgroundParts:
    """``trouble`` tells which parts rest, and why; None if none does."""

    def __init__(self, rest_s: float = REST_S) -> None:
        self._rest_s = rest_s
        self._resting: dict[str, str] = {}

    @property
    def trouble(self) -> str | None:
        told = [*self._resting.values()]
        more = f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
        return "; ".join(told[:MOST_TOLD]) + more or None

    @asynccontextmanager
    async def running(
        self, name: str, part: Callable[[], Coroutine[None, None, None]]
    ) -> AsyncIterator[None]:
        """``keep`` the part beside the context, and cancel it at the end."""
        task = asyncio.create_task(self.keep(name, part), name=name)
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def keep(self, name: str, part: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run ``part`` until it ends by itself, and after a rest again where it fails."""
        while True:
            try:
                return await part()
            except Exception as error:
                log.exception("the part %r failed, and runs again in %g s", name, self._rest_s)
                self._resting[name] = f"the part {name!r} failed: {error!r}"[:200]
            await asyncio.sleep(self._rest_s)
            del self._resting[name]
