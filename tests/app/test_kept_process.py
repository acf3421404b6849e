"""A process that is kept alive, with programs of the tests' own."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.patience import until_awaited

from muster.agent.supervisor import lock_file
from muster.app import kept_process
from muster.app.kept_process import LAST_WORDS, KeptProcess, last_words, stop

HOLDS = """
import os, pathlib, sys, time
from muster.agent.supervisor import lock_file
directory = pathlib.Path(sys.stdin.read())
lock_file.take(directory / "lock")
time.sleep(600)
"""
REFUSES = "raise SystemExit('muster toy: the port is taken')"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the program that is kept."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(kept_process, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(kept_process, "LOOK_AGAIN_S", 0.05)
    return tmp_path / "kept_toy.py"


def kept(tmp_path: Path) -> KeptProcess:
    own = tmp_path / "own"

    async def settings() -> str:
        return str(own)

    return KeptProcess("the toy", "kept_toy", own / "lock", own / "toy.log", settings)


@asynccontextmanager
async def keeping(process: KeptProcess) -> AsyncIterator[None]:
    task = asyncio.create_task(process.keep())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_process_that_is_killed_runs_again_and_ends_with_its_keeper(
    tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.write_text(HOLDS)
    process = kept(tmp_path)
    async with keeping(process):
        first = await until_awaited(lambda: lock_file.holder_of(process.lock))
        assert process.trouble is None
        os.kill(first, signal.SIGKILL)
        await until_awaited(lambda: lock_file.holder_of(process.lock) not in (None, first))
        second = lock_file.holder_of(process.lock)
        assert second is not None
        told = [process.trouble]
        monkeypatch.setattr(kept_process, "STEADY_S", 0.0)
        assert [*told, process.trouble] == ["the toy ended with signal 9", None]
    assert lock_file.holder_of(process.lock) is None
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


async def test_process_that_refuses_to_start_is_told_with_its_own_words(
    tmp_path: Path, module: Path
) -> None:
    module.write_text(REFUSES)
    process = kept(tmp_path)
    async with keeping(process):
        await until_awaited(
            lambda: process.log.exists() and process.log.read_text().count("\n") > 2
        )
        assert process.trouble == "the toy ended with exit code 1: muster toy: the port is taken"
    assert process.log.stat().st_mode & 0o077 == 0


async def test_process_that_outlived_its_keeper_is_left_alone(tmp_path: Path, module: Path) -> None:
    module.write_text(HOLDS)
    process, again = kept(tmp_path), kept(tmp_path)
    running = asyncio.create_task(process.run_once())
    holder = await until_awaited(lambda: lock_file.holder_of(process.lock))
    async with keeping(again):
        await asyncio.sleep(0.3)
        assert lock_file.holder_of(process.lock) == holder
        os.kill(holder, signal.SIGKILL)
        assert await running == "signal 9"
        await until_awaited(lambda: lock_file.holder_of(process.lock) not in (None, holder))


async def test_process_that_does_not_heed_sigterm_is_killed(
    tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.write_text("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HOLDS)
    monkeypatch.setattr(kept_process, "STOP_TIMEOUT_S", 0.3)
    process = kept(tmp_path)
    running = asyncio.create_task(process.run_once())
    await until_awaited(lambda: lock_file.holder_of(process.lock))
    began_s = time.monotonic()
    await stop(process.lock)
    assert 0.3 <= time.monotonic() - began_s < 5
    assert await running == "signal 9"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ""),
        (b"one\ntwo\n\n", "two"),
        (b"\xff\n", "\N{REPLACEMENT CHARACTER}"),
        (b"begun\n" + b"a" * 100_000, "a" * LAST_WORDS),
    ],
)
def test_last_words_are_the_last_line_and_bounded(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "log").write_bytes(content)
    assert last_words(tmp_path / "log") == said
    assert last_words(tmp_path / "none") == ""
