"""Replicas that are not there, go away, or take too long."""

import asyncio
import socket

import pytest
from tests.patience import until_awaited
from tests.proxy.around import Backend, Request, Served, ends_at_once, saying, service, serving

from muster.core.serving.traffic import RouteLoad, Target
from muster.proxy.exchange import Exchange


def gone(route: str) -> Target:
    """A replica that takes no connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return Target(route=route, host="127.0.0.1", port=port, revision=1)


def routes(served: Served) -> dict[str, RouteLoad]:
    return {each.route: each for load in served.proxy.take_load().services for each in load.routes}


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_request_goes_to_another_replica_where_one_takes_no_connection(method: str) -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(gone("r0"), web.target()))
        replies = [await served.get("/web/", method=method, body=b"x" * 9000) for _ in range(4)]
        loads = routes(served)
    assert [(each.status, each.body) for each in replies] == [(200, b"hello")] * 4
    assert {each.body for each in web.requests} == {b"x" * 9000}
    assert (loads["r0"].requests, loads["r0"].failures) == (1, 1), "it was set aside then"
    assert (loads["r1"].requests, loads["r1"].failures) == (4, 0)


async def test_request_that_may_be_done_twice_goes_to_another_replica_that_answers() -> None:
    async with (
        Backend(ends_at_once).running() as ill,
        Backend(saying("hello")).running() as web,
        serving() as served,
    ):
        served.set(service(ill.target("r0"), web.target()))
        replies = [await served.get("/web/") for _ in range(4)]
    assert [each.body for each in replies] == [b"hello"] * 4
    assert len(ill.requests) == 2


async def test_request_that_may_not_be_done_twice_is_told_to_have_failed() -> None:
    async with Backend(ends_at_once).running() as ill, serving() as served:
        served.set(service(ill.target("r0")))
        reply = await served.get("/web/", method="POST", body=b"x")
    assert reply.status == 502
    assert reply.headers["content-type"] == "application/json"
    assert b'"the replica ended the connection","code":"unavailable"' in reply.body
    assert len(ill.requests) == 1


async def test_tries_have_a_limit() -> None:
    async with serving() as served:
        served.set(service(*(gone(f"r{number}") for number in range(9))))
        reply = await served.get("/web/")
        loads = routes(served)
    assert reply.status == 502
    assert len(loads) == 3


async def test_kept_connection_that_the_replica_closes_is_no_failure() -> None:
    """Whether the request may be done twice or not: no byte of it was taken."""

    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        await saying("hello")(request, writer)
        await writer.drain()
        raise EOFError  # with no word of it in the answer

    async with Backend(respond).running() as web, serving() as served:
        served.set(service(web.target()))
        for _ in range(50):
            assert (await served.get("/web/", method="POST", body=b"x")).status == 200
    assert len(web.requests) == 50


@pytest.mark.parametrize(
    "head", [b"Content-Length: 100\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n4\r\n"]
)
async def test_answer_whose_replica_dies_is_cut_and_never_mixed(head: bytes) -> None:
    async def dies(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"half")
        await writer.drain()
        await asyncio.sleep(0.02)
        raise EOFError

    async with (
        Backend(dies).running() as ill,
        Backend(saying("other")).running() as web,
        serving() as served,
    ):
        served.set(service(ill.target("r0"), web.target(weight=1), affinity="x"))
        seen = set()
        for number in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"GET /web/ HTTP/1.1\r\nHost: a\r\nX: %d\r\n\r\n" % number)
            data = b""
            try:
                async with asyncio.timeout(0.2):
                    while piece := await reader.read(1000):
                        data += piece
            except ConnectionError:
                data += b"|cut"
            except TimeoutError:
                pass
            seen.add(data.partition(b"\r\n\r\n")[2])
            writer.close()
        failures = routes(served)["r0"].failures
    assert all(b"other" not in each or each == b"other" for each in seen)
    assert any(each.endswith(b"|cut") for each in seen)
    assert not any(each.endswith(b"0\r\n\r\n") for each in seen)
    assert failures > 0


async def test_replica_that_says_nothing_is_not_waited_for_for_ever() -> None:
    async def silent(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(10)

    async with Backend(silent).running() as web, serving(answer_s=0.1) as served:
        served.set(service(web.target()))
        reply = await served.get("/web/")
    assert reply.status == 504


async def test_withdrawn_replica_ends_what_it_has_begun_and_gets_nothing_new() -> None:
    end = asyncio.Event()

    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        await end.wait()
        await saying("old")(request, writer)

    async with (
        Backend(slow).running() as old,
        Backend(saying("new")).running() as new,
        serving() as served,
    ):
        served.set(service(old.target("r0")))
        first = asyncio.create_task(served.get("/web/"))
        second = asyncio.create_task(served.get("/web/"))
        await until_awaited(lambda: len(old.requests) == 2)
        served.set(service(old.target("r0", weight=0), new.target()))
        assert (await served.get("/web/")).body == b"new"
        served.set(service(new.target()))
        assert (await served.get("/web/")).body == b"new"
        end.set()
        assert (await first).body == (await second).body == b"old"
        loads = routes(served)
        assert loads["r0"].requests == 2
        assert set(routes(served)) == set()


async def test_what_a_withdrawn_replica_does_not_end_in_time_is_cut() -> None:
    async def stream(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        while not writer.is_closing():
            writer.write(b".")
            await asyncio.sleep(0.01)

    async with Backend(stream).running() as web, serving() as served:
        served.set(service(web.target(), drain_s=0.2))
        asked = asyncio.create_task(served.raw(b"GET /web/ HTTP/1.1\r\nHost: a\r\n\r\n"))
        await until_awaited(lambda: web.requests)
        served.set(service(drain_s=0.2))
        with pytest.raises(ConnectionResetError):
            await asked


async def test_request_of_a_frozen_replica_goes_to_another_once_that_one_is_out_of_time() -> None:
    async def frozen(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with (
        Backend(frozen).running() as ill,
        Backend(saying("hello")).running() as web,
        serving() as served,
    ):
        served.set(service(ill.target("r0"), drain_s=0.2))
        get, put, post = (
            asyncio.create_task(served.get("/web/", method=method, body=body))
            for method, body in (("GET", b""), ("PUT", b"x"), ("POST", b"x"))
        )
        await until_awaited(lambda: len(ill.requests) == 3)
        served.set(service(ill.target("r0", weight=0), web.target(), drain_s=0.2))
        assert [(each.status, each.body) for each in (await get, await put)] == [
            (200, b"hello"),
            (200, b"hello"),
        ]
        assert (await post).status == 503, "it may have been done"
        assert [each.body for each in web.requests if each.line.startswith("PUT")] == [b"x"]
        loads = routes(served)
    assert (loads["r0"].requests, loads["r0"].failures) == (3, 3)
    assert (loads["r1"].requests, loads["r1"].failures) == (2, 0)


async def test_request_of_a_frozen_replica_that_was_the_only_one_is_told_so() -> None:
    async def frozen(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with Backend(frozen).running() as ill, serving() as served:
        served.set(service(ill.target("r0"), drain_s=0.2))
        get = asyncio.create_task(served.get("/web/"))
        await until_awaited(lambda: ill.requests)
        served.set(service(drain_s=0.2))
        assert (await get).status == 503


async def test_old_connections_of_all_replicas_are_no_tries() -> None:
    """After the machine has slept, replicas have closed what the proxy kept. The request stays with
    the replica that was chosen."""

    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        if web.served.pop(id(writer), None):
            raise EOFError
        web.served[id(writer)] = True
        await saying("hello")(request, writer)

    class Old(Backend):
        served: dict[int, bool]

    web = Old(respond)
    web.served = {}
    async with web.running(), serving(tries=1) as served:
        served.set(service(*(web.target(f"r{number}") for number in range(3))))
        for _ in range(2):
            assert [(await served.get("/web/")).status for _ in range(3)] == [200] * 3
        loads = routes(served)
    assert [(each.requests, each.failures) for each in loads.values()] == [(2, 0)] * 3


async def test_replica_that_takes_no_body_is_not_waited_for_for_ever() -> None:
    async def deaf(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(10)

    async with (
        Backend(deaf, reads_body=False).running() as web,
        serving(answer_s=0.3, linger_s=0.1) as served,
    ):
        served.set(service(web.target()))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"POST /web/ HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        writer.write(bytes(32 << 20))
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 504")
        writer.transport.abort()


async def test_replica_that_answers_before_it_has_the_body_leaves_nothing_behind() -> None:
    def stalled() -> bool:
        connections = [each.connection for each in replica.under_way]
        return any(each is not None and each.writing_paused for each in connections)

    async def hasty(request: Request, writer: asyncio.StreamWriter) -> None:
        await until_awaited(stalled)
        await saying("too large")(request, writer)
        await asyncio.sleep(10)

    async with (
        Backend(hasty, reads_body=False).running() as web,
        serving(linger_s=0.1) as served,
    ):
        served.set(service(web.target()))
        head = b"POST /web/ HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (64 << 20)
        (replica,) = next(iter(served.proxy.services)).replicas
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head + bytes(32 << 20))
        await reader.readuntil(b"too large")
        await until_awaited(lambda: not served.proxy._fronts)
        (own,) = web.writers
        async with asyncio.timeout(5):
            while not own.transport.is_closing():
                own.write(b"x")  # which nobody takes
                await asyncio.sleep(0.02)
        assert not replica.under_way
        writer.transport.abort()


async def test_replica_at_the_address_of_the_proxy_gets_no_request_twice() -> None:
    async with serving(answer_s=1.0) as served:
        own = Target(route="r0", host="127.0.0.1", port=served.port, revision=1)
        served.set(service(own, host="web.example.org"))
        reply = await served.get("/a", "Host: web.example.org", "Via: 1.0 fred")
        loads = routes(served)
    assert reply.status == 508
    assert loads["r0"].requests == 1


async def test_defect_in_one_request_lifts_no_limit_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look(self: Exchange, now_s: float) -> None:
        if self.head.target == b"/web/odd":
            raise AssertionError
        before(self, now_s)

    async def silent(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(10)

    before = Exchange.look
    monkeypatch.setattr(Exchange, "look", look)
    async with Backend(silent).running() as web, serving(answer_s=0.1) as served:
        served.set(service(web.target()))
        odd = [asyncio.create_task(served.get("/web/odd")) for _ in range(5)]
        await until_awaited(lambda: len(web.requests) == 5)
        assert (await served.get("/web/")).status == 504
        for each in odd:
            each.cancel()
