"""HTTP for people: uvicorn, with limits on connections and on every wait for the other end."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from muster.core.origins import origin_of
from muster.proxy.connections import Connections
from muster.proxy.tls_server import TlsServer
from muster.wire.transport import ServerTls

log = logging.getLogger(__name__)
_requests = logging.getLogger(f"{__name__}.requests")
"""The logger for uvicorn's messages about requests."""
_CUT_OFF = "ASGI callable returned without completing response."

MAX_CONNECTIONS = 4096
MAX_OF_ONE_ADDRESS = 1024
"""Connections from one address; users of one machine share it."""
MAX_HEAD_BYTES = 16 * 1024
"""The limit of a request's line and headers."""
HANDSHAKE_TIMEOUT_S = 10.0
"""How long a TLS handshake may take."""
HEAD_TIMEOUT_S = 10.0
"""How long a request's line and headers may take, from their first byte on, or from the
connection's beginning."""
KEEP_ALIVE_S = 60
STALLED_S = 60.0
"""Seconds after which a reader that takes no part of its answer is cut off."""
SHUTDOWN_S = 3
START_TIMEOUT_S = 10.0
TELL_EVERY_S = 60.0
"""How often the log tells of faulty requests."""


class _Faults(logging.Filter):
    """Counts faulty requests by fault; a line a minute tells the counts."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def note(self, fault: str) -> None:
        if not self.counts:
            asyncio.get_running_loop().call_later(TELL_EVERY_S, self._tell)
        self.counts[fault] += 1

    def filter(self, record: logging.LogRecord) -> bool:
        """Count uvicorn's warnings, which are about bad requests; log its errors, which are about
        Muster's own answers, except answers that were cut off on purpose: a token was revoked, an
        agent is gone."""
        cut_off = record.msg == _CUT_OFF
        if record.levelno >= logging.ERROR and not cut_off:
            return True
        self.note("answers cut off" if cut_off else "not HTTP")
        return False

    def _tell(self) -> None:
        told = ", ".join(f"{count} {fault}" for fault, count in self.counts.most_common())
        log.warning("bad requests in the last %.0f s: %s", TELL_EVERY_S, told)
        self.counts.clear()


class _Connections(Connections):
    """All connections, and the faults of their requests."""

    def __init__(self) -> None:
        self.faults = _Faults()
        too_many = partial(self.faults.note, "connections too many")
        super().__init__(MAX_CONNECTIONS, MAX_OF_ONE_ADDRESS, too_many)


class TimedConnection(H11Protocol):
    """A connection with a time limit on every wait for its other end."""

    def __init__(self, connections: _Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _requests
        self.origin = ""
        self._connections = connections
        self._head_due: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.origin = origin_of(self.client[0]) if self.client else ""
        self._await_head()
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.closed(self)
        self._head_came()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._waits_for_head():
            self._await_head()
        super().data_received(data)
        if not self._waits_for_head():
            self._head_came()
            self._connections.busy(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._end_soon()
        elif self._waits_for_head():
            self._connections.idle(self)
        else:  # another request has arrived meanwhile
            self._head_came()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end_soon()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._end_soon()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_S, self._cut_off_for, "readers that stalled")

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def cut_off(self) -> None:
        """End the connection now; data that was not sent yet is lost."""
        self.transport.abort()

    def _waits_for_head(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _await_head(self) -> None:
        if self._head_due is None:
            self._head_due = self.loop.call_later(
                HEAD_TIMEOUT_S, self._cut_off_for, "headers that did not come"
            )

    def _head_came(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _cut_off_for(self, fault: str) -> None:
        self._connections.faults.note(fault)
        self.cut_off()

    def _end_soon(self) -> None:
        """Cut the connection off if it does not close in time: closing waits until all data was
        sent, which a reader that takes nothing may delay for ever."""
        self.loop.call_later(STALLED_S, self.transport.abort)


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the controller; ``ready`` is set once it serves."""

    def __init__(self, config: uvicorn.Config, connections: _Connections) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, on sockets that listen already, with limits on handshakes."""
        await self.lifespan.startup()
        config, loop = self.config, asyncio.get_running_loop()
        protocol: Any = config.http_protocol_class
        make = partial(
            protocol,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        self.servers = []
        for listener in sockets or ():
            server: Any
            if config.ssl is None:
                server = await loop.create_server(make, sock=listener, backlog=config.backlog)
            else:
                context, limit_s = config.ssl, HANDSHAKE_TIMEOUT_S
                server = TlsServer(listener, context, self._connections, make, limit_s)
            self.servers.append(server)
        self.started = True
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(
    app: ASGIApp, listener: socket.socket, tls: ServerTls | None
) -> AsyncIterator[None]:
    """Serve ``app`` on a socket that listens already."""
    connections = _Connections()
    _requests.addFilter(connections.faults)
    config = uvicorn.Config(
        app,
        http=partial(TimedConnection, connections),  # type: ignore[arg-type] # makes one, as a class
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=SHUTDOWN_S,
        timeout_keep_alive=KEEP_ALIVE_S,
        ssl_certfile=str(tls.certificate) if tls else None,
        ssl_keyfile=str(tls.key) if tls else None,
    )
    server = _Server(config, connections)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        await asyncio.wait_for(server.ready.wait(), START_TIMEOUT_S)
        yield
    finally:
        server.should_exit = True
        await task
        _requests.removeFilter(connections.faults)
