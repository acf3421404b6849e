"""Requests that two servers might read in two ways, and clients that take their time."""

import asyncio
import socket

import pytest
from tests.bad_requests import BAD_CHUNKS, BAD_HEADS, ENDLESS, GOOD
from tests.patience import until_awaited
from tests.proxy.around import Backend, Reply, Request, saying, service, serving


@pytest.mark.parametrize(
    ("request_", "status"),
    BAD_HEADS,
)
async def test_request_is_refused_and_the_connection_ends(request_: str, status: int) -> None:
    """A second request, hidden behind the first, is never carried out."""
    async with Backend(saying("hello")).running() as web, serving(linger_s=0.05) as served:
        served.set(service(web.target()))
        hidden = "GET /web/hidden HTTP/1.1\r\nHost: a\r\n\r\n"
        data = await served.raw((request_ + hidden).encode("latin-1"))
    reply = Reply.of(data)
    assert reply.status == status
    assert reply.headers["connection"] == "close"
    assert data.count(b'{"error"') == 1
    assert web.requests == []


@pytest.mark.parametrize("body", BAD_CHUNKS)
async def test_chunk_that_cannot_be_read_ends_the_request(body: str) -> None:
    async with Backend(saying("hello")).running() as web, serving(linger_s=0.05) as served:
        served.set(service(web.target()))
        head = "POST /web/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        data = await served.raw((head + body).encode())
    assert Reply.of(data).status == 400
    assert web.requests == []


@pytest.mark.parametrize("endless", ENDLESS)
async def test_what_surrounds_a_body_has_an_end(endless: str) -> None:
    """Trailers and extensions of chunks are not kept without bound, though nobody gets them."""
    async with Backend(saying("hello")).running() as web, serving(linger_s=10.0) as served:
        served.set(service(web.target()))
        head = f"POST /web/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{endless}"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head.encode())
        for _ in range(10):
            writer.write(b"a" * 10_000)
            await asyncio.sleep(0.01)
        assert (await reader.readline()).startswith(b"HTTP/1.1 431")
        writer.close()


async def test_good_request_before_a_bad_one_is_answered_first() -> None:
    async with Backend(saying("hello")).running() as web, serving(linger_s=0.05) as served:
        served.set(service(web.target()))
        data = await served.raw(f"{GOOD}\r\nno HTTP at all\r\n\r\n".encode())
    assert data.index(b"hello") < data.index(b"400 Bad Request")


async def test_header_that_comes_slowly_is_not_waited_for() -> None:
    async with serving(head_s=0.2, linger_s=0.05) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        try:
            async with asyncio.timeout(5):
                writer.write(b"GET / HTTP/1.1\r\n")
                answer = asyncio.create_task(reader.read())
                while not answer.done():
                    writer.write(b"X: y\r\n")
                    await asyncio.wait([answer], timeout=0.02)
                assert (await answer).startswith(b"HTTP/1.1 408")
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("framing", "body"),
    [("Content-Length: 43", "{}"), ("Transfer-Encoding: chunked", "2b\r\n{}\r\n0\r\n\r\n")],
)
async def test_body_of_a_request_that_asks_for_another_protocol_is_no_request(
    framing: str, body: str
) -> None:
    """Such as Java's clients ask for HTTP/2, with POST too."""
    async with Backend(saying("hello")).running() as web, serving(idle_s=0.1) as served:
        served.set(service(web.target()))
        asks = "Host: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        hidden = "GET /web/hidden HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"
        post = f"POST /web/{{}} HTTP/1.1\r\n{asks}{framing}\r\n\r\n{body.format(hidden)}"
        sent = post.format(1) + f"GET /web/2 HTTP/1.1\r\n{asks}\r\n" + post.format(3)
        data = await served.raw(sent.encode())
    assert data.count(b"hello") == 3
    assert [each.line for each in web.requests] == [
        f"{line} HTTP/1.1" for line in ("POST /1", "GET /2", "POST /3")
    ]
    assert [each.body for each in web.requests] == [hidden.encode(), b"", hidden.encode()]


async def test_requests_that_wait_on_one_connection_are_bounded() -> None:
    """A thousand short ones come in one read, and take far more memory than it."""
    async with Backend(saying("hello")).running() as web, serving(linger_s=0.05) as served:
        served.set(service(holds=True))
        asked = asyncio.create_task(served.raw(b"GET /web/ HTTP/1.1\r\nHost: a\r\n\r\n" * 1000))
        await until_awaited(lambda: served.proxy.hold.count)
        (front,) = served.proxy._fronts
        assert len(front._queue) == 100
        served.set(service(web.target(), holds=True))
        data = await asked
    assert data.count(b"hello") == len(web.requests) == 100
    assert data.count(b"HTTP/1.1 429") == 1


async def test_silent_connections_are_closed() -> None:
    async with serving(head_s=0.1, idle_s=0.1, linger_s=0.05) as served:
        served.set()
        assert await served.raw(b"") == b""
        assert (await served.raw(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 401")


async def test_body_that_does_not_come_is_not_waited_for() -> None:
    async with Backend(saying("hello")).running() as web, serving(stalled_s=0.1) as served:
        served.set(service(web.target()))
        reply = Reply.of(
            await served.raw(b"POST /web/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\na")
        )
    assert reply.status == 408


async def test_reader_that_takes_nothing_is_cut_off() -> None:
    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        while True:
            writer.write(bytes(1 << 16))
            await writer.drain()

    async with Backend(respond).running() as web, serving(stalled_s=0.2) as served:
        served.set(service(web.target()))
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall(b"GET /web/ HTTP/1.1\r\nHost: a\r\n\r\n")
            client.settimeout(0)
            await until_awaited(lambda: web.requests and not served.proxy._fronts)


@pytest.mark.parametrize("begun", [b"", b"GET /web/ HTTP/1.1\r\nHost: a\r\n"])
async def test_one_address_has_a_bounded_number_of_connections(begun: bytes) -> None:
    async with Backend(saying("hello")).running() as web, serving(of_one_address=20) as served:
        served.set(service(web.target()))
        idle = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(40)]
        for _, writer in idle:
            writer.write(begun)
        assert (await served.get("/web/")).status == 200
        ended = 0
        for reader, writer in idle:
            try:
                ended += (await asyncio.wait_for(reader.read(), 0.05)) == b""
            except ConnectionError:
                ended += 1
            except TimeoutError:
                pass
            writer.close()
    assert ended >= 20


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: a\nY: b\r\n\r\n",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
        b"no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 40_000 + b"\r\n\r\n",
    ],
)
async def test_answer_that_clients_could_read_in_two_ways_is_not_passed_on(answer: bytes) -> None:
    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        reply = await served.get("/web/", method="POST")
    assert reply.status == 502
    assert reply.body.count(b"the replica") == 1


async def test_informational_answers_have_an_end() -> None:
    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
            await asyncio.sleep(0.01)

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        async with asyncio.timeout(5):
            assert (await served.get("/web/", method="POST")).status == 502


async def test_answer_that_nobody_asked_for_is_not_the_next_client_s() -> None:
    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        await saying("own")(request, writer)
        await saying("poison")(request, writer)

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        assert [(await served.get("/web/")).body for _ in range(5)] == [b"own"] * 5


async def test_body_of_an_answer_to_head_is_not_the_next_client_s_answer() -> None:
    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        poison = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
        if request.line.startswith("HEAD"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(poison))
            await asyncio.sleep(0.1)  # the next request is there
            writer.write(poison)
        else:
            await saying("own")(request, writer)

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        assert (await served.get("/web/", method="HEAD")).body == b""
        assert (await served.get("/web/")).body == b"own"
