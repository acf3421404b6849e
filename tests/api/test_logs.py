"""Output over HTTP: whole, its tail, followed; and the headers that say where a reader stands."""

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from proving.hollow.supervisor import Run
from tests.api.served import LARGE, LIMIT_S, ServedCluster

from muster.api import streamed
from muster.api.allowance import Allowance
from muster.core.views.work import (
    LOG_ATTEMPT_HEADER,
    LOG_END_HEADER,
    LOG_OFFSET_HEADER,
    LOG_STREAM_HEADER,
)

TRUE = {"command": ["true"], "resources": {"cpu": "10m"}}
TOO_LARGE = {**TRUE, "resources": {"cpu": 99}}


def submit(http: httpx.Client, body: dict[str, Any] = TRUE, path: str = "/v1/jobs") -> str:
    answer = http.post(path, json=body)
    assert answer.status_code == 201, answer.text
    id_: str = answer.json()["id"]
    return id_


def kernel_of(http: httpx.Client, job: str, task: int = 0) -> str:
    attempts = http.get(f"/v1/jobs/{job}/tasks/{task}").json()["attempts"]
    id_: str = attempts[-1]["id"]
    return id_


class Follower:
    """Reads an answer in a thread of its own; ``text`` is what has come so far."""

    def __init__(self, cluster: ServedCluster, path: str, **params: str | int) -> None:
        self.text = ""
        self.headers = httpx.Headers()
        self._begun = threading.Event()
        self._changed = threading.Condition()
        self._cluster, self._path, self._params = cluster, path, params
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        assert self._begun.wait(LIMIT_S)

    def _read(self) -> None:
        headers = {"Authorization": f"Bearer {self._cluster.token()}"}
        params = {"follow": "true", **self._params}
        url = self._cluster.url + self._path
        with httpx.stream("GET", url, params=params, headers=headers, timeout=LIMIT_S) as answer:
            assert answer.status_code == 200
            self.headers = answer.headers
            self._begun.set()
            for piece in answer.iter_text():
                with self._changed:
                    self.text += piece
                    self._changed.notify_all()

    def until(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.text == text, LIMIT_S), self.text

    def ended(self) -> bool:
        self.thread.join(LIMIT_S)
        return not self.thread.is_alive()


def test_output_so_far_is_answered_at_once(cluster: ServedCluster, ada: httpx.Client) -> None:
    job = submit(ada)
    cluster.write(kernel_of(ada, job), b"one\ntwo\n")
    answer = ada.get(f"/v1/jobs/{job}/logs")
    assert (answer.status_code, answer.text) == (200, "one\ntwo\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers[LOG_ATTEMPT_HEADER] == "1"
    assert answer.headers[LOG_OFFSET_HEADER] == "0"
    assert answer.headers[LOG_END_HEADER] == "open"


def test_short_outputs_of_many_tasks_are_one_answer(
    cluster: ServedCluster, ada: httpx.Client, bob: httpx.Client
) -> None:
    job = submit(ada, {**TRUE, "tasks": 8})
    cluster.write(kernel_of(ada, job, 1), b"\xff two\n")
    cluster.write(kernel_of(ada, job, 2), b"far more than is short\n")
    answer = ada.get(f"/v1/jobs/{job}/outputs", params={"tasks": "1-2,5,70"})
    assert (answer.status_code, answer.json()["items"]) == (
        200,
        [
            {"task": 1, "attempt": 1, "data": base64.b64encode(b"\xff two\n").decode()},
            {"task": 5, "attempt": 1, "data": ""},
        ],
    )
    for wrong in ("", "x", "0-200", "3-1"):
        assert ada.get(f"/v1/jobs/{job}/outputs", params={"tasks": wrong}).status_code == 422
    assert bob.get(f"/v1/jobs/{job}/outputs", params={"tasks": "1"}).status_code == 404
    waiting = submit(ada, TOO_LARGE)
    empty = ada.get(f"/v1/jobs/{waiting}/outputs", params={"tasks": "0"})
    assert empty.json() == {"items": []}


def test_tail_and_offset_say_where_they_begin(cluster: ServedCluster, ada: httpx.Client) -> None:
    job = submit(ada)
    cluster.write(kernel_of(ada, job), b"0123456789")
    tail = ada.get(f"/v1/jobs/{job}/logs", params={"tail_bytes": 3})
    assert (tail.text, tail.headers[LOG_OFFSET_HEADER]) == ("789", "7")
    rest = ada.get(f"/v1/jobs/{job}/logs", params={"offset": 4})
    assert (rest.text, rest.headers[LOG_OFFSET_HEADER]) == ("456789", "4")


def test_stderr_alone_is_asked_of_the_agent_and_the_answer_says_that_it_is_that(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    job = submit(ada, {**TRUE, "stderr": "apart"})
    kernel = kernel_of(ada, job)
    cluster.write(kernel, b"out\nwrong\n", stderr=b"wrong\n", ended=True)
    answer = ada.get(f"/v1/jobs/{job}/logs", params={"stderr": True})
    assert (answer.text, answer.headers[LOG_STREAM_HEADER]) == ("wrong\n", "stderr")
    follower = Follower(cluster, f"/v1/jobs/{job}/logs", stderr=1)
    follower.until("wrong\n")
    assert LOG_STREAM_HEADER not in ada.get(f"/v1/jobs/{job}/logs").headers
    session = submit(ada, {"kernels": [{**TRUE, "stderr": "apart"}]}, "/v1/sessions")
    (of_session,) = ada.get(f"/v1/sessions/{session}").json()["kernels"]
    cluster.write(of_session["id"], b"both", stderr=b"err", ended=True)
    assert ada.get(f"/v1/sessions/{session}/logs", params={"stderr": True}).text == "err"


def test_long_output_comes_whole(cluster: ServedCluster, ada: httpx.Client) -> None:
    job = submit(ada)
    data = b"".join(b"%09d\n" % number for number in range(100_000))
    cluster.write(kernel_of(ada, job), data, ended=True)
    assert ada.get(f"/v1/jobs/{job}/logs").content == data


def test_output_of_another_task_is_its_own(cluster: ServedCluster, ada: httpx.Client) -> None:
    job = submit(ada, {**TRUE, "tasks": 2, "resources": {"cpu": "100m"}})
    cluster.write(kernel_of(ada, job, 1), b"second")
    assert ada.get(f"/v1/jobs/{job}/logs", params={"task": 1}).text == "second"
    assert ada.get(f"/v1/jobs/{job}/logs").text == ""
    assert ada.get(f"/v1/jobs/{job}/logs", params={"task": 2}).status_code == 404


def test_following_goes_on_until_the_kernel_has_ended(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    job = submit(ada)
    kernel = kernel_of(ada, job)
    cluster.write(kernel, b"one ")
    follower = Follower(cluster, f"/v1/jobs/{job}/logs")
    follower.until("one ")
    cluster.write(kernel, b"two ")
    follower.until("one two ")
    cluster.write(kernel, b"three", ended=True)
    assert follower.ended()
    assert follower.text == "one two three"


def test_what_has_not_started_has_no_output_to_show(ada: httpx.Client) -> None:
    job = submit(ada, TOO_LARGE)
    answer = ada.get(f"/v1/jobs/{job}/logs")
    assert answer.status_code == 409
    assert "has no output yet because it is pending" in answer.json()["error"]


def test_following_what_has_not_started_waits_for_it(tmp_path: Path) -> None:
    cluster = ServedCluster(tmp_path, {})
    cluster.start()
    try:
        headers = {"Authorization": f"Bearer {cluster.token()}"}
        with httpx.Client(base_url=cluster.url, headers=headers) as http:
            job = submit(http)
            follower = Follower(cluster, f"/v1/jobs/{job}/logs")
            assert follower.headers[LOG_OFFSET_HEADER] == "0"
            cluster.run(cluster._add_agent("a1", LARGE))
            cluster.write(kernel_of(http, job), b"hello", ended=True)
            assert follower.ended()
            assert follower.text == "hello"
    finally:
        cluster.stop()


def test_following_ends_when_what_it_waits_for_is_cancelled(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    for body in (TOO_LARGE, {**TOO_LARGE, "tasks": 5000}):
        job = submit(ada, body)
        last = body.get("tasks", 1)
        assert isinstance(last, int)
        follower = Follower(cluster, f"/v1/jobs/{job}/logs", task=last - 1)
        ada.post(f"/v1/jobs/{job}/cancel")
        assert follower.ended()
        assert follower.text == ""
        again = ada.get(f"/v1/jobs/{job}/logs", params={"task": last - 1, "follow": True})
        assert (again.text, again.headers[LOG_END_HEADER]) == ("", "all")


def test_headers_tell_the_last_attempt_from_those_before_it(tmp_path: Path) -> None:
    cluster = ServedCluster(
        tmp_path, {"a1": LARGE}, behaviour=lambda start: Run(seconds=1, exit_code=1)
    )
    cluster.start()
    try:
        headers = {"Authorization": f"Bearer {cluster.token()}"}
        with httpx.Client(base_url=cluster.url, headers=headers) as http:
            job = submit(http, {**TRUE, "max_retries_failure": 1})
            cluster.pass_time(30)
            attempts = http.get(f"/v1/jobs/{job}/tasks/0").json()["attempts"]
            for number, kernel in enumerate(attempts, 1):
                cluster.write(kernel["id"], b"attempt %d" % number, ended=True)
            latest = http.get(f"/v1/jobs/{job}/logs")
            first = http.get(f"/v1/jobs/{job}/logs", params={"attempt": 1})
            none = http.get(f"/v1/jobs/{job}/logs", params={"attempt": 3})
            next_ = http.get(f"/v1/jobs/{job}/logs", params={"attempt": 3, "follow": True})
            far = http.get(f"/v1/jobs/{job}/logs", params={"attempt": 5, "follow": True})
            cluster.call(lambda: setattr(cluster, "unreachable", True))
            lost = http.get(f"/v1/jobs/{job}/logs", params={"attempt": 1, "follow": True})
    finally:
        cluster.stop()
    assert (latest.text, latest.headers[LOG_ATTEMPT_HEADER]) == ("attempt 2", "2")
    assert latest.headers[LOG_END_HEADER] == "all"
    assert (first.text, first.headers[LOG_END_HEADER]) == ("attempt 1", "attempt")
    assert (none.status_code, far.status_code) == (404, 404)
    assert (lost.status_code, lost.json()["error"]) == (502, "agent a1 is not connected")
    assert f"task {job}/0 has no attempt 3: its attempts are 1 to 2" in none.json()["error"]
    # Who follows asks for the next one, and may be told that there is none.
    assert (next_.text, next_.headers[LOG_END_HEADER]) == ("", "all")


@pytest.fixture
def unreachable(cluster: ServedCluster) -> Iterator[None]:
    cluster.call(lambda: setattr(cluster, "unreachable", True))
    yield
    cluster.call(lambda: setattr(cluster, "unreachable", False))


@pytest.mark.usefixtures("unreachable")
def test_agent_that_cannot_be_reached_is_a_clear_error(ada: httpx.Client) -> None:
    answer = ada.get(f"/v1/jobs/{submit(ada)}/logs")
    assert answer.status_code == 502
    assert answer.json()["code"] == "agent_unreachable"
    assert answer.json()["error"] == "agent a1 is not connected"


def test_following_waits_for_the_agent_of_a_kernel_that_may_run_still(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    job = submit(ada)
    cluster.write(kernel_of(ada, job), b"one ")
    cluster.call(lambda: setattr(cluster, "unreachable", True))
    answer = ada.get(f"/v1/jobs/{job}/logs", params={"follow": True, "offset": 4})
    cluster.call(lambda: setattr(cluster, "unreachable", False))
    assert (answer.status_code, answer.text) == (200, "")
    assert answer.headers[LOG_OFFSET_HEADER] == "4"
    assert answer.headers[LOG_END_HEADER] == "open"


def test_following_ends_where_rotation_took_output_away(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    job = submit(ada)
    kernel = kernel_of(ada, job)
    cluster.write(kernel, b"0123")
    follower = Follower(cluster, f"/v1/jobs/{job}/logs")
    follower.until("0123")

    def flood() -> None:
        output = cluster.outputs[kernel]  # type: ignore[index]
        output.data += b"45678"
        output.lost = 6
        output.grown.set()

    cluster.call(flood)
    assert follower.ended()
    assert follower.text == "0123"
    rest = ada.get(f"/v1/jobs/{job}/logs", params={"offset": 4})
    assert (rest.text, rest.headers[LOG_OFFSET_HEADER]) == ("678", "6")


def test_output_of_a_session_is_that_of_its_kernel(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    session = submit(ada, {"kernels": [{**TRUE, "replicas": 2}]}, "/v1/sessions")
    kernels = ada.get(f"/v1/sessions/{session}").json()["kernels"]
    cluster.write(kernels[1]["id"], b"second", ended=True)
    answer = ada.get(f"/v1/sessions/{session}/logs", params={"kernel": 1})
    assert (answer.text, answer.headers[LOG_END_HEADER]) == ("second", "all")
    assert ada.get(f"/v1/sessions/{session}/logs", params={"kernel": 2}).status_code == 404


def test_reader_that_leaves_ends_the_read_on_the_agent(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    job = submit(ada)
    kernel = kernel_of(ada, job)
    cluster.write(kernel, b"one")
    headers = {"Authorization": f"Bearer {cluster.token()}"}
    url = f"{cluster.url}/v1/jobs/{job}/logs"
    before = cluster.call(cluster.requests_under_way)
    with httpx.stream("GET", url, params={"follow": True}, headers=headers) as answer:
        pieces = answer.iter_bytes()
        assert next(pieces) == b"one"
        cluster.until(lambda: cluster.reads == 1)
    cluster.until(lambda: cluster.reads == 0)
    cluster.until(lambda: cluster.requests_under_way() == before)


def test_following_ends_when_the_server_stops(tmp_path: Path) -> None:
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    try:
        headers = {"Authorization": f"Bearer {cluster.token()}"}
        with httpx.Client(base_url=cluster.url, headers=headers) as http:
            job = submit(http)
            cluster.write(kernel_of(http, job), b"one")
        follower = Follower(cluster, f"/v1/jobs/{job}/logs")
        follower.until("one")
    finally:
        cluster.stop()
    assert follower.ended()
    assert follower.text == "one"


def test_reader_that_stops_reading_is_cut_off(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "STALLED_S", 0.2)
    job = submit(ada)
    cluster.write(kernel_of(ada, job), b"x" * 2**25, ended=True)
    before = cluster.call(cluster.requests_under_way)
    with ada.stream("GET", f"/v1/jobs/{job}/logs") as answer:
        assert answer.status_code == 200
        cluster.until(lambda: cluster.requests_under_way() == before)
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()


def test_wait_too_many_for_output_is_refused_with_a_sentence(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.app.state.api.changes, "_waiting", Allowance("waits", 1, 0))
    job = submit(ada, TOO_LARGE)
    answer = ada.get(f"/v1/jobs/{job}/logs", params={"follow": True})
    assert (answer.status_code, answer.json()["code"]) == (429, "busy")
