"""A connection to a replica, which carries one request after the other."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import httptools

from muster.proxy.answers import Refused
from muster.proxy.heads import Header, read_answer
from muster.proxy.limits import Limits
from muster.proxy.services import ProxiedReplica

if TYPE_CHECKING:
    from muster.proxy.exchange import Exchange

BUFFER_BYTES = 64 * 1024
"""The bytes that wait to be sent on a connection before the sender is told to pause."""

_BYTES_ACKED = 120
"""The place in Linux's ``struct tcp_info`` of the count of bytes that the other end has taken."""


class CannotConnect(Exception):
    """A replica that takes no connection; the text says why."""


async def connect(replica: ProxiedReplica, limits: Limits) -> ReplicaConnection:
    """
    Raises:
        CannotConnect: it does not listen, or does not answer in time.
    """
    loop = asyncio.get_running_loop()
    connection = ReplicaConnection(replica, limits)
    try:
        async with asyncio.timeout(limits.connect_s):
            await loop.create_connection(lambda: connection, replica.host, replica.port)
    except TimeoutError:
        raise CannotConnect(f"takes no connection within {limits.connect_s:g} s") from None
    except OSError as error:
        raise CannotConnect(f"takes no connection ({os.strerror(error.errno or 0)})") from None
    except (ValueError, UnicodeError):
        raise CannotConnect("has no address") from None
    return connection


class ReplicaConnection(asyncio.Protocol):
    """A connection to a replica. It belongs to one request, or waits in the replica's pool.

    An answer is complete once the data that it came with has been looked at whole: what follows it
    uninvited must never be taken for the next answer.
    """

    __slots__ = (
        "_dirty",
        "_done",
        "_exchange",
        "_headers",
        "_limits",
        "_loop",
        "_parser",
        "_quiet_bytes",
        "_reason",
        "_reusable",
        "_sent_before",
        "_transport",
        "_until_end",
        "heard_s",
        "idle_since_s",
        "replica",
        "reused",
        "sent_bytes",
        "writing_paused",
    )

    def __init__(self, replica: ProxiedReplica, limits: Limits) -> None:
        self.replica = replica
        self.reused = False
        self.writing_paused = False
        self.heard_s = self.idle_since_s = 0.0
        self.sent_bytes = 0
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._exchange: Exchange | None = None
        self._headers: list[Header] = []
        self._reason = b""
        self._quiet_bytes = 0
        self._sent_before = 0
        self._reusable = self._done = self._dirty = self._until_end = False

    # -- of the exchange -------------------------------------------------------------------------

    def begin(self, exchange: Exchange, data: bytes) -> None:
        """Send a request, or its beginning."""
        self._exchange = exchange
        self._done = self._until_end = False
        self._quiet_bytes = 0
        self._sent_before = self.sent_bytes
        self.heard_s = self._loop.time()
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        if exchange.front.stalled:
            self.pause_reading()
        self.write(data)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self.sent_bytes += len(data)
            self._transport.write(data)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self.heard_s = self._loop.time()  # it was not the replica that was silent
            self._transport.resume_reading()

    def leave(self) -> None:
        """End the connection, which nobody needs any more. The last words of a web socket are sent,
        if the replica takes them soon."""
        exchange, self._exchange = self._exchange, None
        if self._transport is None:
            return
        if exchange is not None and exchange.is_tunnel:
            self._transport.close()
            self._loop.call_later(self._limits.linger_s, self._transport.abort)
        else:
            self._transport.abort()

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # -- of the event loop -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none of asyncio's classes.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None or self._parser is None:
            self.leave()  # nobody asked
            return
        self.heard_s = self._loop.time()
        passes_on = exchange.is_tunnel
        if passes_on:
            exchange.front.write(data)
            return
        self._quiet_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._exchange is exchange and exchange.is_tunnel:
                exchange.front.write(data[upgrade.args[0] :])
                return
            self._dirty = True
        except httptools.HttpParserError:
            self._dirty = True
        if self._exchange is not exchange:  # it ended the connection
            return
        if self._done:
            self._end()
        elif self._dirty or self._quiet_bytes > self._limits.head_bytes:
            self._fail("sent what is no HTTP/1.1")

    def eof_received(self) -> bool:
        if self._exchange is not None and not self._exchange.is_tunnel:
            if self._until_end:
                self._end()
            else:
                self._fail("ended the connection", reached=self._reached())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self in self.replica.idle:
            self.replica.idle.remove(self)
        if self._exchange is not None:
            if self._exchange.is_tunnel:
                exchange, self._exchange = self._exchange, None
                exchange.tunnel_ended()
            else:
                self._fail("ended the connection")

    def pause_writing(self) -> None:
        self.writing_paused = True
        if self._exchange is not None:
            self._exchange.front.flow()

    def resume_writing(self) -> None:
        self.writing_paused = False
        if self._exchange is not None:
            self._exchange.front.flow()

    # -- of the parser ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._done:
            self._dirty = True
        self._headers = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        exchange, parser = self._exchange, self._parser
        if exchange is None or parser is None or self._done:
            return
        status = parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            return  # it tells nothing that a client waits for, and such answers have an end
        self._quiet_bytes = 0
        try:
            if too_large(self._headers, self._limits):
                raise Refused(502, "sent an answer whose head is too large")
            head = read_answer(
                status, self._reason, parser.get_http_version(), self._headers, exchange.head.method
            )
            if status == 101 and not exchange.head.websocket:
                raise Refused(502, "switched to a protocol that nobody asked for")
        except Refused as refused:
            self._fail(str(refused))
            return
        if status == 101:
            exchange.switched(head)
            return
        self._until_end = head.ends_with_connection
        # Many a server sends the body that HEAD leaves out, maybe once the next request is there.
        is_certain = exchange.head.method != b"HEAD"
        self._reusable = head.keeps and is_certain and not self._until_end
        exchange.answer(head)
        if exchange.head.method == b"HEAD":
            # The parser would wait for the body that HEAD leaves out.
            self._done, self._parser = True, None

    def on_body(self, data: bytes) -> None:
        self._quiet_bytes = 0
        if self._done:
            self._dirty = True
        elif self._exchange is not None:
            self._exchange.answer_body(data)

    def on_message_complete(self) -> None:
        if self._parser is not None and self._parser.get_status_code() >= 200:
            self._quiet_bytes = 0
            self._done = True

    # -- the end of an answer --------------------------------------------------------------------

    def _end(self) -> None:
        """Hand the complete answer's end on, and the connection back."""
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        pooled = self.replica.idle
        if (
            self._reusable
            and not self._dirty
            and exchange.is_sent
            and self.is_usable
            and self.replica.weight > 0
            and len(pooled) < self._limits.idle_of_one
        ):
            self.reused = True
            self.resume_reading()
            self.idle_since_s = self.heard_s
            pooled.append(self)
        else:
            self.leave()
        exchange.answer_end()

    def _fail(self, why: str, *, reached: bool = True) -> None:
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        if self._transport is not None:
            self._transport.abort()
        exchange.failed(why, reached=reached, stale=self.reused)

    def _reached(self) -> bool:
        """Whether the replica may have taken any byte of the request: a connection that it closed
        at the moment when the request was sent has not taken any."""
        if self._transport is None:
            return True
        try:
            own = socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))
            with own:
                told = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + 8)
            acked: int = struct.unpack_from("=Q", told, _BYTES_ACKED)[0]
        except (OSError, struct.error):
            return True
        return acked > self._sent_before + 1  # the connection's first sign is counted as well


def too_large(headers: Iterable[Header], limits: Limits, size: int = 0) -> bool:
    """Whether these are more headers, or longer ones, than a head may have, of which another line
    takes ``size`` bytes."""
    count = 0
    for name, value in headers:
        count += 1
        size += len(name) + len(value) + 4
    return count > limits.headers or size > limits.head_bytes
