"""HTTP as the controller serves it: what its log says of answers."""

import logging
import socket

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from muster.app.http_server import serving


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
