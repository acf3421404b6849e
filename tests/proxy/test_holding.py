"""Requests that wait for the first replica of their service."""

import asyncio
import tracemalloc

import pytest
from tests.patience import until_awaited
from tests.proxy.around import Backend, Reply, Request, Served, saying, service, serving
from tests.proxy.wires import wired

from muster.proxy.exchange import Exchange


async def held(served: Served, count: int) -> None:
    await until_awaited(lambda: served.proxy.hold.count == count)


async def test_requests_wait_for_a_replica_and_are_served_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released: list[bytes] = []
    dispatch = Exchange.dispatch

    def noted(exchange: Exchange) -> None:
        if exchange.released:
            released.append(exchange.head.target)
        dispatch(exchange)

    monkeypatch.setattr(Exchange, "dispatch", noted)
    async with Backend(saying("hello")).running() as web, serving(released=1) as served:
        served.set(service(holds=True))
        asked = []
        for number in range(10):
            asked.append(
                asyncio.create_task(served.get(f"/web/{number}", method="POST", body=b"x"))
            )
            await held(served, number + 1)
        assert served.proxy.waited_for.is_set()
        assert served.proxy.take_load().services[0].held == 10
        served.set(service(web.target(), holds=True))
        replies = await asyncio.gather(*asked)
        assert served.proxy.hold.count == 0
    assert {each.status for each in replies} == {200}
    # Each goes on a connection of its own: a replica may read them in another order.
    assert released == [b"/web/%d" % number for number in range(10)]
    assert {each.line.split()[1] for each in web.requests} == {f"/{n}" for n in range(10)}


async def test_service_that_does_not_hold_refuses_at_once() -> None:
    async with serving() as served:
        served.set(service())
        reply = await served.get("/web/")
        load = served.proxy.take_load().services[0]
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert (load.refused, load.held) == (1, 0)


async def test_number_of_waiting_requests_is_bounded() -> None:
    async with serving(held=2, held_in_all=3) as served:
        services = [service(name=name, holds=True) for name in ("a", "b")]
        served.set(*services)
        asked = [asyncio.create_task(served.get("/a/")) for _ in range(2)]
        await held(served, 2)
        assert (await served.get("/a/")).status == 429
        asked.append(asyncio.create_task(served.get("/b/")))
        await held(served, 3)
        reply = await served.get("/b/")
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
        served.set()
        assert [(await each).status for each in asked] == [503] * 3


async def test_bytes_that_wait_are_bounded() -> None:
    async with serving(held_bytes=100_000) as served:
        served.set(service(holds=True))
        asked = [
            asyncio.create_task(served.get("/web/", method="POST", body=bytes(40_000)))
            for _ in range(4)
        ]
        done, _ = await asyncio.wait(asked, timeout=1)
        assert [each.result().status for each in done] == [429, 429]
        served.set()
        await asyncio.gather(*asked)


async def test_body_that_waits_takes_no_more_memory_than_its_bytes() -> None:
    with wired() as wire:
        wire.front.data_received(
            b"POST /web/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        pieces = b"2\r\nab\r\n" * 30_000
        tracemalloc.start()
        wire.front.data_received(pieces)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert wire.proxy.hold._bytes == 60_000
        assert taken < 120_000
        wire.client.abort()
        await asyncio.sleep(0)


async def test_request_waits_only_so_long() -> None:
    async with serving(held_s=0.1) as served:
        served.set(service(holds=True))
        reply = await served.get("/web/")
        load = served.proxy.take_load().services[0]
    assert (reply.status, reply.headers["retry-after"]) == (503, "10")
    assert load.refused == 1


async def test_client_that_leaves_waits_no_longer() -> None:
    async with serving() as served:
        served.set(service(holds=True))
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /web/ HTTP/1.1\r\nHost: a\r\n\r\n")
        await held(served, 1)
        writer.close()
        await held(served, 0)


async def test_request_waits_for_another_replica_when_the_last_one_goes() -> None:
    go = asyncio.Event()

    async def dies(_request: Request, _writer: asyncio.StreamWriter) -> None:
        go.set()
        await asyncio.sleep(0.05)
        raise EOFError

    async with (
        Backend(dies).running() as ill,
        Backend(saying("hello")).running() as web,
        serving() as served,
    ):
        served.set(service(ill.target("r0"), holds=True))
        asked = asyncio.create_task(served.get("/web/"))
        await go.wait()
        served.set(service(holds=True))
        await held(served, 1)
        served.set(service(web.target(), holds=True))
        assert (await asked).body == b"hello"


async def test_expecting_client_sends_its_body_only_once_there_is_a_replica() -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(service(holds=True))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(
            b"POST /web/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        await held(served, 1)
        served.set(service(web.target(), holds=True))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"abc")
        assert Reply.of(await reader.readuntil(b"hello")).status == 200
        writer.close()


async def test_waiting_request_that_is_refused_while_its_body_comes_gets_one_answer() -> None:
    """Bytes that follow the refused request at once are not looked at any more."""
    hidden = b"GET /web/hidden HTTP/1.1\r\nHost: a\r\n\r\n"
    for head, first, rest in (
        (b"Content-Length: 15\r\n", b"a" * 5, b"a" * 10),
        (
            b"Transfer-Encoding: chunked\r\n",
            b"5\r\naaaaa\r\n",
            b"6\r\naaaaaa\r\n2\r\naa\r\n0\r\n\r\n",
        ),
    ):
        with wired(held_bytes=10) as wire:
            wire.front.data_received(b"POST /web/ HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n" + first)
            assert wire.proxy.hold.count == 1
            wire.front.data_received(rest + hidden)
            assert wire.client.sent.startswith(b"HTTP/1.1 429 ")
            assert wire.client.sent.count(b"HTTP/1.1") == 1
            assert wire.client.is_half_closed
            assert not wire.proxy.hold.count
            wire.client.abort()
            await asyncio.sleep(0)


async def test_waiting_requests_are_told_when_the_proxy_ends() -> None:
    async with serving() as served:
        served.set(service(holds=True))
        asked = asyncio.create_task(served.get("/web/"))
        await until_awaited(lambda: served.proxy.hold.count)
    reply = await asked
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")


async def test_proxy_that_knows_no_services_yet_has_its_clients_come_again() -> None:
    async with serving() as served:
        reply = await served.get("/web/")
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
