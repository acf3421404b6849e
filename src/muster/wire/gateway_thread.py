"""The agents' gateway on a thread of its own, so that heartbeats are answered while control works.

Control stays single-threaded: agents' messages cross to its event loop, messages to agents cross
back. Only ``Leases`` and ``Gatekeeper.authenticate`` are called on the gateway's thread.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from muster.core.ids import AgentId
from muster.wire.calls import (
    Gatekeeper,
    JoinReply,
    JoinRequest,
    LogChunk,
    LogRequest,
)
from muster.wire.messages import (
    AgentEvents,
    ControllerMessage,
    Hello,
    KernelKey,
    Leases,
    NewsOfAgent,
)
from muster.wire.server import AgentGateway
from muster.wire.transport import ServerTls

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_WAITING = 20_000
"""Messages of agents that may wait for control; past that the stream of the agent that speaks is
closed, and it repeats its message after its next Hello."""

END_S = 10.0
"""How long the thread may take to end once all streams are closed."""


class GatewayThread:
    """An ``AgentGateway`` that is used from one event loop and serves agents on another.

    Args:
        gatekeeper, events, leases, tls: as the gateway's.
    """

    def __init__(
        self,
        gatekeeper: Gatekeeper,
        events: AgentEvents,
        leases: Leases,
        *,
        tls: ServerTls | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)
        self._to_gateway = _Crossing(self._loop)
        control = _Control(gatekeeper, events, self._cut_off)
        self._gateway = AgentGateway(control, control, leases, tls=tls)

    async def start(self, *addresses: str) -> int:
        """See ``AgentGateway.start``."""
        self._thread.start()
        try:
            return await self._there(self._gateway.start(*addresses))
        except BaseException:
            await self._end()
            raise

    async def stop(self) -> None:
        """See ``AgentGateway.stop``."""
        await self._there(self._gateway.stop())
        await self._end()

    def welcome(self, hello: Hello) -> None:
        """See ``AgentLink.welcome``."""
        self._to_gateway.call(partial(self._gateway.welcome, hello))

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        """See ``AgentLink.send``."""
        self._to_gateway.call(partial(self._gateway.send, agent, message))

    def close(self, agent: AgentId, why: str) -> None:
        """See ``AgentLink.close``."""
        self._to_gateway.call(partial(self._gateway.close, agent, why))

    async def read_log(self, agent: AgentId, request: LogRequest) -> AsyncGenerator[LogChunk, None]:
        """See ``AgentGateway.read_log``."""
        chunks = self._gateway.read_log(agent, request)

        async def next_chunk() -> LogChunk | None:
            return await anext(chunks, None)

        try:
            while (chunk := await self._there(next_chunk())) is not None:
                yield chunk
        finally:
            with suppress(RuntimeError):  # the read is being cancelled, which ends it too
                await self._there(chunks.aclose())

    async def short_outputs(
        self, agent: AgentId, names: Sequence[KernelKey]
    ) -> Mapping[KernelKey, bytes]:
        """See ``AgentGateway.short_outputs``."""
        return await self._there(self._gateway.short_outputs(agent, names))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, END_S)

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the gateway's event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _cut_off(self, agent: AgentId) -> None:
        self._gateway.close(agent, "the controller has more to hear than it can take")


class _Crossing:
    """Calls that one thread leaves for the event loop of another: in order, many at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._called = False

    def __len__(self) -> int:
        return len(self._waiting)

    def call(self, function: Callable[[], None]) -> None:
        self._waiting.append(function)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop is closed, so nobody waits for the call
                self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._called = False
        for _ in range(len(self._waiting)):
            function = self._waiting.popleft()
            try:
                function()
            except Exception:  # the others are about other agents
                log.exception("a call between control and the agents' gateway failed: %s", function)


class _Control:
    """Control as the gateway sees it from its own thread."""

    def __init__(
        self, gatekeeper: Gatekeeper, events: AgentEvents, cut_off: Callable[[AgentId], None]
    ) -> None:
        self._gatekeeper = gatekeeper
        self._events = events
        self._cut_off = cut_off
        self._loop = asyncio.get_running_loop()
        self._crossing = _Crossing(self._loop)

    def agent_said(self, agent: AgentId, message: NewsOfAgent) -> None:
        if len(self._crossing) >= MAX_WAITING:
            self._cut_off(agent)
        else:
            self._crossing.call(partial(self._events.agent_said, agent, message))

    def agent_left(self, agent: AgentId) -> None:
        self._crossing.call(partial(self._events.agent_left, agent))

    async def join(self, request: JoinRequest) -> JoinReply:
        work = self._gatekeeper.join(request)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def authenticate(self, credential: str) -> AgentId | None:
        return self._gatekeeper.authenticate(credential)
