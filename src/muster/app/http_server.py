"""HTTP for people: uvicorn's server around Muster's own connections, with limits on their number
and on every wait for the other end."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from muster.app.http_connection import HttpConnection
from muster.app.http_connections import HttpConnections
from muster.proxy.tls_server import TlsServer
from muster.wire.transport import ServerTls

HANDSHAKE_TIMEOUT_S = 10.0
"""How long a TLS handshake may take."""
SHUTDOWN_S = 3
START_TIMEOUT_S = 10.0


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the controller; ``ready`` is set once it serves."""

    def __init__(self, config: uvicorn.Config, app: ASGIApp, connections: HttpConnections) -> None:
        super().__init__(config)
        self._app = app
        self.ready = asyncio.Event()
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, on sockets that listen already, with limits on handshakes."""
        await self.lifespan.startup()
        config, loop = self.config, asyncio.get_running_loop()
        make = partial(HttpConnection, self._app, self.server_state, self._connections)
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
    connections = HttpConnections()
    config = uvicorn.Config(
        app,
        http=HttpConnection,  # none of uvicorn's own is loaded
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ssl_certfile=str(tls.certificate) if tls else None,
        ssl_keyfile=str(tls.key) if tls else None,
    )
    server = _Server(config, app, connections)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        await asyncio.wait_for(server.ready.wait(), START_TIMEOUT_S)
        yield
    finally:
        server.should_exit = True
        await task
