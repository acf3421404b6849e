"""Reading kernels' output from agents: the controller asks for a window at a time.

Each request has one reply. So a slow or lost reader costs one window of memory at most, no reader
delays another, and a read continues where it was after the agent has connected again.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from grpc import aio

from muster.core.errors import Busy, MusterError
from muster.core.ids import AgentId
from muster.core.reasons import Reason
from muster.wire import agent_pb2 as pb
from muster.wire.call_codec import (
    decode_short_reply,
    encode_log_request,
    encode_short_request,
)
from muster.wire.calls import (
    LogChunk,
    LogRequest,
)
from muster.wire.checks import check_log_reply
from muster.wire.duplex import run_until_one_ends
from muster.wire.messages import KernelKey, MalformedMessage
from muster.wire.removal_codec import decode_why_removed
from muster.wire.transport import LOG_WAIT_S, LOG_WINDOW_BYTES, MAX_LOG_READS

AGENT_WAIT_S = 10.0
"""How long reads wait for an agent that has left, from then on, or from the controller's start; a
read that follows waits so long in any case."""

REPLY_TIMEOUT_S = LOG_WAIT_S + 10.0

Context = aio.ServicerContext[Any, Any]


class OutputUnreachable(MusterError):
    """Output is on an agent that is not connected, does not answer in time, or was removed.

    Args:
        agent: the agent's id or name.
        why: completes the sentence that begins with the agent.
    """

    def __init__(self, agent: str, why: str) -> None:
        super().__init__(f"agent {agent} {why}")
        self.why = why


class LogUnreadable(MusterError):
    """The agent cannot read the output; the text is the agent's."""


class OutputNotKept(MusterError):
    """The agent has removed the output; ``reason`` says when and why.

    Args:
        reason: as the agent tells it.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"{reason.sentence()}. {reason.remedy()}".rstrip())
        self.reason = reason


class _StreamEnded(Exception):
    """The log stream broke before the reply."""


class LogStream:
    """One agent's log stream: numbered requests out, their replies in."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[pb.LogReply]] = {}
        self._outgoing: asyncio.Queue[pb.LogRequest] = asyncio.Queue()
        self._ended = False

    async def ask(self, request: Callable[[int], pb.LogRequest]) -> pb.LogReply:
        """The reply to a request, which is made with its number.

        Raises:
            Busy: the agent serves as many reads as it may.
            _StreamEnded: the stream broke before the reply.
        """
        if self._ended:
            raise _StreamEnded
        # A cancelled read may still wait to be sent, so the queue has a bound beside that of reads.
        if max(len(self._waiting), self._outgoing.qsize()) >= MAX_LOG_READS:
            raise Busy("too many readers of this agent's logs; try again in a moment")
        number = next(self._numbers)
        reply: asyncio.Future[pb.LogReply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        self._outgoing.put_nowait(request(number))
        try:
            return await reply
        except asyncio.CancelledError:
            self._outgoing.put_nowait(pb.LogRequest(request=number, cancel=True))
            raise
        finally:
            del self._waiting[number]

    def end(self) -> None:
        """Fail the requests under way, and later ones."""
        self._ended = True
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(_StreamEnded())

    async def run(self, context: Context) -> None:
        """Carry requests and replies until the agent leaves."""
        await run_until_one_ends(self._read(context), self._write(context))

    async def _read(self, context: Context) -> None:
        while (reply := await context.read()) is not aio.EOF:
            check_log_reply(reply)
            waiting = self._waiting.get(reply.request)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)

    async def _write(self, context: Context) -> None:
        while True:
            await context.write(await self._outgoing.get())


class LogReader:
    """The log streams of all connected agents, and reads that outlive them."""

    def __init__(self) -> None:
        self._streams: dict[AgentId, LogStream] = {}
        self._arrival = asyncio.Event()
        self._started_s = time.monotonic()
        self._left_s: dict[AgentId, float] = {}  # agents that left within AGENT_WAIT_S

    def started(self) -> None:
        """Note that agents can connect from now on."""
        self._started_s = time.monotonic()

    def attach(self, agent: AgentId) -> LogStream:
        """A new stream of an agent; it takes the place of an older one."""
        stream = LogStream()
        self._left_s.pop(agent, None)
        if (older := self._streams.get(agent)) is not None:
            older.end()
        self._streams[agent] = stream
        self._arrival.set()
        self._arrival = asyncio.Event()
        return stream

    def detach(self, agent: AgentId, stream: LogStream) -> None:
        """Forget a stream that has ended, unless the agent has a newer one."""
        stream.end()
        if self._streams.get(agent) is stream:
            del self._streams[agent]
            now_s = time.monotonic()
            recent = {id_: at for id_, at in self._left_s.items() if at > now_s - AGENT_WAIT_S}
            self._left_s = {**recent, agent: now_s}

    async def read(self, agent: AgentId, request: LogRequest) -> AsyncGenerator[LogChunk, None]:
        """The output of a kernel, as ``LogRequest`` describes: at least one chunk, unless the
        request follows.

        ``limit_bytes`` bounds a read that does not follow. The last chunk has ``eof`` set only when
        the kernel has ended and the read has reached the end of its output.

        Raises:
            AgentUnreachable: not connected, or no answer in time.
            LogUnreadable: the agent could not read the output.
            OutputRemoved: the agent removed the output.
            Busy: too many readers of one agent.
        """
        left_bytes = request.limit_bytes
        while True:
            asked_bytes = LOG_WINDOW_BYTES if request.follow else min(left_bytes, LOG_WINDOW_BYTES)
            reply = await self._ask(agent, replace(request, limit_bytes=asked_bytes))
            if reply.error:
                raise LogUnreadable(reply.error)
            if request.stderr and not reply.stderr and not reply.HasField("removed"):
                raise LogUnreadable("its agent is of a version that keeps no stderr apart")
            if reply.HasField("removed"):
                raise OutputNotKept(decode_why_removed(reply.removed))
            if reply.data or reply.eof or not request.follow:
                yield LogChunk(reply.offset, reply.data, reply.eof)
            left_bytes -= len(reply.data)
            at_end = len(reply.data) < asked_bytes or left_bytes <= 0
            if reply.eof or (at_end and not request.follow):
                return
            request = replace(request, offset=reply.offset + len(reply.data))

    async def short(self, agent: AgentId, names: Sequence[KernelKey]) -> Mapping[KernelKey, bytes]:
        """The short ones (``SHORT_OUTPUT_BYTES``) among these outputs, each with all that it has
        now. The others are read one by one: ``read`` says what is the matter with them. An older
        agent, and one that is not there, has none to tell.

        Args:
            names: ``MAX_SHORT_OUTPUTS`` at most.
        """
        if (stream := self._streams.get(agent)) is None:
            return {}
        with suppress(TimeoutError, Busy, MalformedMessage, _StreamEnded):
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                reply = await stream.ask(lambda number: encode_short_request(number, names))
            return decode_short_reply(reply, names)
        return {}

    async def _ask(self, agent: AgentId, request: LogRequest) -> pb.LogReply:
        while True:
            stream = await self._stream(agent, follows=request.follow)
            try:
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    return await stream.ask(lambda number: encode_log_request(number, request))
            except _StreamEnded:
                continue
            except TimeoutError:
                raise OutputUnreachable(
                    agent, f"did not answer within {REPLY_TIMEOUT_S:.0f} s"
                ) from None

    async def _stream(self, agent: AgentId, *, follows: bool) -> LogStream:
        now_s = time.monotonic()
        left_s = now_s if follows else self._left_s.get(agent, self._started_s)
        try:
            async with asyncio.timeout(max(0.0, left_s + AGENT_WAIT_S - now_s)):
                while (stream := self._streams.get(agent)) is None:
                    await self._arrival.wait()
        except TimeoutError:
            raise OutputUnreachable(
                agent, "is not connected; its kernels' output is on its machine"
            ) from None
        return stream
