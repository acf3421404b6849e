"""Output of kernels, read from their agents: windows, following, and what goes wrong."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from tests.wire.controller import QUICK, Controller, controller

from muster.core.errors import Busy
from muster.core.ids import AgentId, KernelId
from muster.core.reasons import Reason
from muster.core.reasons.of_files import OutputTooOld
from muster.core.reasons.of_queue import NoGroupAccess
from muster.core.resources import Resources
from muster.wire import agent_pb2 as pb
from muster.wire import client, log_reading
from muster.wire.call_codec import decode_short_reply
from muster.wire.calls import (
    LogChunk,
    LogRequest,
    StderrNotApart,
)
from muster.wire.client import ControllerChannel, Disconnected
from muster.wire.log_reading import LogUnreadable, OutputNotKept, OutputUnreachable
from muster.wire.messages import (
    Hello,
    KernelKey,
    MalformedMessage,
)
from muster.wire.transport import LOG_WINDOW_BYTES, MAX_LOG_READS

AGENT = AgentId("agt-1")
CREDENTIAL = "secret of agt-1"
HELLO = Hello(AGENT, "a1", "default", "boot-1", "1", "host", Resources(), (), {}, ())


@dataclass
class Log:
    """A kernel's output in memory, served as an agent does."""

    data: bytes = b""
    ended: bool = False
    requests: list[LogRequest] = field(default_factory=list)
    asked_together: list[Sequence[KernelKey]] = field(default_factory=list)
    waiting: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def write(self, data: bytes, *, ended: bool = False) -> None:
        async with self.changed:
            self.data += data
            self.ended = ended
            self.changed.notify_all()

    async def read(self, request: LogRequest) -> LogChunk:
        self.requests.append(request)
        offset = request.offset if request.offset >= 0 else len(self.data) + request.offset
        async with self.changed:
            self.waiting += 1
            self.changed.notify_all()
            try:
                await self.changed.wait_for(
                    lambda: len(self.data) > offset or self.ended or not request.follow
                )
            finally:
                self.waiting -= 1
                self.changed.notify_all()
        data = self.data[offset : offset + request.limit_bytes]
        return LogChunk(offset, data, self.ended and offset + len(data) == len(self.data))

    async def short(self, names: Sequence[KernelKey]) -> Mapping[KernelKey, bytes]:
        self.asked_together.append([*names])
        return {name: self.data for name in names if name[0] != "krn-long"}


@asynccontextmanager
async def connected(made: Controller) -> AsyncIterator[tuple[ControllerChannel, str]]:
    """An agent with a stream, and what shows that its log stream belongs to that."""
    made.credentials[CREDENTIAL] = AGENT
    async with ControllerChannel(made.address, keepalive=QUICK) as channel:
        stream = channel.connect(CREDENTIAL)
        await stream.send(HELLO)
        yield channel, await stream.secret()
        stream.close()


@asynccontextmanager
async def served(made: Controller, log: Log) -> AsyncIterator[None]:
    """An agent that serves this log, connected."""
    async with connected(made) as (channel, secret):
        serving = asyncio.create_task(channel.serve_logs(CREDENTIAL, secret, log))
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def request(**fields: object) -> LogRequest:
    return LogRequest(KernelId("krn-1"), 1, **fields)  # type: ignore[arg-type]


async def read(made: Controller, **fields: object) -> list[LogChunk]:
    async with asyncio.timeout(10):
        return [chunk async for chunk in made.gateway.read_log(AGENT, request(**fields))]


async def eventually(log: Log, waiting: int) -> None:
    """Wait until so many reads wait on the agent."""
    async with asyncio.timeout(5), log.changed:
        await log.changed.wait_for(lambda: log.waiting == waiting)


async def test_log_of_an_ended_kernel_is_read_whole() -> None:
    async with controller() as made, served(made, Log(b"one two", ended=True)):
        assert await read(made) == [LogChunk(0, b"one two", eof=True)]


async def test_log_of_a_running_kernel_is_read_up_to_now_without_its_end() -> None:
    async with controller() as made, served(made, Log(b"one")):
        assert await read(made) == [LogChunk(0, b"one", eof=False)]


async def test_agent_that_kept_stdout_and_stderr_together_says_so() -> None:
    class Together(Log):
        async def read(self, request: LogRequest) -> LogChunk:
            assert request.stderr
            raise StderrNotApart

    async with controller() as made, served(made, Together(b"both", ended=True)):
        with pytest.raises(LogUnreadable, match="kept together"):
            await read(made, stderr=True)
    async with controller() as made, served(made, Log(b"err", ended=True)):
        assert await read(made, stderr=True) == [LogChunk(0, b"err", eof=True)]


async def test_all_output_of_an_older_agent_is_not_taken_for_stderr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_stderr(**fields: Any) -> pb.LogReply:
        return pb.LogReply(**{name: value for name, value in fields.items() if name != "stderr"})

    monkeypatch.setattr(client, "pb", SimpleNamespace(LogReply=without_stderr))
    async with controller() as made, served(made, Log(b"both", ended=True)):
        with pytest.raises(LogUnreadable, match="keeps no stderr apart"):
            await read(made, stderr=True)


async def test_empty_log_says_whether_more_may_come() -> None:
    async with controller() as made:
        async with served(made, Log()):
            assert await read(made) == [LogChunk(0, b"", eof=False)]
        async with served(made, Log(ended=True)):
            assert await read(made) == [LogChunk(0, b"", eof=True)]


async def test_long_log_comes_in_windows_up_to_its_limit() -> None:
    data = bytes(range(256)) * (LOG_WINDOW_BYTES // 64)
    limit_bytes = 2 * LOG_WINDOW_BYTES + 10
    async with controller() as made, served(made, Log(data, ended=True)):
        chunks = await read(made, offset=7, limit_bytes=limit_bytes)
        assert b"".join(chunk.data for chunk in chunks) == data[7 : 7 + limit_bytes]
        assert [chunk.offset for chunk in chunks] == [
            7,
            7 + LOG_WINDOW_BYTES,
            7 + 2 * LOG_WINDOW_BYTES,
        ]
        assert not chunks[-1].eof


async def test_negative_offset_reads_the_end() -> None:
    async with controller() as made, served(made, Log(b"one two", ended=True)):
        assert await read(made, offset=-3) == [LogChunk(4, b"two", eof=True)]


async def test_following_gives_what_is_written_until_the_kernel_ends() -> None:
    log = Log(b"old ")
    async with controller() as made, served(made, log):
        chunks = made.gateway.read_log(AGENT, request(offset=-2, follow=True))
        assert await anext(chunks) == LogChunk(2, b"d ")
        await log.write(b"new")
        assert await anext(chunks) == LogChunk(4, b"new")
        await log.write(b"!", ended=True)
        assert await anext(chunks) == LogChunk(7, b"!", eof=True)
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)


async def test_reader_that_goes_away_ends_the_read_on_the_agent() -> None:
    log = Log(b"old")
    async with controller() as made, served(made, log):
        async with aclosing(made.gateway.read_log(AGENT, request(follow=True))) as chunks:
            await anext(chunks)
            following = asyncio.ensure_future(anext(chunks))
            await eventually(log, waiting=1)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await eventually(log, waiting=0)


async def test_slow_reader_is_not_read_ahead_for() -> None:
    log = Log(b"x" * (10 * LOG_WINDOW_BYTES), ended=True)
    async with (
        controller() as made,
        served(made, log),
        aclosing(made.gateway.read_log(AGENT, request(follow=True))) as chunks,
    ):
        await anext(chunks)
        await read(made)  # another reader is not held up meanwhile
        asked = [each for each in log.requests if each.follow]
        assert len(asked) == 1


async def test_following_goes_on_where_it_was_after_the_agent_came_back() -> None:
    log = Log(b"before ")
    async with (
        controller() as made,
        aclosing(made.gateway.read_log(AGENT, request(follow=True))) as chunks,
    ):
        async with served(made, log):
            assert (await anext(chunks)).data == b"before "
            following = asyncio.ensure_future(anext(chunks))
            await eventually(log, waiting=1)
        await log.write(b"meanwhile", ended=True)
        async with served(made, log), asyncio.timeout(10):
            assert await following == LogChunk(7, b"meanwhile", eof=True)


async def test_log_that_cannot_be_read_says_why() -> None:
    class Broken(Log):
        async def read(self, request: LogRequest) -> LogChunk:
            raise OSError(5, "Input/output error")

    async with controller() as made, served(made, Broken()):
        with pytest.raises(LogUnreadable, match="Input/output error"):
            await read(made)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (
            OutputTooOld(at="2026-01-01T00:00:00+00:00", kept_s=604800.0),
            "its output was removed at 2026-01-01T00:00:00.00:00, because an agent keeps output",
        ),
        (NoGroupAccess(group="g", project="p"), "its output was removed by its agent"),
    ],
)
async def test_log_that_was_removed_says_when_and_why(told: Reason, sentence: str) -> None:
    class Removed(Log):
        async def read(self, request: LogRequest) -> LogChunk:
            return LogChunk(0, b"", eof=True, removed=told)

    async with controller() as made, served(made, Removed()):
        with pytest.raises(OutputNotKept, match=sentence):
            await read(made)


async def test_log_of_an_agent_that_is_not_connected_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_reading, "AGENT_WAIT_S", 0.05)
    async with controller() as made:
        with pytest.raises(OutputUnreachable, match="not connected"):
            await read(made)


async def test_agent_that_left_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "AGENT_WAIT_S", 0.5)
    async with controller() as made:
        async with served(made, Log(b"one", ended=True)):
            await read(made)
        began_s = time.monotonic()
        for _ in range(20):
            with pytest.raises(OutputUnreachable, match="not connected"):
                await read(made)
        assert time.monotonic() - began_s < 5.0


async def test_agent_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "REPLY_TIMEOUT_S", 0.2)
    async with controller() as made, served(made, Log()):
        with pytest.raises(OutputUnreachable, match="did not answer"):
            await read(made, follow=True)


async def test_too_many_readers_of_one_agent_are_turned_away() -> None:
    log = Log()
    async with controller() as made, served(made, log):
        readers = [asyncio.create_task(read(made, follow=True)) for _ in range(MAX_LOG_READS)]
        await eventually(log, waiting=MAX_LOG_READS)
        with pytest.raises(Busy):
            await read(made)
        await log.write(b"", ended=True)
        assert all(await asyncio.gather(*readers))


async def test_log_stream_of_a_copied_credential_takes_no_place_of_the_connected_agents() -> None:
    async with controller() as made, served(made, Log(b"true", ended=True)):
        assert await read(made) == [LogChunk(0, b"true", eof=True)]
        async with ControllerChannel(made.address, keepalive=QUICK) as thief:
            for guess in ("", "0" * 32):
                with pytest.raises(Disconnected, match="belongs to no stream"):
                    await thief.serve_logs(CREDENTIAL, guess, Log(b"forged", ended=True))
        assert await read(made) == [LogChunk(0, b"true", eof=True)]


async def test_log_stream_ends_with_the_stream_of_an_agent_that_is_removed() -> None:
    log = Log(b"one")
    async with controller() as made, connected(made) as (channel, secret):
        serving = asyncio.create_task(channel.serve_logs(CREDENTIAL, secret, log))
        assert await read(made) == [LogChunk(0, b"one", eof=False)]
        made.gateway.close(AGENT, "this agent was removed")
        with pytest.raises(Disconnected):
            await asyncio.wait_for(serving, 10.0)
        with pytest.raises(Disconnected, match="belongs to no stream"):
            await channel.serve_logs(CREDENTIAL, secret, log)


async def test_short_outputs_of_many_kernels_come_in_one_reply() -> None:
    log = Log(b"one\n", ended=True)
    names = [(KernelId(f"krn-{number}"), 1) for number in range(150)]
    long = (KernelId("krn-long"), 2)
    async with controller() as made, served(made, log):
        assert await read(made), "the agent is there"
        log.requests.clear()
        found = await made.gateway.short_outputs(AGENT, [*names, long])
        assert found == dict.fromkeys(names, b"one\n")
    assert log.asked_together == [[*names, long]]
    assert log.requests == []


async def test_short_outputs_of_an_agent_that_is_away_or_older_are_none() -> None:
    class Older(Log):
        async def short(self, names: Sequence[KernelKey]) -> Mapping[KernelKey, bytes]:
            return {}

    async with controller() as made:
        assert await made.gateway.short_outputs(AGENT, [(KernelId("krn-1"), 1)]) == {}
        async with served(made, Older(b"x")):
            assert await read(made)
            assert await made.gateway.short_outputs(AGENT, [(KernelId("krn-1"), 1)]) == {}


def test_output_that_was_not_asked_for_is_refused() -> None:
    reply = pb.LogReply(request=1, short=[pb.ShortOutput(place=1, data=b"x")])
    with pytest.raises(MalformedMessage):
        decode_short_reply(reply, [(KernelId("krn-1"), 1)])
