"""A server for clients who come by TLS: their connections have a place among those of their address
from their beginning on, not only once the handshake is done."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from muster.core.origins import origin_of
from muster.proxy.connections import Connections

log = logging.getLogger(__name__)

BACKLOG = 1024
AT_ONCE = 100
"""Connections that are accepted before others of the process's work may go on."""
AGAIN_S = 1.0
"""Seconds until connections are accepted again where the machine had no room for another."""


class TlsServer:
    """Accepts connections on a socket that listens already. A connection whose handshake is under
    way counts as one without a request.

    Args:
        make: makes the protocol of a connection whose handshake is done.
        handshake_s: how long a handshake may take.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        connections: Connections,
        make: Callable[[], asyncio.Protocol],
        handshake_s: float,
    ) -> None:
        self.connections = connections
        self.make = make
        self._listener = listener
        self._context = context
        self._handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[_Handshake, asyncio.Task[None]] = {}
        self._again: asyncio.TimerHandle | None = None
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no connection any more, and end those whose handshake is under way."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for handshake in self._under_way:
            handshake.cut_off()

    async def wait_closed(self) -> None:
        """Wait until no handshake is under way."""
        await asyncio.gather(*self._under_way.values())

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted: %s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._again = self._loop.call_later(
                    AGAIN_S, self._loop.add_reader, self._listener, self._accept
                )
                return
            accepted.setblocking(False)
            handshake = _Handshake(self, accepted, origin_of(str(peer[0])))
            self._under_way[handshake] = self._loop.create_task(self._shake(accepted, handshake))
            self.connections.opened(handshake)

    async def _shake(self, accepted: socket.socket, handshake: _Handshake) -> None:
        try:
            with suppress(OSError):
                await self._loop.connect_accepted_socket(
                    lambda: handshake,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=self._handshake_s,
                )
        finally:
            del self._under_way[handshake]
            handshake.leave()


class _Handshake(asyncio.Protocol):
    """A connection until its handshake is done."""

    def __init__(self, server: TlsServer, accepted: socket.socket, origin: str) -> None:
        self.origin = origin
        self._server = server
        self._accepted = accepted
        self._has_left = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.leave()
        protocol = self._server.make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def cut_off(self) -> None:
        with suppress(OSError):  # it is gone
            self._accepted.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Give the place up, unless that was done."""
        if not self._has_left:
            self._has_left = True
            self._server.connections.closed(self)
