"""Many clients, replicas that break, and tables that change: no answer ever reaches the wrong
request, and nothing is left behind."""

import asyncio
import random
from contextlib import suppress

from tests.patience import until_awaited
from tests.proxy.around import Backend, Request, Served, service, serving

CLIENTS = 24
REQUESTS = 40


def replica(chance: random.Random) -> Backend:
    """A replica that says which request it answers, and does not always get to the end."""

    async def respond(request: Request, writer: asyncio.StreamWriter) -> None:
        own = (request.line.split()[1] + request.body.decode()).encode() * 50
        act = chance.random()
        if act < 0.05:
            raise EOFError
        if act < 0.10:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(own) + 1, own))
            raise EOFError
        if act < 0.15:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + own)
            await writer.drain()
            raise EOFError
        if act < 0.3:
            await asyncio.sleep(0.002)
        if act < 0.6:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for piece in (own[:100], own[100:]):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(own), own))
        if act > 0.95:
            await writer.drain()
            raise EOFError

    return Backend(respond)


async def ask(served: Served, chance: random.Random, client: int) -> tuple[int, int]:
    """How many requests of a client were answered whole, and how many otherwise."""
    whole = other = 0
    for number in range(REQUESTS):
        body = "b" * chance.choice((0, 0, 3, 3000))
        method = chance.choice(("GET", "POST", "PUT"))
        path = f"/{client}-{number}-"
        if chance.random() < 0.05:  # leaves before the answer
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(f"GET /web{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            await asyncio.sleep(chance.random() * 0.003)
            writer.close()
            continue
        try:
            reply = await served.get(f"/web{path}", method=method, body=body.encode())
        except (ConnectionError, ValueError):  # cut, or cut in the middle of a chunk
            other += 1
            continue
        wanted = (path + body).encode() * 50
        if reply.status == 200:
            assert wanted.startswith(reply.body), "never another request's, nor parts of two"
            whole += reply.body == wanted
            other += reply.body != wanted
        else:
            assert reply.status in (502, 503)
            other += 1
    return whole, other


async def test_no_answer_reaches_the_wrong_request_and_nothing_is_left_behind() -> None:
    chance = random.Random(8)
    async with (
        replica(chance).running() as a,
        replica(chance).running() as b,
        serving(pooled_s=0.05) as served,
    ):
        served.set(service(a.target("a"), b.target("b"), holds=True))

        async def change() -> None:
            while True:
                await asyncio.sleep(0.02)
                targets = [
                    each.target(name, weight=chance.choice((0, 1, 3)))
                    for name, each in (("a", a), ("b", b))
                    if chance.random() < 0.9
                ]
                served.set(service(*targets, holds=True, drain_s=0.05))

        changing = asyncio.create_task(change())
        async with asyncio.timeout(60):
            clients = (ask(served, chance, client) for client in range(CLIENTS))
            counts = await asyncio.gather(*clients)
        changing.cancel()
        with suppress(asyncio.CancelledError):
            await changing
        proxy = served.proxy
        await until_awaited(lambda: not proxy._fronts)
        load = [route for each in proxy.take_load().services for route in each.routes]
        assert sum(route.in_flight for route in load) == 0
        served.set()
        proxy.take_load()
        proxy.take_load()
        assert [*proxy.services] == []
        assert (proxy.hold.count, proxy.hold._bytes, proxy._tasks) == (0, 0, set())
    whole, other = (sum(each) for each in zip(*counts, strict=True))
    assert whole > other > 0
