"""Both directions of a stream at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_until_one_ends(
    *directions: Coroutine[Any, Any, object], closed: asyncio.Future[Any] | None = None
) -> None:
    """Run all of the coroutines; when the first ends, or ``closed`` is done, cancel the others and
    wait for them.

    Raises:
        Exception: the error of a coroutine; of several, of the first in order.
    """
    tasks = [asyncio.create_task(direction) for direction in directions]
    watched: list[asyncio.Future[Any]] = [*tasks] if closed is None else [*tasks, closed]
    try:
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
