"""Parts of a controller that run beside its control plane."""

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest

from muster.app.background_parts import BackgroundParts


class Part:
    """A part that fails as often as is said, and then runs until it is cancelled."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.failed, self.works, self.cancelled = (asyncio.Event() for _ in range(3))

    async def run(self) -> None:
        if self._failures:
            self._failures -= 1
            self.failed.set()
            raise KeyError("a defect")
        self.works.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


async def test_part_that_fails_is_told_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    beside, part = BackgroundParts(rest_s=0.0), Part(failures=2)
    async with asyncio.timeout(10), beside.running("watch", part.run):
        await part.works.wait()
        assert not part.cancelled.is_set()
    assert part.cancelled.is_set()
    told = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.getMessage() for each in told] == [
        "the part 'watch' failed, and runs again in 0 s"
    ] * 2
    assert all(each.exc_info for each in told)


async def test_trouble_is_told_while_a_part_rests() -> None:
    beside, part, well = BackgroundParts(rest_s=1e9), Part(failures=1), Part(failures=0)
    async with asyncio.timeout(10), beside.running("b", well.run):
        await well.works.wait()
        troubles = [beside.trouble]
        async with beside.running("a", part.run):
            await part.failed.wait()
            troubles.append(beside.trouble)
    assert troubles == [None, "the part 'a' failed: KeyError('a defect')"]


async def test_only_some_of_many_parts_that_rest_are_told() -> None:
    beside = BackgroundParts(rest_s=1e9)
    parts = [Part(failures=1) for _ in range(8)]
    async with asyncio.timeout(10), AsyncExitStack() as stack:
        for number, part in enumerate(parts):
            await stack.enter_async_context(beside.running(f"agent {number}", part.run))
            await part.failed.wait()
        told = (beside.trouble or "").split("; ")
    assert told[0] == "the part 'agent 0' failed: KeyError('a defect')"
    assert (len(told), told[-1]) == (6, "and 3 more")
