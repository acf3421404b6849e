"""A client's connection: requests in, answers out, one after the other."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from muster.core.origins import origin_of
from muster.proxy.answers import Refused
from muster.proxy.exchange import Exchange
from muster.proxy.heads import Header, read_request, unreadable
from muster.proxy.replica import BUFFER_BYTES, too_large

if TYPE_CHECKING:
    from muster.proxy.proxy import Proxy


class Front(asyncio.Protocol):
    """A connection of a client.

    Args:
        address, origin: where it comes from, and what its limits are counted by.
        heard_s: when its last data came.
        closes: whether the connection ends after the present answer.
    """

    __slots__ = (
        "_body_resumes",
        "_deaf",
        "_due_s",
        "_head_since_s",
        "_headers",
        "_is_idle",
        "_parser",
        "_proxy",
        "_queue",
        "_quiet_bytes",
        "_raw",
        "_reading_paused",
        "_refusal",
        "_stalled_since_s",
        "_target",
        "_transport",
        "address",
        "address_bytes",
        "closes",
        "heard_s",
        "origin",
    )

    def __init__(self, proxy: Proxy) -> None:
        self.address = self.origin = ""
        self.address_bytes = b""
        self.closes = False
        self.heard_s = proxy.now()
        self._proxy = proxy
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._queue: deque[Exchange] = deque()
        self._headers: list[Header] = []
        self._target = b""
        self._quiet_bytes = 0
        self._refusal: Refused | None = None
        self._head_since_s: float | None = None
        self._stalled_since_s: float | None = None
        # By when the connection is to do something else than to answer.
        self._due_s: float | None = self.heard_s + proxy.limits.head_s
        self._raw = self._deaf = self._reading_paused = self._body_resumes = False
        self._is_idle = True

    @property
    def stalled(self) -> bool:
        """Whether the client does not take its answer as fast as it comes."""
        return self._stalled_since_s is not None

    # -- of exchanges ----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def flow(self) -> None:
        """Read from the client, and from the replica, or leave it, as each can be passed on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        present = self._queue[0] if self._queue else None
        pause = not self._deaf and (
            len(self._queue) > 1 or (present is not None and present.wants_no_more)
        )
        if pause != self._reading_paused:
            self._reading_paused = pause
            if pause:
                transport.pause_reading()
            else:
                self.heard_s = self._proxy.now()  # it was not the client that was silent
                transport.resume_reading()

    def refuse(self, exchange: Exchange, refused: Refused) -> None:
        """Give the proxy's own answer to a request."""
        head = exchange.head
        self.closes = (
            not head.keeps or exchange.awaits_body or head.websocket or self._proxy.stopping
        )
        self.write(refused.written(closes=self.closes, bodiless=head.method == b"HEAD"))
        self.ended(exchange)

    def ended(self, exchange: Exchange) -> None:
        """Go on after a complete answer."""
        assert self._queue[0] is exchange, "requests are answered one after the other"
        self._queue.popleft()
        if self.closes:
            self._finish(lingers=exchange.awaits_body)
        elif self._queue:
            asyncio.get_running_loop().call_soon(self._advance)
        else:
            self._rest()
        self.flow()

    def cut(self) -> None:
        """End the connection in the middle of an answer. It is reset: where an answer ends with its
        connection, the client could not tell otherwise that a part is missing."""
        if self._transport is not None:
            own = self._transport.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def abort(self) -> None:
        """End the connection now; data that was not sent yet is lost."""
        if self._transport is not None:
            self._transport.abort()

    def stop(self) -> None:
        """End the connection with its present answer, or now if there is none."""
        self.closes = True
        if not self._queue:
            self._finish(lingers=False)

    cut_off = abort

    # -- of the event loop -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none of asyncio's classes.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self.origin = origin_of(self.address)
        self.address_bytes = self.address.partition("%")[0].encode("latin-1", "replace")
        self._proxy.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._proxy.closed(self)
        if self._queue and self._queue[0].begun:
            self._queue[0].cancel()
        self._queue.clear()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self.heard_s = self._proxy.now()
        if self._raw:
            if self._queue:
                self._queue[-1].body(data)
                self.flow()
            return
        self._quiet_bytes += len(data)
        self._feed(data)
        if self._refusal is None and not self._takes_more:
            return  # a request that waited was refused when more of it came
        if self._refusal is None and self._quiet_bytes > self._proxy.limits.head_bytes:
            self._refusal = Refused(431, "what surrounds the request's body is too large")
        if self._refusal is not None:
            self._spoilt(self._refusal)
        elif self._queue:
            self._advance()
        self.flow()

    def eof_received(self) -> bool:
        """Take a client that sends nothing more for gone: few others end their half only, and what
        a client that is gone had asked for must not go on. It gets no answer that seems whole."""
        if self._queue and self._queue[0].is_answering:
            self.cut()
        return False

    def pause_writing(self) -> None:
        self._stalled_since_s = self._proxy.now()
        if self._queue and (connection := self._queue[0].connection) is not None:
            connection.pause_reading()

    def resume_writing(self) -> None:
        self._stalled_since_s = None
        if self._queue and (connection := self._queue[0].connection) is not None:
            connection.resume_reading()

    def look(self, now_s: float) -> None:
        """End what takes too long."""
        limits = self._proxy.limits
        if self._stalled_since_s is not None and now_s - self._stalled_since_s > limits.stalled_s:
            self.abort()
        elif self._queue:
            present = self._queue[0]
            silent_s = now_s - self.heard_s
            if (
                present.awaits_body
                and present.connection is not None
                and not self._reading_paused
                and silent_s > limits.stalled_s
            ):
                present.refuse(Refused(408, "the rest of the request does not come"))
            else:
                present.look(now_s)
        elif self._head_since_s is not None and not self._deaf:
            if now_s - self._head_since_s > limits.head_s:
                self._spoilt(Refused(408, "the request's head does not come"))
        elif self._due_s is not None and now_s > self._due_s:
            self._time_is_up()

    # -- of the parser ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers, self._target = [], b""
        self._head_since_s = self._proxy.now()

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_since_s = None
        self._quiet_bytes = 0
        if self._body_resumes or not self._takes_more:
            self._body_resumes = False
            return
        parser, limits = self._parser, self._proxy.limits
        try:
            if too_large(self._headers, limits, len(self._target)):
                raise Refused(431, "the request's head is too large")
            if len(self._queue) >= limits.pipelined:  # one read finds thousands of short ones
                raise Refused(429, "too many requests of one connection wait for their answers")
            version = parser.get_http_version()
            head = read_request(parser.get_method(), self._target, version, self._headers)
        except Refused as refused:
            self._refusal = refused
        else:
            self._queue.append(Exchange(self._proxy, self, head))
            if self._is_idle:
                self._is_idle = False
                self._proxy.connections.busy(self)

    def on_body(self, data: bytes) -> None:
        self._quiet_bytes = 0
        if self._takes_more:
            self._queue[-1].body(data)

    def on_message_complete(self) -> None:
        self._quiet_bytes = 0
        if self._takes_more and not (self._parser.should_upgrade() and self._has_body):
            self._queue[-1].body_ended()

    # -- the rest --------------------------------------------------------------------------------

    @property
    def _takes_more(self) -> bool:
        """Whether what the parser finds is still of interest."""
        return self._refusal is None and not self._deaf

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if self._refusal is not None:
                    return
                if self._queue and self._queue[-1].head.websocket:
                    self._raw = True
                    if data:
                        self._queue[-1].body(data)
                    return
                # Any other protocol is not switched to: the next request follows, or the body.
                if self._takes_more and self._has_body:
                    self._resume_body()
            except httptools.HttpParserError as error:
                if self._refusal is None:
                    self._refusal = unreadable(error)
                return

    @property
    def _has_body(self) -> bool:
        """Whether the last request's head promises a body."""
        head = self._queue[-1].head
        return head.chunked or bool(head.length)

    def _resume_body(self) -> None:
        """Have the body be read that the parser leaves out where another protocol is asked for. It
        would take it for a request of its own."""
        head = self._queue[-1].head
        size = b"Content-Length: %d" % (head.length or 0)
        if head.chunked:
            size = b"Transfer-Encoding: chunked"
        self._parser = httptools.HttpRequestParser(self)
        self._body_resumes = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % size)

    def _advance(self) -> None:
        if self._queue and not self._queue[0].begun:
            self._queue[0].start()

    def _spoilt(self, refused: Refused) -> None:
        """Hear nothing more from a client whose data cannot be read any further; answer what came
        before."""
        self._deaf = True
        self._refusal = refused
        if self._queue and self._queue[-1].awaits_body:
            last = self._queue[-1]
            if last.begun:
                last.refuse(refused)
                return
            self._queue.pop()
        if self._queue:
            self._advance()
        else:
            self._rest()

    def _rest(self) -> None:
        """Tell what was wrong after the last good request, or wait for the next one."""
        if self._refusal is not None:
            self.write(self._refusal.written(closes=True, bodiless=False))
            self._finish(lingers=True)
            return
        now_s = self._proxy.now()
        if self._head_since_s is not None:
            self._head_since_s = now_s
        self._due_s = now_s + self._proxy.limits.idle_s
        self._is_idle = True
        self._proxy.connections.idle(self)

    def _finish(self, *, lingers: bool) -> None:
        """End the connection once the answer is sent. A client that still sends is heard for a
        while, or it would not see the answer."""
        self._deaf = True
        self._queue.clear()
        transport, limits = self._transport, self._proxy.limits
        if transport is None:
            return
        now_s = self._proxy.now()
        if lingers:
            self._due_s = now_s + limits.linger_s
            if transport.can_write_eof() and not transport.is_closing():
                transport.write_eof()
        else:
            self._due_s = now_s + limits.stalled_s
            transport.close()

    def _time_is_up(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            self.abort()
            return
        self._due_s = self._proxy.now() + self._proxy.limits.linger_s
        transport.close()
