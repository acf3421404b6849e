"""One request over HTTP/1.1 with its answer, as an ASGI application receives and sends them."""

from __future__ import annotations

import asyncio
import http
import logging
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message

from muster.proxy.answers import CONTINUE, Refused
from muster.proxy.heads import LAST_CHUNK, Header, RequestHead, chunk

if TYPE_CHECKING:
    from muster.app.http_connection import HttpConnection

log = logging.getLogger(__name__)

MAX_UNREAD_BYTES = 64 * 1024
"""Bytes of a body that are read ahead of the application."""
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
}
_BODILESS = frozenset({204, 304})
_FAILED = Refused(500, "the request failed inside the controller; its log says more")


class HttpExchange:
    """A request and its answer.

    Args:
        scope: what the application is told of the request.

    Attributes:
        keeps: whether the connection goes on after the answer.
        is_answering, is_answered: whether the answer has begun, and whether all of it was sent.
    """

    __slots__ = (
        "_asks_head",
        "_awaits_continue",
        "_body",
        "_chunks",
        "_connection",
        "_disconnected",
        "_is_bodiless",
        "_is_complete",
        "_is_modern",
        "_left_bytes",
        "_news",
        "is_answered",
        "is_answering",
        "keeps",
        "scope",
    )

    def __init__(
        self, connection: HttpConnection, scope: dict[str, Any], head: RequestHead
    ) -> None:
        self.scope = scope
        self.keeps = head.keeps and head.modern
        self.is_answering = self.is_answered = False
        self._connection = connection
        self._is_modern = head.modern
        self._awaits_continue = head.expects
        self._is_bodiless = self._asks_head = head.method == b"HEAD"
        self._body = bytearray()
        self._is_complete = self._disconnected = self._chunks = False
        self._left_bytes: int | None = None  # of an answer whose length was told
        self._news = asyncio.Event()  # for the application that waits for the request

    @property
    def is_full(self) -> bool:
        """Whether the application is to read before more of the body is."""
        return len(self._body) > MAX_UNREAD_BYTES

    async def run(self, app: ASGIApp) -> None:
        """Have the application answer."""
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:  # cancelled, too: the server waits no longer
            log.error("%s %s failed", self.scope["method"], self.scope["path"], exc_info=error)
            self._fail()
        else:
            if self.is_answered or self._disconnected:
                return
            if not self.is_answering:
                log.error("%s %s got no answer", self.scope["method"], self.scope["path"])
            self._fail()

    def _fail(self) -> None:
        """Say that there is no answer, or break off the answer that has begun."""
        if self.is_answered or self._disconnected:
            return
        if self.is_answering:
            has_end = self._chunks or self._left_bytes is not None
            self._connection.break_off(seems_whole=not has_end)
            return
        self._connection.write(_FAILED.written(closes=True, bodiless=self._is_bodiless))
        self.keeps = False
        self.is_answering = True
        self._end()

    # -- of the connection -----------------------------------------------------------------------

    def add(self, data: bytes) -> None:
        """Take a part of the body."""
        if not self.is_answered:
            self._body += data
            self._news.set()

    def complete(self) -> None:
        """Note that all of the request has come."""
        self._is_complete = True
        self._news.set()

    def disconnect(self) -> None:
        """Note that the client is gone."""
        self._disconnected = True
        self._news.set()

    # -- of the application ----------------------------------------------------------------------

    async def receive(self) -> Message:
        """A part of the request, or the news that nobody waits for more of the answer."""
        if not (self._disconnected or self.is_answered):
            if self._awaits_continue:
                self._awaits_continue = False
                self._connection.write(CONTINUE)
            await self._news.wait()
            self._news.clear()
        if self._disconnected or self.is_answered:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        self._connection.flow()
        return {"type": "http.request", "body": body, "more_body": not self._is_complete}

    async def send(self, message: Message) -> None:
        """Send the head of the answer, or a part of its body, as the client takes them.

        Raises:
            RuntimeError: the answer would not be HTTP.
        """
        if self._connection.is_paused:
            await self._connection.drained()
        if self._disconnected or (self._asks_head and self.is_answered):
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._write(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"no message of an answer: {message['type']}")

    def _start(self, status: int, headers: Iterable[Header]) -> None:
        if self.is_answering:
            raise RuntimeError("an answer has one head")
        lines = [_STATUS_LINES[status]]
        for name, value in chain(self._connection.default_headers, headers):
            if name == b"connection":
                self.keeps = self.keeps and b"close" not in value.lower()
                continue
            if name == b"content-length":
                self._left_bytes = int(value)
            lines.append(b"%b: %b\r\n" % (name, value))
        self._is_bodiless = self._is_bodiless or status in _BODILESS
        if self._left_bytes is None and not self._is_bodiless:
            self._chunks = self._is_modern
            if self._chunks:
                lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keeps:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines) or b"\0" in head:
            self._left_bytes, self._chunks = None, False
            raise RuntimeError("a header of an answer is one line")
        self.is_answering = True
        self._awaits_continue = False
        self._connection.write_head(head)
        if self._asks_head:  # what follows may have no end, as events have none
            self._connection.write(b"")
            self._end()

    def _write(self, data: bytes, *, more: bool) -> None:
        if not self.is_answering or self.is_answered:
            raise RuntimeError("the body of an answer comes after its head, and once")
        if self._is_bodiless:
            self._connection.write(b"")
        elif self._chunks:
            last = b"" if more else LAST_CHUNK
            self._connection.write(chunk(data) + last if data else last)
        else:
            if self._left_bytes is not None:
                self._left_bytes -= len(data)
                if self._left_bytes < 0 or (self._left_bytes and not more):
                    raise RuntimeError("the body of an answer is not as long as its head says")
            self._connection.write(data)
        if not more:
            self._end()

    def _end(self) -> None:
        self.is_answered = True
        self._news.set()
        self._connection.answered(self)
