"""One agent's stream, seen from the controller: messages out, messages in, its end."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from grpc import aio

from muster.wire import agent_pb2 as pb
from muster.wire.checks import heard
from muster.wire.messages import AgentMessage, ControllerMessage, Hello, Renew
from muster.wire.pieces import encode_in_pieces
from muster.wire.transport import PIECE_BYTES

log = logging.getLogger(__name__)

Context = aio.ServicerContext[Any, Any]


class AgentStream:
    """Messages out through a bounded queue, messages in to ``said``, until either end closes.

    A renewal of the lease overtakes all other waiting messages, so that a large batch of commands
    does not let the lease of an agent run out. Of several waiting renewals only the newest is sent.

    Args:
        hello: the first message of the agent at the other end. Until control has heard it, the
            stream is not ``welcome``. ``secret`` is known to that agent alone.
        queue_limit: messages that may wait for a slow agent. One more closes the stream: the agent
            says Hello again and is told which kernels should exist, a list that has a bound.
        said: called with each message that arrives, until the stream is closed.
    """

    def __init__(
        self, hello: Hello, queue_limit: int, said: Callable[[AgentMessage], None]
    ) -> None:
        self.hello = hello
        self.welcome = False
        self.secret = secrets.token_hex(16)
        self._said = said
        self._queue_limit = queue_limit
        self._outgoing: deque[ControllerMessage] = deque()
        self._renewal: Renew | None = None
        self._something = asyncio.Event()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._writer: asyncio.Task[None] | None = None
        self._writing = False

    def send(self, message: ControllerMessage) -> None:
        """Queue a message; dropped when the stream is closed or too far behind."""
        if self.closed.done():
            return
        if isinstance(message, Renew):
            self._renewal = message
        elif len(self._outgoing) < self._queue_limit:
            self._outgoing.append(message)
        else:
            self.close(f"the agent is {self._queue_limit} messages behind")
        self._something.set()

    def close(self, why: str) -> None:
        """End the stream; nothing that arrives from now on is heard."""
        if not self.closed.done():
            self.closed.set_result(why)

    async def run(self, context: Context) -> str:
        """Carry messages until the stream ends; the answer says why, empty if the agent left.

        A write may still be under way then: ``written`` waits for it.

        Raises:
            MalformedMessage: the agent said something that cannot be understood.
        """
        self._writer = asyncio.create_task(self._write(context))
        self._writer.add_done_callback(_forget_error)
        reader = asyncio.create_task(self._read(context))
        try:
            await asyncio.wait(
                (reader, self._writer, self.closed), return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            self._writer.cancel()  # the call is over, and with it the write
            raise
        finally:
            self.close("")
            if not self._writing:
                self._writer.cancel()
            reader.cancel()
            await asyncio.wait((reader,))
        if not reader.cancelled() and (error := reader.exception()) is not None:
            raise error
        return self.closed.result()

    async def written(self) -> None:
        """Wait until nothing is being written, because gRPC takes no status before. Keepalive ends
        the wait for a peer that is gone; a peer that is there and does not read finds a closed
        stream."""
        if self._writer is not None:
            await asyncio.wait((self._writer,))

    async def _read(self, context: Context) -> None:
        while (message := await context.read()) is not aio.EOF:
            decoded = heard(message)
            if self.closed.done():
                return
            self._said(decoded)

    async def _write(self, context: Context) -> None:
        pieces: deque[pb.ControllerMessage] = deque()
        while not self.closed.done():
            if self._renewal is not None:
                pieces.extendleft(self._encoded(self._renewal))
                self._renewal = None
            elif not pieces and self._outgoing:
                pieces.extend(self._encoded(self._outgoing.popleft()))
            elif not pieces:
                self._something.clear()
                await self._something.wait()
            else:
                self._writing = True
                await context.write(pieces.popleft())
                self._writing = False

    def _encoded(self, message: ControllerMessage) -> Iterable[pb.ControllerMessage]:
        # Else the agent would say Hello, be told the same bad message, and so on for ever.
        try:
            return list(encode_in_pieces(message, PIECE_BYTES))
        except (ValueError, TypeError):
            log.exception("agent %s: a message cannot be encoded and is dropped", self.hello.agent)
            return ()


def _forget_error(writer: asyncio.Task[None]) -> None:
    """Take note of a write's error, which says nothing new: the agent is gone."""
    if not writer.cancelled():
        writer.exception()
