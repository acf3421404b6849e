"""The request that a replica gets, and the answer that comes back to the client."""

import asyncio
import socket
from contextlib import suppress

import pytest
from tests.patience import until_awaited
from tests.proxy.around import ANN, Backend, Reply, Request, saying, service, serving
from tests.proxy.wires import wired

from muster.proxy.heads import VIA


async def test_request_reaches_the_service_that_its_path_names() -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(web.target()))
        reply = await served.get("/web/a/b?c=d", "X-Own: 1", "Via: 1.0 fred")
        bare = await served.get("/web?x=1", method="POST")
    assert (reply.status, reply.body) == (200, b"hello")
    assert bare.status == 200
    got, second = web.requests
    assert got.line == "GET /a/b?c=d HTTP/1.1"
    assert second.line == "POST /?x=1 HTTP/1.1"
    assert got["x-own"] == "1"
    assert got["host"] == got["x-forwarded-host"] == "proxy"
    assert got["x-forwarded-prefix"] == "/web"
    assert got["x-forwarded-for"] == "127.0.0.1"
    assert got["x-forwarded-proto"] == "http"
    assert [value for name, value in got.headers if name == "via"] == ["1.0 fred", VIA.decode()]
    assert got["connection"] is None


@pytest.mark.parametrize("name", ["Muster-Secret", "muster_secret"])
async def test_request_carries_the_secret_of_its_service_and_none_of_the_callers(
    name: str,
) -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(web.target(), secret="known"), service(web.target(), name="other"))
        await served.get("/web/", f"{name}: guessed")
        await served.get("/other/", f"{name}: guessed")
    got, of_other = web.requests
    assert got["muster-secret"] == "known"
    assert [each for each in got.headers + of_other.headers if each[1] == "guessed"] == []
    assert of_other["muster-secret"] is None


@pytest.mark.parametrize("host", ["web.EXAMPLE.org:8282", "web.example.org.", "web.example.org.:1"])
async def test_request_reaches_the_service_that_its_host_names_with_its_path_whole(
    host: str,
) -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(web.target(), host="Web.example.org"))
        reply = await served.get("/web/a", f"Host: {host}")
    assert reply.status == 200
    assert web.requests[0].line == "GET /web/a HTTP/1.1"
    assert web.requests[0]["x-forwarded-prefix"] is None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_name_without_a_slash_leads_to_the_one_with_it_and_keeps_the_query(
    method: str,
) -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(
            service(web.target(), host="web.example.org"),
            service(web.target("r2"), name="own", public=False),
        )
        for path, whole in (("/web?x=1&y=/z", "/web/?x=1&y=/z"), ("/web", "/web/")):
            reply = await served.get(path, method=method)
            assert (reply.status, reply.headers["location"]) == (308, whole)
        by_host = await served.get("/web", "Host: web.example.org", method=method)
        assert by_host.status == 200
        assert (await served.get("/own", method=method)).status == 401, "as of one that is unknown"
        assert (await served.get("/none", method=method)).status == 401
    assert [each.line for each in web.requests] == [f"{method} /web HTTP/1.1"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", socket.gethostname()])
async def test_no_service_takes_the_requests_that_name_others_by_their_paths(host: str) -> None:
    async with (
        Backend(saying("hello")).running() as web,
        Backend(saying("thief")).running() as thief,
        serving() as served,
    ):
        served.set(service(thief.target(), name="thief", host=host), service(web.target()))
        reply = await served.get("/web/", f"Host: {host}:{served.port}")
    assert reply.body == b"hello"


async def test_headers_of_the_connection_and_forged_ones_stay_behind() -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(web.target()))
        forged = (
            "X-Forwarded-For: 6.6.6.6", "X_Forwarded_For: 6.6.6.6", "Forwarded: for=6.6.6.6",
            "X-Real-IP: 6.6.6.6", "Proxy: http://evil", "TE: trailers", "Keep-Alive: 5",
            "Connection: X-Named", "X-Named: 1", "X_Own: 1", "Upgrade: h2c",
        )  # fmt: skip
        await served.get("/web/", *forged)
    got = web.requests[0]
    assert "6.6.6.6" not in str(got.headers)
    gone = ("proxy", "te", "keep-alive", "connection", "x-named", "upgrade")
    assert [got[name] for name in gone] == [None] * len(gone)
    assert got["x_own"] == "1"


async def test_connections_are_kept_on_both_sides() -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(web.target()))
        one = b"GET /web/ HTTP/1.1\r\nHost: a\r\n\r\n"
        last = b"GET /web/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        answers = await served.raw(one + one + last)  # one after the other, as they came
    assert answers.count(b"HTTP/1.1 200 OK") == answers.count(b"hello") == 3
    assert web.connections == 1


async def test_body_is_passed_on_with_its_length_or_in_chunks() -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(web.target()))
        await served.get("/web/", method="POST", body=b"x" * 1000)
        chunked = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        body = b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n"
        await served.raw(b"POST /web/ HTTP/1.1\r\nHost: a\r\n" + chunked + body)
    assert [each.body for each in web.requests] == [b"x" * 1000, b"abcde"]
    assert web.requests[0]["content-length"] == "1000"
    assert web.requests[1]["transfer-encoding"] == "chunked"


async def test_answer_comes_piece_by_piece() -> None:
    go_on = asyncio.Event()

    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        await go_on.wait()
        writer.write(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /web/ HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"data: 1\n\n\r\n")
        go_on.set()
        rest = await reader.readuntil(b"0\r\n\r\n")
        assert rest == b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"
        writer.close()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_answer_that_ends_with_its_connection_ends_as_the_client_can_tell(
    version: str,
) -> None:
    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        raise EOFError

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        line = f"GET /web/ HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"
        data = await served.raw(line.encode())
    assert Reply.of(data).body == b"all of it"
    assert (b"chunked" in data) == (version == "1.1")


async def test_head_and_answers_without_a_body_leave_the_connection_usable() -> None:
    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.line.startswith("HEAD"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        elif "304" in request.line:
            writer.write(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n")
        elif "204" in request.line:
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast")

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        asked = [
            f"{each} HTTP/1.1\r\nHost: a\r\n\r\n"
            for each in ("HEAD /web/", "GET /web/304", "GET /web/204", "GET /web/")
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write("".join(asked).encode())
        data = await reader.readuntil(b"last")
        writer.close()
    assert data.count(b"\r\n\r\n") == 4
    assert data.startswith(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 304")
    assert b"103" not in data
    assert web.connections == 2, "after HEAD there is a new one"


async def test_expectation_is_met_by_the_proxy_once_there_is_a_replica() -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(web.target()), service(name="none"))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = b"POST /%s/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        writer.write(head % b"web")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        await reader.readuntil(b"hello")
        writer.close()
        refused = await served.raw(head % b"none")
    assert web.requests[0].body == b"abc"
    assert web.requests[0]["expect"] is None
    assert refused.startswith(b"HTTP/1.1 503")


async def test_web_socket_passes_bytes_both_ways() -> None:
    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        assert request["upgrade"] == "websocket"
        assert request["connection"] == "Upgrade"
        assert request["sec-websocket-key"] == "k"
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(head + b"Sec-WebSocket-Accept: x\r\n\r\nfirst")
        while data := await request.reader.read(100):
            writer.write(data[::-1])
        raise EOFError

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(
            b"GET /web/ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n\x81early"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"101" in head
        assert b"Sec-WebSocket-Accept: x\r\n" in head
        assert await reader.readexactly(11) == b"first" + b"\x81early"[::-1]
        writer.write(b"\x00GET / HTTP/1.1\r\n\r\n")
        assert await reader.readexactly(19) == b"\x00GET / HTTP/1.1\r\n\r\n"[::-1]
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def test_last_words_of_a_web_socket_are_sent_before_its_end() -> None:
    with wired(has_replica=True, linger_s=0.05) as wire:
        wire.front.data_received(
            b"GET /web/ HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        wire.connection.data_received(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        )
        wire.front.data_received(b"goodbye")
        wire.client.close()
        await asyncio.sleep(0)
        assert wire.replica.sent.endswith(b"goodbye")
        assert wire.replica.is_closed
        assert not wire.replica.is_cut
        await until_awaited(lambda: wire.replica.is_cut)


async def test_client_that_ends_its_half_gets_no_answer_that_seems_whole() -> None:
    """An old client takes the end of the connection for the end of the answer."""

    async def stream(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await asyncio.sleep(10)

    async with Backend(stream).running() as web, serving() as served:
        served.set(service(web.target()))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /web/ HTTP/1.0\r\n\r\n")
        await reader.readuntil(b"half")
        writer.write_eof()
        with pytest.raises(ConnectionError):
            await reader.read()
        writer.close()


async def test_web_socket_that_the_replica_refuses_is_an_answer_like_others() -> None:
    async with Backend(saying("no socket here")).running() as web, serving() as served:
        served.set(service(web.target()))
        reply = Reply.of(
            await served.raw(
                b"GET /web/ HTTP/1.1\r\nHost: a\r\n"
                b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
        )
    assert reply.body == b"no socket here"


async def test_body_as_large_as_one_likes_takes_little_memory() -> None:
    """The replica reads nothing for a while: the client has to wait with most of its body."""
    read = asyncio.Event()

    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        await read.wait()
        left = int(request["content-length"] or 0)
        while left:
            left -= len(await request.reader.read(1 << 20))
        await saying("got it")(request, writer)

    size, sent = 64 << 20, 0
    async with Backend(respond, reads_body=False).running() as web, serving() as served:
        served.set(service(web.target()))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"POST /web/ HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        with suppress(TimeoutError):
            while sent < size:
                writer.write(bytes(1 << 16))
                sent += 1 << 16
                await asyncio.wait_for(writer.drain(), 0.5)
        assert sent < 24 << 20, "what the buffers of four sockets hold, not more"
        read.set()
        while sent < size:
            writer.write(bytes(1 << 16))
            sent += 1 << 16
            await writer.drain()
        await reader.readuntil(b"got it")
        writer.close()


async def test_replica_waits_while_the_client_does_not_read() -> None:
    sent = 0

    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        while sent < 64 << 20:
            writer.write(bytes(1 << 16))
            sent += 1 << 16
            await writer.drain()

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1 << 16)
        writer.write(b"GET /web/ HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0.5)
        assert 0 < sent < 24 << 20
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.split(b"Content-Length: ")[1].split(b"\r")[0])
        while left:
            left -= len(await reader.read(1 << 20))
        writer.close()


async def test_client_that_leaves_takes_its_request_along() -> None:
    ended = asyncio.Event()

    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        with suppress(ConnectionError):
            await request.reader.read()
        ended.set()
        raise EOFError

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /web/ HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"a\r\n")
        writer.close()
        await asyncio.wait_for(ended.wait(), 5)
        load = served.proxy.take_load()
    (of_web,) = load.services
    assert [(each.in_flight, each.failures) for each in of_web.routes] == [(0, 0)]


async def test_own_token_goes_no_further_than_the_proxy() -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(web.target()), service(web.target(), name="own", public=False))
        for space in (" ", "  ", "\t"):
            for name in ("web", "own"):
                reply = await served.get(f"/{name}/", f"Authorization: Bearer{space}{ANN}")
                assert reply.status == 200
        await served.get("/web/", "Authorization: Bearer sk-of-the-service")
        await served.get("/web/", f"Authorization: Bearer {'z' * 43}")
        await served.get("/web/", "Authorization: Basic YTpi")
    sent = [each["authorization"] for each in web.requests]
    assert sent == [
        *[None] * 6, "Bearer sk-of-the-service", f"Bearer {'z' * 43}", "Basic YTpi",
    ]  # fmt: skip
