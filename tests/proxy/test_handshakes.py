"""Clients that come by TLS, and strangers who never get that far."""

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.client.authority import certificate
from tests.patience import until_awaited
from tests.proxy.around import Backend, Served, saying, service, serving_tls

REQUEST = b"GET /web/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00"


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    own = certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    return context


async def answered(served: Served, ca: Path) -> bytes:
    """The answer to a client that sends its request together with its last words of the
    handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(ca))
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    answer = b""
    try:
        async with asyncio.timeout(10):
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65_536))
            client.write(REQUEST)
            writer.write(outgoing.read())
            while b"hello" not in answer:
                try:
                    answer += client.read()
                except ssl.SSLWantReadError:
                    data = await reader.read(65_536)
                    assert data, f"only {answer!r} came"
                    incoming.write(data)
    finally:
        writer.transport.abort()
    return answer


async def test_request_may_come_together_with_the_end_of_the_handshake(
    tmp_path: Path, tls: ssl.SSLContext
) -> None:
    async with Backend(saying("hello")).running() as web, serving_tls(tls) as served:
        served.set(service(web.target()))
        for _ in range(5):
            assert (await answered(served, tmp_path / "ca.pem")).startswith(b"HTTP/1.1 200")
        await until_awaited(lambda: not served.proxy.connections._count)


@pytest.mark.parametrize("said", [b"", HALF_A_HELLO])
async def test_handshakes_that_do_not_end_take_no_places_from_clients(
    tmp_path: Path, tls: ssl.SSLContext, said: bytes
) -> None:
    async with (
        Backend(saying("hello")).running() as web,
        serving_tls(tls, connections=20) as served,
    ):
        served.set(service(web.target()))
        strangers = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(40)]
        for _, writer in strangers:
            writer.write(said)
        await answered(served, tmp_path / "ca.pem")
        ended = asyncio.gather(
            *(reader.read() for reader, _ in strangers[:20]), return_exceptions=True
        )
        await asyncio.wait_for(ended, 10)
        assert served.proxy.connections._count <= 20
    await until_awaited(lambda: not served.proxy.connections._count)
    for _, writer in strangers:
        writer.close()


@pytest.mark.parametrize("said", [HALF_A_HELLO, b"GET / HTTP/1.1\r\n\r\n"])
async def test_handshake_that_takes_too_long_or_is_none_ends(
    tls: ssl.SSLContext, said: bytes
) -> None:
    async with serving_tls(tls, handshake_s=0.2) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        answer = asyncio.create_task(reader.read())
        async with asyncio.timeout(5):
            writer.write(said)
            while not answer.done():
                writer.write(b"\x00")
                await asyncio.wait([answer], timeout=0.02)
        await until_awaited(lambda: not served.proxy.connections._count)
        await asyncio.gather(answer, return_exceptions=True)
        writer.close()
