"""HTTP as the controller serves it: what its log says of answers, and whom it waits for."""

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from tests.client.authority import certificate

from muster.app import http_connection, http_connections, http_server
from muster.app.http_server import serving

SOON_S = 0.3
LARGE = bytes(1 << 20)
ANSWER_BYTES = 64 * len(LARGE)
"""Far more than the buffers of two sockets hold."""


async def half_an_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def test_answer_that_is_cut_off_on_purpose_is_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    async with serving(half_an_answer, listener, None), httpx.AsyncClient() as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def a_large_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(ANSWER_BYTES // len(LARGE)):
        await send({"type": "http.response.body", "body": LARGE, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def test_reader_that_takes_nothing_of_its_answer_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "STALLED_S", SOON_S)
    listener = socket.create_server(("127.0.0.1", 0))
    async with serving(a_large_answer, listener, None):
        reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(2 * SOON_S)
        taken = 0
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 20):
                taken += len(piece)
        writer.close()
    assert taken < ANSWER_BYTES


async def test_stranger_who_begins_no_handshake_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_TIMEOUT_S", SOON_S)
    listener = socket.create_server(("127.0.0.1", 0))
    async with serving(half_an_answer, listener, certificate(tmp_path, "localhost")):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        async with asyncio.timeout(http_connection.HEAD_TIMEOUT_S / 2):
            assert await reader.read() == b""
        writer.close()


async def test_handshakes_that_do_not_end_take_no_places_from_clients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http_connections, "MAX_OF_ONE_ADDRESS", 20)
    tls = certificate(tmp_path, "localhost")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    listener = socket.create_server(("127.0.0.1", 0))
    async with serving(a_large_answer, listener, tls), httpx.AsyncClient(verify=trusting) as client:
        host, port = listener.getsockname()
        strangers = [await asyncio.open_connection(host, port) for _ in range(40)]
        url = f"https://localhost:{port}/"
        async with client.stream("GET", url) as response:
            assert response.status_code == 200
        ended = (reader.read() for reader, _ in strangers[:20])
        await asyncio.wait_for(asyncio.gather(*ended, return_exceptions=True), 5)
        for _, writer in strangers:
            writer.close()
