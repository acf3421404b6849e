"""Waiting in real time, for facts that other processes and threads bring about."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 30.0

T = TypeVar("T")


def until(
    condition: Callable[[], T | None], timeout_s: float = PATIENCE_S, pause_s: float = 0.01
) -> T:
    """The first true answer of ``condition``.

    Raises:
        AssertionError: there was none in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (answer := condition()):
        assert time.monotonic() < deadline_s, f"nothing after {timeout_s} s"
        time.sleep(pause_s)
    return answer


async def until_awaited(condition: Callable[[], T | None], timeout_s: float = PATIENCE_S) -> T:
    """The same, while the event loop goes on."""
    return await asyncio.to_thread(until, condition, timeout_s)
