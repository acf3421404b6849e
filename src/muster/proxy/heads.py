"""Heads of requests and answers: what is refused, what is passed on, what is added.

The parser has refused what no header may hold (control characters, folded lines, bad names, lengths
that contradict each other); here is what the parser leaves to its user.
"""

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import httptools

from muster.core.serving.secret import SECRET_HEADER
from muster.proxy.answers import Refused

Header = tuple[bytes, bytes]

VIA = b"1.1 muster-" + secrets.token_hex(8).encode()
"""This process in the header `Via` (RFC 9110, 7.6.3): a request that names it was here before."""

_HOST = re.compile(rb"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.DOTALL)
_TARGET = re.compile(rb"/[!-\"$-~]*", re.DOTALL)
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(.*)", re.DOTALL | re.IGNORECASE)
_REASON = re.compile(rb"[\t -~\x80-\xff]{0,200}", re.DOTALL)

TOKEN_HEADER = b"x-muster-token"
"""The header of a caller's token, in lower case, where ``Authorization`` is the service's own."""

_CONNECTION = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)
"""Headers that are about one connection, not about the request."""
_REQUEST = _CONNECTION | {
    b"host",
    b"content-length",
    b"expect",
    b"authorization",
    SECRET_HEADER.lower().encode(),
    TOKEN_HEADER,
    b"proxy",  # CGI would make the variable HTTP_PROXY of it
    b"forwarded",
    b"via",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"x-forwarded-prefix",
    b"x-forwarded-proto",
    b"x-forwarded-server",
    b"x-real-ip",
}
"""Headers of requests that are not passed on as they come."""
_ANSWER = _CONNECTION | {b"content-length"}

_REFUSED_METHODS = frozenset((b"CONNECT", b"TRACE"))
_READS = frozenset((b"GET", b"HEAD"))
_IDEMPOTENT = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))


@dataclass(slots=True)
class RequestHead:
    """
    Args:
        target: path and query.
        host: empty where an old client sent none.
        modern: whether the client speaks HTTP/1.1.
        keeps: whether the client keeps its connection.
        length: of the body, where it is told; ``chunked`` otherwise, if there is a body.
        expects: whether the client waits for "100 Continue" before it sends the body.
        websocket: whether the client asks for one.
        authorization: the value of that header.
        own_token: the value of ``TOKEN_HEADER``.
        lines: the headers that are passed on, as lines.
    """

    method: bytes
    target: bytes
    host: bytes
    modern: bool
    keeps: bool
    length: int | None
    chunked: bool
    expects: bool
    websocket: bool
    authorization: bytes | None
    own_token: bytes | None
    lines: list[bytes]
    headers: Sequence[Header]

    @property
    def idempotent(self) -> bool:
        """Whether a replica may get the request twice."""
        return self.method in _IDEMPOTENT and not self.websocket

    @property
    def is_read(self) -> bool:
        """Whether it reads a page, or its head, and follows where an answer sends it."""
        return self.method in _READS and not self.websocket

    @property
    def token(self) -> str | None:
        """The caller's token: in a header of its own, or else in ``authorization``."""
        return self._bearer if self.own_token is None else self.own_token.decode("latin-1")

    @property
    def authorization_of_service(self) -> bytes | None:
        """The part of ``authorization`` that a replica gets whoever the caller is: all of it where
        the token is in a header of its own, unless it is that token again."""
        of_service = self.own_token is not None and self._bearer != self.token
        return self.authorization if of_service else None

    @property
    def _bearer(self) -> str | None:
        words = (self.authorization or b"").split(None, 1)  # by a tab, too
        if len(words) < 2 or words[0].lower() != b"bearer":
            return None
        return words[1].decode("latin-1")

    @property
    def hostname(self) -> str:
        """The host without its port and the dot that may end it, in lower case."""
        host = re.sub(rb":[0-9]*\Z", b"", self.host).decode("latin-1")
        return host.lower().removesuffix(".")

    def value_of(self, name: bytes) -> bytes | None:
        """The first value of a header; ``name`` in lower case."""
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return None


@dataclass(slots=True)
class AnswerHead:
    """
    Args:
        length: of the body, where it is told.
        chunked: whether the body tells its end itself; with neither it goes on until the connection
            ends.
        bodiless: whether no body follows, whatever the headers say.
        keeps: whether the replica keeps its connection.
        lines: the headers that are passed on, as lines.
    """

    status: int
    reason: bytes
    length: int | None
    chunked: bool
    bodiless: bool
    keeps: bool
    lines: list[bytes]

    @property
    def ends_with_connection(self) -> bool:
        return not self.bodiless and self.length is None and not self.chunked


def unreadable(error: httptools.HttpParserError) -> Refused:
    """The refusal of bytes that the parser does not take for a request, whose words are for the
    authors of parsers."""
    expected = "the request or its body is not well-formed HTTP/1.1"
    match error:
        case httptools.HttpParserInvalidMethodError():
            expected = "expected a request of HTTP/1.1, which begins with a method, such as GET"
        case httptools.HttpParserInvalidURLError():
            expected = "expected a path that begins with / after the method"
    return Refused(400, expected)


def read_request(
    method: bytes, target: bytes, version: str, headers: Sequence[Header]
) -> RequestHead:
    """
    Raises:
        Refused: the head is not one that every server would read alike.
    """
    if method in _REFUSED_METHODS:
        raise Refused(405, f"{method.decode()} is not passed on")
    if version not in ("1.1", "1.0"):
        raise Refused(505, f"HTTP/{version} is not spoken here: expected HTTP/1.1")
    modern = version == "1.1"
    lines: list[bytes] = []
    hosts: list[bytes] = []
    connection: set[bytes] = set()
    length, chunked, expects, upgrade = None, False, False, b""
    authorization, own_token = None, None
    for name, value in headers:
        key = name.lower()
        if key not in _REQUEST:
            # A server that makes variables of headers would take it for the other one.
            if b"_" not in key or key.replace(b"_", b"-") not in _REQUEST:
                lines.append(b"%b: %b\r\n" % (name, value))
        elif key == b"host":
            hosts.append(value.strip())
        elif key == b"connection":
            connection.update(_words(value))
        elif key == b"content-length":
            length = int(value)
        elif key == b"transfer-encoding":
            if value.strip().lower() != b"chunked" or not modern:
                raise Refused(501, "expected no Transfer-Encoding but chunked")
            if chunked:
                raise Refused(400, "expected one Transfer-Encoding")
            chunked = True
        elif key == b"authorization":
            if authorization is not None:
                raise Refused(400, "expected one Authorization")
            authorization = value.strip()
        elif key == TOKEN_HEADER:
            if own_token is not None:
                raise Refused(400, "expected one X-Muster-Token")
            own_token = value.strip()
        elif key == b"expect":
            if value.strip().lower() != b"100-continue":
                raise Refused(417, "expected no Expect but 100-continue")
            expects = modern
        elif key == b"via":
            if VIA in value:
                raise Refused(508, "a replica has the proxy's own address, or hands requests to it")
            lines.append(b"%b: %b\r\n" % (name, value))
        elif key == b"upgrade":
            upgrade = value.strip().lower()
    if chunked and length is not None:
        raise Refused(400, "Content-Length and Transfer-Encoding contradict each other")
    if len(hosts) > 1 or (modern and not hosts) or (hosts and not _HOST.fullmatch(hosts[0])):
        raise Refused(400, "expected one Host, which names a host")
    host = hosts[0] if hosts else b""
    websocket = upgrade == b"websocket" and b"upgrade" in connection
    if websocket and (method != b"GET" or chunked or length or not modern):
        raise Refused(400, "a web socket is asked for by GET, without a body")
    return RequestHead(
        method=method,
        target=_origin(target, host),
        host=host,
        modern=modern,
        keeps=b"close" not in connection and (modern or b"keep-alive" in connection),
        length=length,
        chunked=chunked,
        expects=expects and (chunked or bool(length)),
        websocket=websocket,
        authorization=authorization,
        own_token=own_token,
        lines=_without(lines, connection),
        headers=headers,
    )


def _origin(target: bytes, host: bytes) -> bytes:
    """Path and query of a target, which may be a whole URL.

    Raises:
        Refused: it names another host than the header, or no path.
    """
    if (whole := _ABSOLUTE.fullmatch(target)) is not None:
        if whole[1].lower() != host.lower():
            raise Refused(400, "the URL and Host name different hosts")
        target = whole[2] if whole[2].startswith(b"/") else b"/" + whole[2]
    if not _TARGET.fullmatch(target):
        raise Refused(400, "expected a path that begins with / and has no fragment")
    return target


def forwarded(
    head: RequestHead, target: bytes, host: bytes, prefix: bytes, client: bytes, scheme: bytes,
    authorization: bytes | None, secret: str = "",
) -> bytes:  # fmt: skip
    """The head as a replica gets it.

    Args:
        target: path and query, without ``prefix``, under which the client reaches the service.
        host: for a request that names none.
        client: its address.
        scheme: by which the client came, http or https.
        authorization: passed on, unless it was meant for the proxy.
        secret: that of the deployment; empty for none.
    """
    own = head.host or host
    words = [head.method, b" ", target, b" HTTP/1.1\r\nHost: ", own, b"\r\n", *head.lines]
    if authorization is not None:
        words += (b"Authorization: ", authorization, b"\r\n")
    if secret:
        words.append(f"{SECRET_HEADER}: {secret}\r\n".encode())
    if head.chunked:
        words.append(b"Transfer-Encoding: chunked\r\n")
    elif head.length is not None:
        words.append(b"Content-Length: %d\r\n" % head.length)
    if head.websocket:
        words.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
    if prefix:
        words += (b"X-Forwarded-Prefix: ", prefix, b"\r\n")
    words += (b"Via: ", VIA, b"\r\nX-Forwarded-For: ", client, b"\r\nX-Forwarded-Proto: ", scheme)
    words += (b"\r\nX-Forwarded-Host: ", own, b"\r\n\r\n")
    return b"".join(words)


def read_answer(
    status: int, reason: bytes, version: str, headers: Iterable[Header], method: bytes
) -> AnswerHead:
    """
    Raises:
        Refused: no two clients would read the answer alike. The text follows "the replica".
    """
    if status < 100:
        raise Refused(502, "sent an answer without a status")
    lines: list[bytes] = []
    connection: set[bytes] = set()
    length, chunked = None, False
    for name, value in headers:
        key = name.lower()
        if key not in _ANSWER:
            lines.append(b"%b: %b\r\n" % (name, value))
        elif key == b"connection":
            connection.update(_words(value))
        elif key == b"content-length":
            length = int(value)
        elif key == b"transfer-encoding":
            if value.strip().lower() != b"chunked":
                raise Refused(502, "sent an answer with an unknown Transfer-Encoding")
            chunked = True
    if chunked and length is not None:
        raise Refused(502, "sent an answer with two lengths")
    modern = version == "1.1"
    return AnswerHead(
        status=status,
        reason=reason if _REASON.fullmatch(reason) else b"",
        length=length,
        chunked=chunked,
        bodiless=method == b"HEAD" or status < 200 or status in (204, 304),
        keeps=b"close" not in connection and (modern or b"keep-alive" in connection),
        lines=_without(lines, connection),
    )


def answered(head: AnswerHead, *, modern: bool, closes: bool) -> tuple[bytes, bool]:
    """The head of an answer as the client gets it, and whether its body is sent in chunks.

    Args:
        modern: whether the client speaks HTTP/1.1.
        closes: whether the connection ends after the answer.
    """
    words = [b"HTTP/1.1 %d %b\r\n" % (head.status, head.reason), *head.lines]
    chunks = False
    if head.length is not None and head.status != 204:
        words.append(b"Content-Length: %d\r\n" % head.length)
    elif not head.bodiless and modern:
        words.append(b"Transfer-Encoding: chunked\r\n")
        chunks = True
    if closes:
        words.append(b"Connection: close\r\n")
    elif not modern:
        words.append(b"Connection: keep-alive\r\n")
    words.append(b"\r\n")
    return b"".join(words), chunks


def switched(head: AnswerHead) -> bytes:
    """The head of the answer that opens a web socket."""
    first = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    return b"".join((first, *head.lines, b"\r\n"))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def _words(value: bytes) -> set[bytes]:
    return {word.strip().lower() for word in value.split(b",")}


def _without(lines: list[bytes], connection: set[bytes]) -> list[bytes]:
    """The lines but those that ``Connection`` names, which are about the connection as well."""
    named = connection - {b"close", b"keep-alive", b"upgrade", b""}
    if not named:
        return lines
    return [line for line in lines if line.partition(b":")[0].lower() not in named]
