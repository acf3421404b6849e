"""After a failed commit the mirror is ahead of SQL for a while: nobody is told of it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from proving.hollow.supervisor import Run
from sqlalchemy.exc import OperationalError
from tests.api.served import ADMIN, LARGE, LIMIT_S, ROOT, ServedCluster
from tests.api.test_waiting import TRUE, in_background, wait

from muster.api.resources.sessions import SESSIONS
from muster.control.job.requests import JobRequests
from muster.core.owner import Role
from muster.store.store import CommitFailed
from muster.store.unit import Unit

RUN_S = 5.0
SHOWN = replace(SESSIONS, path="/v1/shown", show=None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    """The first kernel runs for RUN_S, others for long."""
    runs = [Run(RUN_S)]
    cluster = ServedCluster(
        tmp_path,
        {"a1": LARGE},
        behaviour=lambda start: runs.pop() if runs else Run(3600.0),
        more_resources=[SHOWN],
    )
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def ada(cluster: ServedCluster) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {cluster.token()}"}
    with httpx.Client(base_url=cluster.url, headers=headers) as http:
        yield http


def submit(ada: httpx.Client, tasks: int) -> Any:
    return ada.post("/v1/jobs", json={**TRUE, "tasks": tasks}).raise_for_status().json()


def full(unit: Unit) -> None:
    raise CommitFailed("database or disk is full")


def end_the_first_kernel_in_the_mirror_alone(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end() -> None:
        cluster.paused = True
        cluster.clock.advance(RUN_S)
        (agent,) = cluster._agents.values()
        agent.tick()
        cluster.desk.agent_said(agent.id, agent.all_reports())
        cluster.plane.step()

    monkeypatch.setattr(cluster.store, "commit", full)
    cluster.call(end)
    assert cluster.plane.is_broken


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("asks_for_changes", [False, True])
def test_wait_tells_no_change_that_was_not_committed(
    cluster: ServedCluster,
    ada: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    tasks: int,
    *,
    asks_for_changes: bool,
) -> None:
    job = submit(ada, tasks)
    shown = ada.get(f"/v1/jobs/{job['id']}").json()
    waiting = wait(cluster, job["id"], 1.0, since=shown["version"] if asks_for_changes else None)
    end_the_first_kernel_in_the_mirror_alone(cluster, monkeypatch)
    told = waiting.result(LIMIT_S).json()
    assert (told["state"], told["counts"]) == ("RUNNING", {"RUNNING": tasks})


def test_wait_that_begins_while_nothing_can_be_stored_ends_once_the_end_is_committed(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(ada, tasks=1)["id"]
    with monkeypatch.context() as patch:
        end_the_first_kernel_in_the_mirror_alone(cluster, patch)
        waiting = wait(cluster, job, LIMIT_S)
        assert not waiting.done()
    cluster.clock.advance(2.0)  # the plane waits before it goes on
    cluster.resume()
    assert waiting.result(LIMIT_S).json()["state"] == "SUCCEEDED"


@pytest.mark.parametrize("endpoint", ["", "/why"])
def test_session_is_shown_as_it_was_committed(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    kernel = {"command": ["x"], "resources": {"cpu": 1}}
    with cluster.client() as client:
        session = client.submit({"kind": "session", "kernels": [kernel]})
    path = f"/v1/shown/{session.id}{endpoint}"
    before = ada.get(path).json()["status"]
    end_the_first_kernel_in_the_mirror_alone(cluster, monkeypatch)
    told = ada.get(path).json()
    assert told["status"] == before == "RUNNING"
    assert not told.get("ended")


def test_submission_is_answered_as_it_was_committed(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_it_but_not_its_end() -> None:
        cluster.plane.step()
        (job,) = cluster.plane.live.jobs
        monkeypatch.setattr(cluster.store, "commit", full)
        cluster.plane.ask(
            lambda work, parts: parts[JobRequests].cancel(work, ROOT, job), lambda *_: None
        )
        cluster.plane.step()

    cluster.paused = True
    answer = in_background(lambda: ada.post("/v1/jobs", json=TRUE))
    cluster.until(lambda: bool(cluster.inbox))
    cluster.call(commit_it_but_not_its_end)
    told = answer.result(LIMIT_S)
    assert (told.status_code, told.json()["state"]) == (201, "RUNNING")


def test_why_nothing_can_be_stored_is_told_to_admins_alone(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(ada, tasks=1)
    with cluster.client(ADMIN, Role.ADMIN) as admin, cluster.client() as user:
        assert admin.cluster().trouble is None
        end_the_first_kernel_in_the_mirror_alone(cluster, monkeypatch)
        assert admin.cluster().trouble == (
            "the change could not be stored: database or disk is full; what runs goes on, and "
            "changes are refused until this is mended"
        )
        assert user.cluster().trouble is None
    health = httpx.get(f"{cluster.url}/health").json()
    assert (health["status"], "disk" in health["reason"]) == ("degraded", False)


def test_cause_of_a_refused_change_or_read_is_told_to_admins_alone(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unreadable:
        def connect(self) -> NoReturn:
            raise OperationalError("SELECT", None, Exception("no answer from 10.0.0.5"))

    admin = {"Authorization": f"Bearer {cluster.token(ADMIN, Role.ADMIN)}"}
    monkeypatch.setattr(cluster.app.state.api.reader, "_engine", Unreadable())
    monkeypatch.setattr(cluster.store, "commit", full)
    cluster.paused = True
    asked = [
        in_background(partial(ada.request, method, path, json=body, headers=who))
        for method, path, body in (("POST", "/v1/jobs", TRUE), ("GET", "/v1/jobs?state=all", None))
        for who in (None, admin)
    ]
    cluster.until(lambda: len([*cluster.inbox.waiting()]) == 2)
    cluster.resume()
    assert [each.result(LIMIT_S).json()["error"] for each in asked] == [
        "the change could not be stored; `muster doctor` tells an admin why",
        "the change could not be stored: database or disk is full",
        "the database cannot be read; `muster doctor` tells an admin why",
        "the database cannot be read: no answer from 10.0.0.5",
    ]


def test_submission_whose_commit_only_seemed_to_fail_is_answered_with_its_job_once_repeated(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = cluster.store.commit

    def lose_the_answer(unit: Unit) -> None:
        commit(unit)
        raise CommitFailed("the connection was lost")

    key = {"Idempotency-Key": "unknown"}
    with monkeypatch.context() as patch:
        patch.setattr(cluster.store, "commit", lose_the_answer)
        assert ada.post("/v1/jobs", json=TRUE, headers=key).status_code == 503
    cluster.pass_time(2.0)
    again = ada.post("/v1/jobs", json=TRUE, headers=key)
    assert again.status_code == 200
    (job,) = ada.get("/v1/jobs", params={"state": "all"}).json()["items"]
    assert job["id"] == again.json()["id"]


def test_part_beside_the_plane_that_failed_is_told_to_admins_alone(cluster: ServedCluster) -> None:
    def fail_beside() -> None:
        api = cluster.app.state.api
        cluster.app.state.api = replace(api, trouble_beside=lambda: "the watch failed: 'x'")

    cluster.call(fail_beside)
    with cluster.client(ADMIN, Role.ADMIN) as admin, cluster.client() as user:
        assert admin.cluster().trouble == "the watch failed: 'x'"
        assert user.cluster().trouble is None
    health = httpx.get(f"{cluster.url}/health").json()
    assert (health["status"], "watch" in health["reason"]) == ("degraded", False)
