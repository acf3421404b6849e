"""HTTP/1.1 over one connection (RFC 9112), as far as the blocking client needs it.

``http.client`` reads the same. It imports ``email`` for the headers, and ``ssl`` also where no TLS
is spoken: that takes longer than a request does.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import ssl
    from io import BufferedReader

_MAX_LINE_BYTES = 65_536
_MAX_HEADERS = 100
_WITH_CONTENT = ("POST", "PUT", "PATCH")
_WITHOUT_CONTENT = (204, 304)
_INTERIM = range(100, 200)
_OK = 200


class HttpError(Exception):
    """An answer that is no HTTP, or ended in the middle; or a request that cannot be written so."""


class NoStatusLine(HttpError):
    """An answer that does not begin as one."""


class Place(NamedTuple):
    """A host, and a port of it."""

    host: str
    port: int

    def authority(self, usual_port: int | None = None) -> str:
        """As it stands in a URL; without the port where that is the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == usual_port else f"{host}:{self.port}"


class Link:
    """A connection to a server, for one request at a time.

    Args:
        tls: with which the server is spoken to; None is without TLS.
        proxy: through which it is reached (CONNECT, RFC 9110, 9.3.6).
    """

    def __init__(
        self, to: Place, tls: ssl.SSLContext | None = None, proxy: Place | None = None
    ) -> None:
        self._to = to
        self._tls = tls
        self._proxy = proxy
        self.sock: socket.socket | None = None

    def connect(self, timeout_s: float) -> socket.socket:
        """
        Raises:
            OSError: it cannot be reached in time, or is not trusted.
            HttpError: the proxy does not speak HTTP.
        """
        host, port = self._proxy or self._to
        # Text is looked up by way of a codec that takes long to import; these bytes are the same.
        name: Any = host.encode() if host.isascii() else host
        self.sock = sock = socket.create_connection((name, port), timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._proxy is not None:
            self._open_tunnel(sock)
        if self._tls is not None:
            self.sock = sock = self._tls.wrap_socket(sock, server_hostname=self._to.host)
        return sock

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Response:
        """Send a request over the open connection; its answer, of which the content is not read.

        Args:
            path: with its query, escaped.

        Raises:
            OSError: the connection broke, or the answer took too long.
            HttpError: what came is no answer.
        """
        assert self.sock is not None, "it is connected"
        usual_port = 80 if self._tls is None else 443
        sent = {"Host": self._to.authority(usual_port), "Accept-Encoding": "identity"}
        if body is not None or method in _WITH_CONTENT:
            sent["Content-Length"] = str(len(body or b""))
        self.sock.sendall(_head(method, path, {**sent, **headers}) + (body or b""))
        return Response(self.sock)

    def _open_tunnel(self, sock: socket.socket) -> None:
        """
        Raises:
            OSError: the proxy refuses, or the connection broke.
            HttpError: it does not speak HTTP.
        """
        to = self._to.authority()
        sock.sendall(_head("CONNECT", to, {"Host": to}))
        answer = Response(sock)
        answer.close()
        if answer.status != _OK:
            self.close()
            said = f"{answer.status} {answer.phrase}".strip()
            raise OSError(f"Tunnel connection failed: {said}")


class Response:
    """One answer: its status and headers are read at once, its content piece by piece.

    Attributes:
        phrase: the words after the status.
        headers: by their names in lower case; of several of one name the last.
        length: how many bytes of the content are to come; None where only its end tells.
        closes: whether the connection is good for no other request afterwards.
        ended: whether all of the content has been read, or it was closed.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._stream: BufferedReader = sock.makefile("rb")
        self.ended = False
        try:
            version = self._read_head()
        except BaseException:
            self.close()
            raise
        connection = self.headers.get("connection", "").lower()
        self.closes = "keep-alive" not in connection if version == 10 else "close" in connection
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self._chunk_left: int | None = None  # bytes of the present chunk; None before the first
        self.length: int | None = None
        if self.status in _WITHOUT_CONTENT:
            self.length = 0
        elif not self._chunked:
            self.length = _length(self.headers.get("content-length"))
            self.closes |= self.length is None

    def read1(self, most_bytes: int) -> bytes:
        """The next piece of the content, of at most so many bytes; empty at its end.

        Raises:
            OSError: the connection broke, or nothing came in time.
            HttpError: it ended in the middle of the content, where that can be known.
        """
        if self.ended:
            return b""
        if self._chunked:
            piece = self._of_chunk(most_bytes)
        elif self.length is None:
            piece = self._stream.read1(most_bytes)
        else:
            piece = self._stream.read1(min(most_bytes, self.length)) if self.length else b""
            self.length -= len(piece)
        if not piece or self.length == 0:
            self.close()
        return piece

    def close(self) -> None:
        self.ended = True
        self._stream.close()

    def _read_head(self) -> int:
        """The version, 10 or 11; the status and headers are kept. Answers that another one follows
        are left out (RFC 9110, 15.2).

        Raises:
            OSError, HttpError: as ``Link.ask``.
        """
        while True:
            version, self.status, self.phrase = self._status_line()
            self.headers = self._read_headers()
            if self.status not in _INTERIM:
                return version

    def _status_line(self) -> tuple[int, int, str]:
        """The version, 10 or 11, the status and its phrase.

        Raises:
            ConnectionResetError: the connection ended before an answer began.
            NoStatusLine: something else came.
        """
        line = self._line()
        if not line:
            raise ConnectionResetError("Remote end closed connection without response")
        version, _, rest = line.strip().partition(" ")
        status, _, phrase = rest.strip().partition(" ")
        if not version.startswith("HTTP/1.") or not (len(status) == 3 and status.isdecimal()):
            raise NoStatusLine(line.strip())
        return (10 if version == "HTTP/1.0" else 11), int(status), phrase.strip()

    def _read_headers(self) -> dict[str, str]:
        """
        Raises:
            HttpError: there are too many.
        """
        found: dict[str, str] = {}
        for _ in range(_MAX_HEADERS + 1):
            line = self._line()
            if line in ("\r\n", "\n", ""):
                return found
            name, _, value = line.partition(":")
            found[name.strip().lower()] = value.strip()
        raise HttpError(f"got more than {_MAX_HEADERS} headers")

    def _of_chunk(self, most_bytes: int) -> bytes:
        """A piece of the present chunk, or of the next one; empty after the last (RFC 9112,
        7.1)."""
        if not self._chunk_left:
            if self._chunk_left == 0:
                self._line()  # the end of the line after a chunk
            size = self._line().partition(";")[0].strip()
            if not size or size.strip("0123456789abcdefABCDEF"):
                raise HttpError("the connection ended in the middle of the answer")
            self._chunk_left = int(size, 16)
            if not self._chunk_left:
                self._read_headers()
                return b""
        piece = self._stream.read1(min(most_bytes, self._chunk_left))
        if not piece:
            raise HttpError("the connection ended in the middle of the answer")
        self._chunk_left -= len(piece)
        return piece

    def _line(self) -> str:
        """The next line with its end; empty at the end of the connection.

        Raises:
            HttpError: it is too long.
        """
        line = self._stream.readline(_MAX_LINE_BYTES + 1)
        if len(line) > _MAX_LINE_BYTES:
            raise HttpError(f"got more than {_MAX_LINE_BYTES} bytes when reading a line")
        return line.decode("latin-1")


def _length(text: str | None) -> int | None:
    """The value of a Content-Length; None if there is none that counts."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """A request without its content.

    Raises:
        HttpError: a part of it would be read as something else.
    """
    if not path.isascii() or any(each <= " " or each == "\x7f" for each in path):
        raise HttpError(f"the path {path!r} has characters that no path has")
    lines = [f"{method} {path} HTTP/1.1"]
    for name, value in headers.items():
        if "\r" in value or "\n" in value:
            raise HttpError(f"the header {name} has more than one line")
        lines.append(f"{name}: {value}")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1")
