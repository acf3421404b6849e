"""A connection of HTTP/1.1 for people: requests in, answers out, one after the other, with a limit
on everything that the other end may make large or slow.

The parser is llhttp, the one of Node, in C; what it leaves to its user, `muster.proxy.heads` checks
for the proxy and the controller alike.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from typing import Any, cast
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from muster.app.http_connections import HttpConnections
from muster.app.http_exchange import HttpExchange
from muster.core.origins import origin_of
from muster.proxy.answers import Refused
from muster.proxy.heads import Header, RequestHead, read_request, unreadable

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 16 * 1024
"""The limit of a request's line and headers, and of what surrounds the pieces of its body."""
MAX_HEADERS = 100
MAX_PIPELINED = 100
"""Requests of a connection that wait for their answers; it ends with the last of so many."""
HEAD_TIMEOUT_S = 10.0
"""How long a request's line and headers may take, from their first byte on, or from the
connection's beginning; and the rest of a body that was answered before it had come."""
KEEP_ALIVE_S = 60.0
STALLED_S = 60.0
"""Seconds after which a reader that takes no part of its answer is cut off."""
LINGER_S = 2.0
"""How long the rest of a refused request is read, so that its sender reads why."""
MAX_LINGER_BYTES = 256 * 1024

_LATE_HEAD = "headers that did not come"
_STALLED = "readers that stalled"
_CUT_OFF = "answers cut off"
_NOT_HTTP = "not HTTP"


class HttpConnection(asyncio.Protocol):
    """A connection of a client.

    Args:
        app: answers the requests.
        server: the server's connections and tasks.

    Attributes:
        origin: what the connection's limits are counted by.
        is_paused: whether the client does not take its answer as fast as it comes.
    """

    def __init__(self, app: ASGIApp, server: ServerState, connections: HttpConnections) -> None:
        self.origin = ""
        self.is_paused = False
        self._app = app
        self._server = server
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._addresses: dict[str, Any] = {}  # the part of each scope that is the connection's
        self._queue: deque[HttpExchange] = deque()  # the first one is under way
        self._incoming: HttpExchange | None = None  # the one of which the body has not all come
        self._headers: list[Header] = []
        self._target = b""
        self._quiet_bytes = 0
        self._linger_bytes = 0
        self._held = b""  # the head of an answer that is not sent yet
        self._in_head = self._body_resumes = False
        self._is_last = self._has_ignored = False  # no request is taken after the last one
        self._deaf = self._reading_paused = False
        self._refusal: Refused | None = None
        self._due: asyncio.TimerHandle | None = None
        self._awaits_head = False
        self._stalled: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None

    # -- of exchanges ----------------------------------------------------------------------------

    @property
    def default_headers(self) -> list[Header]:
        """The headers of every answer."""
        return self._server.default_headers

    def write(self, data: bytes) -> None:
        """Send data, after the head that waits for it."""
        data, self._held = self._held + data, b""
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def write_head(self, head: bytes) -> None:
        """Send the head of an answer: with the first part of its body, if that comes at once, since
        each ``write`` is a call to the system."""
        self._held = head
        self._loop.call_soon(self.write, b"")

    async def drained(self) -> None:
        """Wait until the client has taken its answer so far, or is gone."""
        if self._drained is not None:
            await self._drained.wait()

    def flow(self) -> None:
        """Read from the client, or leave it, as the requests are dealt with."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        queue = self._queue
        pause = len(queue) > 1 or bool(queue and (self._deaf or queue[0].is_full))
        if pause != self._reading_paused:
            self._reading_paused = pause
            if pause:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def answered(self, exchange: HttpExchange) -> None:
        """Go on after a complete answer."""
        assert self._queue[0] is exchange, "requests are answered one after the other"
        self._queue.popleft()
        self._server.total_requests += 1
        if not exchange.keeps:
            self._finish()
        elif self._queue:
            self._begin(self._queue[0])
        else:
            self._rest()
        self.flow()

    def break_off(self, *, seems_whole: bool) -> None:
        """End the connection in the middle of an answer.

        Args:
            seems_whole: whether the answer ends with its connection, so that the client can tell by
                a reset alone that a part is missing.
        """
        self._connections.faults.note(_CUT_OFF)
        self.write(b"")
        if self._transport is None:
            return
        if seems_whole:
            own = self._transport.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
            return
        self._deaf = True
        self._close()

    # -- of the server ---------------------------------------------------------------------------

    def cut_off(self) -> None:
        """End the connection now; data that was not sent yet is lost."""
        if self._transport is not None:
            self._transport.abort()

    def shutdown(self) -> None:
        """End the connection with the answers to its requests, or now if there are none."""
        self._is_last = True
        if self._queue:
            self._queue[-1].keeps = False
        elif self._transport is not None:
            self._transport.close()

    # -- of the event loop -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none of asyncio's classes.
        self._transport = transport = cast(asyncio.Transport, transport)
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._addresses = {
            "client": (str(peer[0]), int(peer[1])) if peer else None,
            "server": (str(own[0]), int(own[1])) if own else None,
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        }
        self.origin = origin_of(str(peer[0])) if peer else ""
        self._await_head()
        self._server.connections.add(self)  # type: ignore[arg-type] # it asks for shutdown alone
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._deaf = True
        self._server.connections.discard(self)
        self._connections.closed(self)
        self._set_due(None)
        self.resume_writing()
        for exchange in self._queue:
            exchange.disconnect()
        self._incoming = None

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._linger_bytes += len(data)
            if self._linger_bytes > MAX_LINGER_BYTES:
                self.cut_off()
            return
        if not self._queue and not self._awaits_head:
            self._await_head()
        self._quiet_bytes += len(data)
        self._feed(data)
        if self._refusal is None and self._quiet_bytes > MAX_HEAD_BYTES:
            self._refusal = Refused(431, "what surrounds the request's body is too large")
        if self._refusal is not None:
            self._spoilt()
        self.flow()

    def pause_writing(self) -> None:
        self.is_paused = True
        self._drained = asyncio.Event()
        self._stalled = self._loop.call_later(STALLED_S, self._cut_off_for, _STALLED)

    def resume_writing(self) -> None:
        self.is_paused = False
        if self._drained is not None:
            self._drained.set()
        if self._stalled is not None:
            self._stalled.cancel()
        self._drained = self._stalled = None

    # -- of the parser ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._body_resumes:
            return
        if self._is_last:
            self._deaf = self._has_ignored = True
        self._headers, self._target = [], b""
        self._in_head = True

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer, which nobody asks for
            self._headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self._quiet_bytes = 0
        if self._body_resumes:
            self._body_resumes = False
            return
        self._in_head = False
        if not self._takes_more:
            return
        try:
            self._accept(self._read_head())
        except Refused as refused:
            self._refusal = refused

    def on_body(self, data: bytes) -> None:
        self._quiet_bytes = 0
        if self._incoming is not None:
            self._incoming.add(data)

    def on_message_complete(self) -> None:
        self._quiet_bytes = 0
        if self._parser.should_upgrade() and self._has_body:
            return  # see _resume_body
        if self._incoming is not None:
            self._incoming.complete()
            self._incoming = None
            if not self._queue and not self._deaf:  # it was answered before
                self._rest()

    # -- the rest --------------------------------------------------------------------------------

    @property
    def _takes_more(self) -> bool:
        """Whether what the parser finds is still of interest."""
        return self._refusal is None and not self._deaf

    def _read_head(self) -> RequestHead:
        """
        Raises:
            Refused: the head is too large, or not one that every server would read alike.
        """
        size = len(self._target)
        for name, value in self._headers:
            size += len(name) + len(value) + 4
        if size > MAX_HEAD_BYTES or len(self._headers) > MAX_HEADERS:
            raise Refused(431, "the request's head is too large")
        parser = self._parser
        version = parser.get_http_version()
        return read_request(parser.get_method(), self._target, version, self._headers)

    def _accept(self, head: RequestHead) -> None:
        """Take in a request whose head has come."""
        path, _, query = head.target.partition(b"?")
        text = path.decode("ascii")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1" if head.modern else "1.0",
            "method": head.method.decode("ascii"),
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            **self._addresses,
        }
        exchange = HttpExchange(self, scope, head)
        self._queue.append(exchange)
        self._incoming = exchange
        if len(self._queue) >= MAX_PIPELINED:
            exchange.keeps = False
        self._is_last = self._is_last or not exchange.keeps
        if len(self._queue) == 1:
            self._begin(exchange)

    def _begin(self, exchange: HttpExchange) -> None:
        self._set_due(None)
        self._connections.busy(self)
        task = self._loop.create_task(exchange.run(self._app))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # No protocol is switched to: the next request follows, or the body.
                data = data[upgrade.args[0] :]
                if self._incoming is not None and self._has_body:
                    self._resume_body()
            except httptools.HttpParserError as error:
                if isinstance(error, httptools.HttpParserCallbackError):
                    log.error("a request could not be taken in", exc_info=error)
                if self._is_last and self._incoming is None:
                    self._deaf = self._has_ignored = True
                elif self._refusal is None:
                    self._refusal = unreadable(error)
                return

    @property
    def _has_body(self) -> bool:
        """Whether the last request's head promises a body."""
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
            for name, value in self._headers
        )

    def _resume_body(self) -> None:
        """Have the body be read that the parser leaves out where another protocol is asked for. It
        would take it for a request of its own."""
        framing = (b"content-length", b"transfer-encoding")
        (line,) = (b"%b: %b" % each for each in self._headers if each[0] in framing)
        self._parser = httptools.HttpRequestParser(self)
        self._body_resumes = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % line)

    def _spoilt(self) -> None:
        """Hear nothing more from a client whose data cannot be read any further; answer what came
        whole before."""
        self._connections.faults.note(_NOT_HTTP)
        self._deaf = True
        if (cut_short := self._incoming) is not None:
            cut_short.disconnect()
            if cut_short.is_answering and not cut_short.is_answered:
                self.break_off(seems_whole=True)
                return
            if self._queue and self._queue[-1] is cut_short:
                self._queue.pop()
        if not self._queue:
            self._rest()

    def _rest(self) -> None:
        """Tell what was wrong after the last good request, or wait for the next one."""
        if self._refusal is not None:
            self.write(self._refusal.written(closes=True, bodiless=False))
            self._finish()
            return
        self._connections.idle(self)
        if self._in_head or self._incoming is not None:
            self._await_head()
        else:
            self._set_due(self._loop.call_later(KEEP_ALIVE_S, self._close))

    def _await_head(self) -> None:
        self._set_due(self._loop.call_later(HEAD_TIMEOUT_S, self._cut_off_for, _LATE_HEAD))
        self._awaits_head = True

    def _set_due(self, due: asyncio.TimerHandle | None) -> None:
        """Choose what happens unless the client does something before."""
        if self._due is not None:
            self._due.cancel()
        self._due = due
        self._awaits_head = False

    def _cut_off_for(self, fault: str) -> None:
        self._connections.faults.note(fault)
        self.cut_off()

    def _finish(self) -> None:
        """End the connection once the answer is sent. A client that still sends is heard for a
        while, or it would not see the answer."""
        self._deaf = True
        self._queue.clear()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._refusal is None and self._incoming is None and not self._has_ignored:
            self._close()
            return
        if transport.can_write_eof():
            transport.write_eof()
        self._set_due(self._loop.call_later(LINGER_S, self._close))

    def _close(self) -> None:
        """Close the connection once all data was sent, which a reader that takes nothing may delay
        for ever: it is cut off in time."""
        if self._transport is not None:
            self._transport.close()
            self._set_due(self._loop.call_later(STALLED_S, self.cut_off))
