"""Reads of one owner wait for each other, and leave threads to those of others."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine
from tests.api.served import ADA, BOB, LIMIT_S

from muster.api.reader import MAX_READS_OF_ONE, THREADS_OF_ONE, Reader
from muster.core.errors import Busy
from muster.store.database import open_engine, sqlite_url


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(sqlite_url(tmp_path / "muster.db"))
    yield engine
    engine.dispose()


class SlowQuery:
    """A query that lasts until it is let go; ``most`` is how many went on at once."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.full = threading.Event()  # one owner has all the threads that it may have
        self.most = 0
        self._running = 0
        self._lock = threading.Lock()

    def __call__(self, _: Connection) -> str:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
            if self.most == THREADS_OF_ONE:
                self.full.set()
        assert self.go.wait(LIMIT_S)
        with self._lock:
            self._running -= 1
        return "slow"


def test_reads_of_one_owner_leave_a_thread_to_another(engine: Engine) -> None:
    async def read_side_by_side() -> None:
        reader, slow = Reader(engine), SlowQuery()
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            reads = [group.create_task(reader.read(ADA, slow)) for _ in range(3 * THREADS_OF_ONE)]
            assert await asyncio.to_thread(slow.full.wait, LIMIT_S)
            assert await reader.read(BOB, lambda _: "quick") == "quick"
            assert not any(read.done() for read in reads)
            slow.go.set()
        assert slow.most == THREADS_OF_ONE

    asyncio.run(read_side_by_side())


def test_reads_of_one_owner_are_bounded_and_another_may_have_its_own(engine: Engine) -> None:
    async def read_too_much() -> None:
        reader, slow = Reader(engine), SlowQuery()
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            for _ in range(MAX_READS_OF_ONE):
                group.create_task(reader.read(ADA, slow))
            await asyncio.sleep(0)
            with pytest.raises(Busy, match="of yours"):
                await reader.read(ADA, slow)
            assert await reader.read(BOB, lambda _: "quick") == "quick"
            slow.go.set()
        assert await reader.read(ADA, lambda _: "quick") == "quick"

    asyncio.run(read_too_much())
