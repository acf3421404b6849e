"""A controller that stops: every request is answered, and streams end whole."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.api.served import LARGE, LIMIT_S, ServedCluster

from muster.api import stopping
from muster.api.answers import error_answer
from muster.api.app import stop
from muster.api.stopping import OpenRequests, Stopping
from muster.core.views.base import ErrorCode

TRUE = {"command": ["true"], "resources": {"cpu": "10m"}}
STOPPING = (503, "the controller is stopping")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedCluster]:
    """A cluster of the test's own, because it is stopped."""
    monkeypatch.setattr(stopping, "FINISH_S", 0.1)
    served = ServedCluster(tmp_path, {"a1": LARGE})
    served.start()
    yield served
    served.stop()


@pytest.fixture
def http(served: ServedCluster) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {served.token()}"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=LIMIT_S) as http:
        yield http


def said(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


def test_requests_are_refused_while_it_stops(served: ServedCluster, http: httpx.Client) -> None:
    served.call(lambda: stop(served.app))
    answers = [
        http.get("/v1/jobs"),
        http.get("/v1/events"),
        http.get("/health"),
        http.post("/v1/jobs", json=TRUE),
    ]
    assert [said(answer) for answer in answers] == [STOPPING] * 4
    assert all("retry-after" in answer.headers for answer in answers)


def test_event_stream_and_waits_end_whole(served: ServedCluster, http: httpx.Client) -> None:
    job = http.post("/v1/jobs", json=TRUE).json()["id"]
    with (
        http.stream("GET", "/v1/events") as events,
        http.stream("GET", f"/v1/jobs/{job}/logs", params={"follow": True}) as output,
    ):
        assert events.status_code == output.status_code == 200
        served.call(lambda: stop(served.app))
        assert b"reset" in events.read()
        assert output.read() == b""


def test_submission_that_no_wake_takes_is_answered_all_the_same(
    served: ServedCluster, http: httpx.Client
) -> None:
    served.paused = True
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(http.post("/v1/jobs", json=TRUE)), daemon=True
    )
    asking.start()
    served.until(lambda: served.requests_under_way() == 1)
    served.call(lambda: stop(served.app))
    asking.join(LIMIT_S)
    status, sentence = said(answers[0])
    assert status == 503
    assert sentence.startswith("the controller is stopping; ")
    assert "may still be carried out" in sentence


def test_body_that_does_not_arrive_holds_nothing_up(served: ServedCluster) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.token()}\r\n"
    with socket.create_connection(("127.0.0.1", httpx.URL(served.url).port or 0), LIMIT_S) as slow:
        slow.sendall(f"{head}Content-Length: 100\r\n\r\nhalf".encode())
        served.until(lambda: served.requests_under_way() == 1)
        served.call(lambda: stop(served.app))
        assert slow.recv(65536).startswith(b"HTTP/1.1 503 ")


async def test_request_that_is_told_twice_to_end_is_answered_once() -> None:
    requests = OpenRequests()
    sent: list[Message] = []
    begun = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/v1/jobs", "headers": []}
    task = asyncio.create_task(Stopping(app, requests)(scope, receive, send))
    await begun.wait()
    for sentence in ("the first", "the second"):
        requests.end(task, error_answer(401, ErrorCode.UNAUTHENTICATED, sentence))
    await task
    assert [message.get("status") for message in sent] == [401, None]
    assert b"the first" in sent[1]["body"]
