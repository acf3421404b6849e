"""A caller that waits is told when the controller goes away and comes back; its failures are waited
out."""

import http.server
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from tests.api.served import LARGE, LIMIT_S, ServedCluster

from muster.client import (
    Client,
    ControllerFailed,
    Unauthenticated,
    Unavailable,
    Unreachable,
    patience,
)
from muster.core.states import JobState

SMALL: dict[str, Any] = {"command": ["true"], "resources": {"cpu": "10m"}}
WELL = (200, '{"status": "ok", "version": "1"}')
DEFECT = (500, '{"error": "it failed inside", "code": "internal"}')
STOPPING = (503, '{"error": "the controller is stopping", "code": "unavailable"}')
NOBODY = "http://127.0.0.1:9"


@contextmanager
def answering(answers: Sequence[tuple[int, str]]) -> Iterator[str]:
    """The URL of a server that gives these answers one after the other, and the last for ever."""
    left = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(LIMIT_S)


def test_waiting_hears_that_the_controller_went_away_and_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "TOLD_AFTER_S", 0.1)
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    try:
        heard: Queue[bool] = Queue()
        watched = threading.Event()
        states: list[JobState] = []
        with (
            cluster.client() as direct,
            Client(cluster.url, cluster.token(), on_contact=heard.put) as waiting,
        ):
            job = direct.submit(**SMALL)

            def wait() -> None:
                states.append(waiting.wait(job.id, LIMIT_S, lambda _: watched.set()).state)

            thread = threading.Thread(target=wait, daemon=True)
            thread.start()
            assert watched.wait(LIMIT_S)
            cluster.down()
            assert heard.get(timeout=LIMIT_S) is False
            cluster.up()
            # Before the job changes: the answer to the wait itself is yet to come.
            assert heard.get(timeout=LIMIT_S) is True
            direct.cancel(job.id)
            thread.join(LIMIT_S)
        assert states == [JobState.KILLED]
        assert heard.empty()
    finally:
        cluster.stop()


def test_listener_is_patient_from_the_first_request_on_and_then_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "FIRST_CONTACT_S", 0.0)
    monkeypatch.setattr(patience, "TOLD_AFTER_S", 0.1)
    monkeypatch.setattr(patience, "WAITING_S", 0.5)
    heard: list[bool] = []
    with (
        Client(NOBODY, "t", on_contact=heard.append) as client,
        pytest.raises(Unreachable, match="`muster up` starts one"),
    ):
        client.jobs()
    assert heard == [False]


def test_who_asks_a_controller_that_is_started_again_is_told_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "WAITING_S", 0.1)
    with (
        Client(NOBODY, "t", on_contact=lambda _: None, comes_back=lambda url: url == NOBODY) as it,
        pytest.raises(Unreachable, match="it is being started again: try again shortly"),
    ):
        it.jobs()


@pytest.mark.parametrize("answer", [DEFECT, STOPPING, (502, "Bad Gateway")])
def test_failure_of_a_moment_is_not_noticed(answer: tuple[int, str]) -> None:
    with answering([answer, answer, WELL]) as url, Client(url, "t") as client:
        assert client.health().status == "ok"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (DEFECT, ControllerFailed),
        (STOPPING, Unavailable),
        ((504, "Gateway Timeout"), Unreachable),
        ((500, "Internal Server Error"), Unreachable),
    ],
)
def test_failure_that_lasts_is_told(
    answer: tuple[int, str], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FAILING_S", "FIRST_CONTACT_S", "PATIENCE_S"):
        monkeypatch.setattr(patience, name, 0.1)
    with answering([answer]) as url, Client(url, "t") as client, pytest.raises(error):
        client._perform(client._send("GET", "/health", patience_s=0.1))


def test_traceback_of_an_error_is_of_this_error_alone() -> None:
    with (
        answering([(200, "not JSON")]) as url,
        Client(url, "t") as wrong,
        Client(NOBODY, "t") as nobody,
    ):
        for client in (wrong, nobody):
            with pytest.raises(Unreachable) as told:
                client.health()
            shown = "".join(traceback.format_exception(told.value))
            assert shown.count("Traceback") == 1
            assert "\n" not in str(told.value)


@pytest.mark.parametrize("source", ["argument", "environment", "file"])
def test_token_that_is_not_accepted_is_told_with_where_it_came_from(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    monkeypatch.delenv("MUSTER_TOKEN", raising=False)
    refusal = (401, '{"error": "the token is missing or wrong", "code": "unauthenticated"}')
    with answering([refusal]) as url:
        file = tmp_path / "client.json"
        file.write_text(f'{{"url": "{url}", "token": "stale"}}')
        if source == "environment":
            monkeypatch.setenv("MUSTER_TOKEN", "stale")
        token = "stale" if source == "argument" else None
        with Client(url, token) as client, pytest.raises(Unauthenticated) as told:
            client.jobs()
    assert str(told.value).startswith(
        f"the controller at {url} does not accept, or no longer accepts, the token "
    )
    assert "MUSTER_TOKEN" in str(told.value)
    assert str(file) in str(told.value)
