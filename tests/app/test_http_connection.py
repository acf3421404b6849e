"""HTTP as the controller reads and writes it: what is refused, and how requests and answers of one
connection follow each other."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from starlette.types import Receive, Scope, Send
from tests.bad_requests import BAD_CHUNKS, BAD_HEADS, ENDLESS, GOOD

from muster.app import http_connection
from muster.app.http_connection import MAX_HEAD_BYTES, MAX_PIPELINED
from muster.app.http_server import serving

POST = "POST /web/ HTTP/1.1\r\nHost: a\r\n"
LAST = "Connection: close\r\n\r\n"
SOON_S = 0.3
LIMIT_S = 10.0


@dataclass
class Site:
    """An application that answers a request with the body that it read, and keeps the requests
    that it read whole."""

    port: int = 0
    whole: list[tuple[Scope, bytes]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", scope["path"] != "/early"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        self.whole.append((scope, body))
        headers = [(b"x-path", scope["raw_path"])]
        if scope["path"] != "/stream":
            headers.append((b"content-length", b"%d" % len(body)))
        if scope["path"] == "/split":
            headers.append((b"x-split", b"a\r\nb: c"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def say(self, *parts: str | bytes) -> bytes:
        """All that comes back, to the end of the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                writer.write(part.encode("latin-1") if isinstance(part, str) else part)
                await writer.drain()
                await asyncio.sleep(0.01 if len(parts) > 1 else 0)
            async with asyncio.timeout(LIMIT_S):
                return await reader.read()
        finally:
            writer.close()

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.whole]


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    listener = socket.create_server(("127.0.0.1", 0))
    site = Site(listener.getsockname()[1])
    async with serving(site, listener, None):
        yield site


def statuses(data: bytes) -> list[int]:
    return [int(each[:3]) for each in data.split(b"HTTP/1.1 ")[1:]]


async def test_request_that_is_read_in_two_ways_is_refused_and_the_connection_ends() -> None:
    """A second request, hidden behind the first, is never carried out."""
    hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
    async with site() as web:
        for request, status in BAD_HEADS:
            data = await web.say(request + hidden)
            assert statuses(data) == [status], request
            assert b"connection: close" in data.lower()
            assert data.count(b'{"error"') == 1
            assert web.whole == [], request


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("\x16\x03\x01\x02\x00\x01", "expected a request of HTTP/1.1, which begins with a method"),
        ("hello\r\n\r\n", "expected a request of HTTP/1.1, which begins with a method"),
        ("GET web HTTP/1.1\r\nHost: a\r\n\r\n", "expected a path that begins with / after"),
        (GOOD + "X y: a\r\n\r\n", "the request or its body is not well-formed HTTP/1.1"),
        (GOOD + "Content-Length: x\r\n\r\n", "the request or its body is not well-formed"),
    ],
)
async def test_what_is_no_request_is_refused_in_words_for_people(request_: str, said: str) -> None:
    async with site() as web:
        data = await web.say(request_)
    assert statuses(data) == [400]
    assert said.encode() in data


async def test_method_that_is_never_served_is_refused_with_those_that_are() -> None:
    async with site() as web:
        data = await web.say("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert statuses(data) == [405]
    assert b"Allow: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT\r\n" in data


async def test_chunk_that_cannot_be_read_ends_the_request() -> None:
    async with site() as web:
        for body in BAD_CHUNKS:
            data = await web.say(POST + "Transfer-Encoding: chunked\r\n\r\n" + body)
            assert statuses(data) == [400], body
            assert web.whole == [], body


@pytest.mark.parametrize("endless", ENDLESS)
async def test_what_surrounds_a_body_has_an_end(endless: str) -> None:
    async with site() as web:
        head = POST + "Transfer-Encoding: chunked\r\n\r\n" + endless
        data = await web.say(head, *["a" * 5_000] * 8)
    assert statuses(data) == [431]
    assert web.whole == []


@pytest.mark.parametrize("size", [MAX_HEAD_BYTES - 200, MAX_HEAD_BYTES + 1])
async def test_head_is_as_large_as_its_limit_at_most(size: int) -> None:
    """In one piece, and in many."""
    head = GOOD + "X: " + "a" * size + "\r\n" + LAST
    expected = [200] if size < MAX_HEAD_BYTES else [431]
    async with site() as web:
        assert statuses(await web.say(head)) == expected
        pieces = [head[at : at + 4_000] for at in range(0, len(head), 4_000)]
        assert statuses(await web.say(*pieces)) == expected


async def test_trailer_is_no_header() -> None:
    """A token that came after the body would be one that nobody checked."""
    trailer = "3\r\nabc\r\n0\r\nAuthorization: Bearer late\r\n\r\n"
    async with site() as web:
        data = await web.say(POST + "Transfer-Encoding: chunked\r\n" + LAST + trailer)
    assert statuses(data) == [200]
    ((scope, body),) = web.whole
    assert body == b"abc"
    assert b"authorization" not in dict(scope["headers"])


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
@pytest.mark.parametrize(
    ("framing", "body"),
    [("Content-Length: 24\r\n", "GET /hidden HTTP/1.1\r\n\r\n"),
     ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n")],
)  # fmt: skip
async def test_body_is_read_where_another_protocol_is_asked_for(
    upgrade: str, framing: str, body: str
) -> None:
    """It is not taken for a request of its own."""
    asks = f"Connection: upgrade\r\nUpgrade: {upgrade}\r\n"
    async with site() as web:
        data = await web.say(POST + asks + framing + "\r\n" + body + GOOD + LAST)
    if upgrade == "websocket":  # is asked for by GET
        assert statuses(data) == [400]
        assert web.whole == []
        return
    assert statuses(data) == [200, 200]
    assert web.bodies == [b"abc" if "chunked" in framing else body.encode(), b""]


async def test_request_without_a_body_that_asks_for_http2_is_answered() -> None:
    """As `curl --http2` does."""
    asks = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    async with site() as web:
        assert statuses(await web.say(GOOD + asks + GOOD + LAST)) == [200, 200]


async def test_requests_in_one_piece_are_answered_in_their_order() -> None:
    asked = [f"GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n" for number in range(5)]
    async with site() as web:
        data = await web.say("".join(asked) + GOOD + LAST)
    assert statuses(data) == [200] * 6
    places = [data.index(f"x-path: /{number}".encode()) for number in range(5)]
    assert places == sorted(places)


async def test_connection_ends_with_the_last_of_too_many_requests_at_once() -> None:
    async with site() as web:
        data = await web.say((GOOD + "\r\n") * (3 * MAX_PIPELINED))
    assert len(statuses(data)) == MAX_PIPELINED == len(web.whole)
    assert data.count(b"connection: close") == 1


async def test_nothing_is_taken_after_the_last_request() -> None:
    async with site() as web:
        assert statuses(await web.say(GOOD + LAST + GOOD + "\r\n")) == [200]
        assert statuses(await web.say(GOOD + LAST, GOOD + "\r\n")) == [200]
    assert len(web.whole) == 2


async def test_good_request_before_a_bad_one_is_answered_first() -> None:
    async with site() as web:
        assert statuses(await web.say(GOOD + "\r\n" + "no HTTP\r\n\r\n")) == [200, 400]


async def test_large_body_is_read_as_the_application_takes_it() -> None:
    body = bytes(range(256)) * 4_096
    async with site() as web:
        data = await web.say(f"{POST}Content-Length: {len(body)}\r\n{LAST}".encode() + body)
    assert web.bodies == [body]
    assert data.endswith(body)


async def test_client_that_waits_for_it_is_told_to_send_its_body() -> None:
    async with site() as web:
        head = POST + "Expect: 100-continue\r\nContent-Length: 3\r\n" + LAST
        data = await web.say(head, "abc")
    assert data.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
    assert data.endswith(b"\r\n\r\nabc")


async def test_stream_is_sent_in_chunks_to_those_who_read_them() -> None:
    stream = "POST /stream HTTP/{}\r\nHost: a\r\nContent-Length: 3\r\n{}\r\nabc"
    async with site() as web:
        modern = await web.say(stream.format("1.1", "Connection: close\r\n"))
        old = await web.say(stream.format("1.0", "Connection: keep-alive\r\n"))
    assert modern.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert old.endswith(b"\r\n\r\nabc")
    assert b"chunked" not in old
    assert b"connection: close" in old


async def test_answer_to_head_has_no_body() -> None:
    async with site() as web:
        data = await web.say(
            "HEAD /web/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + GOOD + LAST
        )
    assert statuses(data) == [200, 200]
    assert b"abc" not in data


async def test_header_of_an_answer_that_holds_a_line_break_is_not_sent() -> None:
    async with site() as web:
        data = await web.say("GET /split HTTP/1.1\r\nHost: a\r\n\r\n")
    assert statuses(data) == [500]
    assert b"b: c" not in data


async def test_body_of_a_request_that_was_answered_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_TIMEOUT_S", SOON_S)
    async with site() as web:
        early = "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
        with suppress(ConnectionError):
            assert statuses(await web.say(early, *["a"] * 100)) == [200]


async def test_connection_goes_on_after_the_rest_of_a_body_that_was_answered() -> None:
    async with site() as web:
        early = "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
        assert statuses(await web.say(early, "ab", "cd", GOOD + LAST)) == [200, 200]


async def test_connection_without_a_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "KEEP_ALIVE_S", SOON_S)
    async with site() as web:
        assert statuses(await web.say(GOOD + "\r\n")) == [200]
