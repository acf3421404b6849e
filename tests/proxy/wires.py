"""Connections of a proxy without sockets: the bytes come in the pieces that a test cuts."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from tests.proxy.around import authorise, service

from muster.core.serving.traffic import Target, TrafficView
from muster.proxy.exchange import Exchange
from muster.proxy.front import Front
from muster.proxy.limits import Limits
from muster.proxy.proxy import Proxy
from muster.proxy.replica import ReplicaConnection


class Wire(asyncio.Transport):
    """The proxy's end of a connection.

    Args:
        sent: all that the proxy wrote.
        is_cut: whether the proxy ended the connection at once.
    """

    def __init__(self, protocol: asyncio.Protocol, own: socket.socket) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "socket": own})
        self.protocol = protocol
        self.sent = b""
        self.is_cut = self.is_closed = self.is_half_closed = False
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_half_closed, "nothing may follow the end"
        if not self.is_closed:
            self.sent += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_half_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.is_cut = True
        self.close()


class Wired:
    """A proxy with one client, and with one replica of the service ``web`` if there is one."""

    def __init__(self, own: socket.socket, *, has_replica: bool, **limits: float) -> None:
        self.proxy = Proxy("test", authorise, limits=Limits(**limits))  # type: ignore[arg-type]
        targets = [Target(route="r1", host="127.0.0.1", port=1, revision=1)] if has_replica else []
        view = TrafficView(version=1, services=(service(*targets, holds=True),))
        self.proxy.set_table(view)
        self.front = Front(self.proxy)
        self.client = Wire(self.front, own)
        if has_replica:
            (live,) = self.proxy.services
            (replica,) = live.replicas
            self.connection = ReplicaConnection(replica, self.proxy.limits)
            self.replica = Wire(self.connection, own)
            replica.idle.append(self.connection)

    @property
    def complete(self) -> Exchange | None:
        """The present request, if all of it has come."""
        queue = self.front._queue
        return queue[0] if queue and not queue[0].awaits_body else None


@contextmanager
def wired(*, has_replica: bool = False, **limits: float) -> Iterator[Wired]:
    with socket.socket() as own:
        yield Wired(own, has_replica=has_replica, **limits)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces that begin at these places, each taken modulo its length."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[first:last] for first, last in pairwise(edges)]
