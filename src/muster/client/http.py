"""HTTP for the blocking client, on sockets: httpx takes longer to import than a request takes."""

from __future__ import annotations

import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from muster.client.exchange import Answer, NoAnswer, Request, StreamBroke
from muster.client.http1 import HttpError, Link, Place, Response
from muster.client.reaching import problem_of

if TYPE_CHECKING:
    import socket
    import ssl

    from muster.client.connection import Connection

CONNECT_TIMEOUT_S = 5.0
MAX_IDLE = 8
"""Connections that are kept for the next requests."""
PIECE_BYTES = 64 * 1024


class Http:
    """Requests to one cluster over connections that are kept; for several threads at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        parts = urlsplit(connection.url)
        self._to = Place(
            parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        )
        self._prefix = parts.path.rstrip("/")
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            from muster.client.reaching import tls_context

            self._tls = tls_context(connection.ca)
        self._idle: list[Link] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def ask(self, request: Request) -> Answer:
        """
        Raises:
            NoAnswer, Unreachable: see ``Request``.
        """
        answer, body = self.open(request)
        return answer if answer.status >= 400 else _whole(answer, body)

    def open(self, request: Request) -> tuple[Answer, Body]:
        """Status and headers, and a reader of the content; an error's content has been read
        already.

        Raises:
            NoAnswer, Unreachable: see ``Request``.
        """
        token = self._connection.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        link = self._take()
        try:
            sock = link.sock
            if sock is None:
                sock = link.connect(min(request.timeout_s or CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_S))
            sock.settimeout(request.timeout_s)
            path = self._prefix + request.path
            response = link.ask(request.method, path, request.body, {**headers, **request.headers})
        except (OSError, HttpError) as error:
            link.close()
            raise problem_of(error, self._connection) from None
        except BaseException:  # Ctrl-C leaves half a request on the connection
            link.close()
            raise
        answer = Answer(response.status, response.headers, b"")
        body = Body(self, link, response)
        return (_whole(answer, body) if answer.status >= 400 else answer), body

    def _take(self) -> Link:
        """A connection that the server has not closed meanwhile, or a new one."""
        while True:
            with self._lock:
                link = self._idle.pop() if self._idle else None
            if link is None:
                return self._new()
            if not _readable(link.sock):
                return link
            link.close()

    def _new(self) -> Link:
        # A proxy for the outside world must not stand before this machine's own cluster.
        is_outside = self._tls is not None and not self._connection.loopback
        return Link(self._to, self._tls, _proxy(self._to.host) if is_outside else None)

    def _give_back(self, link: Link) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(link)
                return
        link.close()


class Body:
    """The content of one answer."""

    def __init__(self, http: Http, link: Link, response: Response) -> None:
        self._http = http
        self._link: Link | None = link
        self._response = response
        self._keeps = not response.closes

    def read(self) -> bytes:
        """The next piece; empty at the end.

        Raises:
            StreamBroke: the connection ended before the content did.
        """
        try:
            piece = self._response.read1(PIECE_BYTES)
        except (OSError, HttpError) as error:
            self._keeps = False
            raise StreamBroke(str(error) or type(error).__name__) from None
        if not piece:
            if self._response.length:
                self._keeps = False
                raise StreamBroke("the connection ended in the middle of the answer")
            self._done()
        return piece

    def close(self) -> None:
        """Close the connection, where the content was not read to its end."""
        if self._link is not None:
            if not self._response.ended:
                self._keeps = False
            self._done()

    def _done(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        self._response.close()
        if self._keeps:
            self._http._give_back(link)
        else:
            link.close()


def _whole(answer: Answer, body: Body) -> Answer:
    """The answer with its content.

    Raises:
        NoAnswer: the connection ended before the content did.
    """
    try:
        pieces = [*iter(body.read, b"")]
    except StreamBroke as error:
        raise NoAnswer(str(error)) from None
    finally:
        body.close()
    return msgspec.structs.replace(answer, content=b"".join(pieces))


def _readable(sock: socket.socket | None) -> bool:
    """Whether the server has closed an idle connection, or sent something unasked."""
    if sock is None:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _proxy(host: str) -> Place | None:
    """The proxy that the environment names for this host."""
    from urllib.request import getproxies, proxy_bypass

    if not (proxy := getproxies().get("https")) or proxy_bypass(host):
        return None
    with suppress(ValueError):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        if parts.hostname:
            return Place(parts.hostname, parts.port or 443)
    return None
