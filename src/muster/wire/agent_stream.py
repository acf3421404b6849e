"""One agent's stream, seen from the controller: what goes out, what comes in, how it ends."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from grpc import aio

from muster.core.ids import AgentId
from muster.wire import agent_pb2 as pb
from muster.wire.codec import decode_agent_message, encode_in_pieces
from muster.wire.duplex import run_until_one_ends
from muster.wire.messages import AgentMessage, ControllerMessage
from muster.wire.transport import PIECE_BYTES

log = logging.getLogger(__name__)

Context = aio.ServicerContext[Any, Any]


class AgentStream:
    """Messages out through a bounded queue, messages in to ``said``, until either end closes.

    Args:
        agent: who is at the other end.
        queue_limit: messages that may wait for a slow agent. One more closes the stream: the
            agent says Hello again and is told what should exist, which is never more than is true.
        said: called with each message that arrives, until the stream is closed.
    """

    def __init__(
        self, agent: AgentId, queue_limit: int, said: Callable[[AgentMessage], None]
    ) -> None:
        self._agent = agent
        self._said = said
        self._outgoing: asyncio.Queue[ControllerMessage] = asyncio.Queue(queue_limit)
        self._closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def send(self, message: ControllerMessage) -> None:
        """Queue a message; dropped when the stream is closed or too far behind."""
        if self._closed.done():
            return
        try:
            self._outgoing.put_nowait(message)
        except asyncio.QueueFull:
            self.close(f"the agent is {self._outgoing.maxsize} messages behind")

    def close(self, why: str) -> None:
        """End the stream; nothing that arrives from now on is heard."""
        if not self._closed.done():
            self._closed.set_result(why)

    async def run(self, context: Context) -> str:
        """Carry messages until the stream ends; the answer says why, empty if the agent left.

        Raises:
            MalformedMessage: the agent said something that cannot be understood.
        """
        await run_until_one_ends(self._read(context), self._write(context), closed=self._closed)
        return self._closed.result() if self._closed.done() else ""

    async def _read(self, context: Context) -> None:
        while (message := await context.read()) is not aio.EOF:
            decoded = decode_agent_message(message)
            if self._closed.done():
                return
            self._said(decoded)

    async def _write(self, context: Context) -> None:
        while True:
            for piece in self._encoded(await self._outgoing.get()):
                await context.write(piece)

    def _encoded(self, message: ControllerMessage) -> Iterable[pb.ControllerMessage]:
        # One bad message must not make the agent say Hello, be told the same, and so on for ever.
        try:
            return list(encode_in_pieces(message, PIECE_BYTES))
        except (ValueError, TypeError):
            log.exception("agent %s: a message cannot be encoded and is dropped", self._agent)
            return ()
