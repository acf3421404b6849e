"""Long polls: told at once of an end, of changes, and of nothing else."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.served import LARGE, LIMIT_S, ServedCluster

from muster.api.resources import jobs

TRUE = {"command": ["true"], "resources": {"cpu": "10m"}}


def in_background(call: Callable[[], httpx.Response]) -> "Future[httpx.Response]":
    future: Future[httpx.Response] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def submit(http: httpx.Client, **fields: Any) -> Any:
    answer = http.post("/v1/jobs", json={**TRUE, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def wait(
    cluster: ServedCluster, job: str, timeout_s: float, since: str | None = None
) -> "Future[httpx.Response]":
    """A wait that has reached the server."""
    before = cluster.call(cluster.requests_under_way)
    params = {"timeout_s": str(timeout_s), **({"since": since} if since else {})}
    headers = {"Authorization": f"Bearer {cluster.token()}"}
    answer = in_background(
        lambda: httpx.get(
            f"{cluster.url}/v1/jobs/{job}/wait", params=params, headers=headers, timeout=2 * LIMIT_S
        )
    )
    cluster.until(lambda: cluster.requests_under_way() > before or answer.done())
    return answer


def test_wait_ends_when_the_job_does(cluster: ServedCluster, ada: httpx.Client) -> None:
    job = submit(ada)["id"]
    waiting = wait(cluster, job, 15)
    assert not waiting.done()
    ada.post(f"/v1/jobs/{job}/cancel")
    answer = waiting.result(LIMIT_S).json()
    assert (answer["state"], answer["counts"]) == ("KILLED", {"KILLED": 1})


def test_wait_for_what_has_ended_answers_at_once(cluster: ServedCluster, ada: httpx.Client) -> None:
    job = submit(ada, name="over")["id"]
    ada.post(f"/v1/jobs/{job}/cancel")
    assert wait(cluster, job, 15).result(LIMIT_S).json()["state"] == "KILLED"
    assert wait(cluster, "over", 15).result(LIMIT_S).json()["id"] == job


def test_wait_since_an_older_version_answers_with_the_newer(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    job = submit(ada)
    seen = wait(cluster, job["id"], 15, since="PENDING-PENDING.1").result(LIMIT_S).json()
    assert seen["state"] == "RUNNING"
    waiting = wait(cluster, job["id"], 15, since=seen["version"])
    assert not waiting.done()
    ada.post(f"/v1/jobs/{job['id']}/cancel")
    assert waiting.result(LIMIT_S).json()["state"] == "KILLED"


def test_wait_answers_with_the_job_as_it_is_when_its_time_is_over(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    job = submit(ada)
    answer = wait(cluster, job["id"], 0.05, since=job["version"]).result(LIMIT_S)
    assert (answer.status_code, answer.json()["id"]) == (200, job["id"])


@pytest.mark.parametrize("timeout_s", ["-1", "61", "x", "nan", "inf"])
def test_wait_of_an_absurd_length_is_refused(ada: httpx.Client, timeout_s: str) -> None:
    answer = ada.get("/v1/jobs/any/wait", params={"timeout_s": timeout_s})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "timeout_s"


def test_change_is_held_back_a_moment_for_others_to_come(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    job = submit(ada)["id"]
    began_s = time.monotonic()
    assert wait(cluster, job, 15, since="older").result(LIMIT_S).json()["state"] == "RUNNING"
    assert time.monotonic() - began_s >= jobs.COALESCE_S


def test_end_is_told_at_once_even_while_a_change_is_held_back(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "COALESCE_S", 2 * LIMIT_S)
    job = submit(ada)["id"]
    waiting = wait(cluster, job, 2 * LIMIT_S, since="older")
    assert not waiting.done()
    ada.post(f"/v1/jobs/{job}/cancel")
    assert waiting.result(LIMIT_S).json()["state"] == "KILLED"


def test_waits_end_when_the_server_stops(tmp_path: Path) -> None:
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    try:
        with httpx.Client(
            base_url=cluster.url, headers={"Authorization": f"Bearer {cluster.token()}"}
        ) as http:
            job = submit(http)["id"]
        waiting = wait(cluster, job, 15)
    finally:
        cluster.stop()
    assert waiting.result(LIMIT_S).json()["state"] == "RUNNING"
