"""Submissions: accepted once, or refused whole."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.served import LARGE, ServedCluster

from muster.api import submissions
from muster.api.submissions import FORGET_EVERY_S, KEPT_S
from muster.core.reasons import NEEDS_AGENT
from muster.store.submissions import read_submissions

TRUE = {"command": ["true"]}
YAML = {"Content-Type": "application/yaml"}


def live_jobs(http: httpx.Client) -> list[str]:
    return [item["id"] for item in http.get("/v1/jobs?state=all&limit=1000").json()["items"]]


def test_job_is_accepted_as_json_and_as_yaml(ada: httpx.Client) -> None:
    as_json = ada.post("/v1/jobs", json={"command": ["true"], "tasks": 2})
    as_yaml = ada.post("/v1/jobs", content="command: 'true'\ntasks: 2\n", headers=YAML)
    for answer in (as_json, as_yaml):
        assert answer.status_code == 201, answer.text
        assert answer.json()["tasks_total"] == 2
        assert answer.json()["owner"] == {"domain": "default", "project": "default", "user": "ada"}


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        ("/v1/jobs", {**TRUE, "resources": {"cpu": 1000}}),
        ("/v1/sessions", {"kernels": [{**TRUE, "resources": {"cpu": 1000}}]}),
    ],
)
def test_submission_that_no_agent_could_hold_is_accepted_with_a_warning(
    ada: httpx.Client, path: str, spec: dict[str, Any]
) -> None:
    answer = ada.post(path, json=spec)
    assert answer.status_code == 201, answer.text
    (warning,) = answer.json()["warnings"]
    assert warning["code"] in NEEDS_AGENT
    assert not ada.get(f"{path}/{answer.json()['id']}").json()["warnings"]
    small = json.loads(json.dumps(spec).replace("1000", "0"))
    assert not ada.post(path, json=small).json()["warnings"]


@pytest.mark.parametrize(
    ("path", "spec", "names"),
    [
        ("/v1/jobs", {**TRUE, "env": {"CUDA_VISIBLE_DEVICES": "1"}}, "CUDA_VISIBLE_DEVICES"),
        (
            "/v1/sessions",
            {"kernels": [{**TRUE, "replicas": 2, "env": {"RANK": "0", "WORLD_SIZE": "9"}}]},
            "RANK, WORLD_SIZE",
        ),
        ("/v1/deployments", {**TRUE, "name": "chat", "env": {"PORT": "80"}}, "PORT"),
    ],
)
def test_variables_that_a_spec_sets_in_vain_are_told_when_it_is_handed_in(
    ada: httpx.Client, path: str, spec: dict[str, Any], names: str
) -> None:
    answer = ada.post(path, json=spec)
    assert answer.status_code == 201, answer.text
    (warning,) = answer.json()["warnings"]
    assert warning["code"] == "VARIABLES_NOT_USED"
    assert warning["sentence"].startswith(f"its values of {names} are not used: Muster sets ")


@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
        ({**TRUE, "taks": 3}, "taks", "did you mean tasks?"),
        ({}, "command", "missing"),
        ({"command": [], "tasks": 1}, "command", "at least 1 item"),
        ({**TRUE, "tasks": 0}, "tasks", "at least 1"),
        ({**TRUE, "tasks": 10_001, "coscheduled": True}, "spec", "at most 10000"),
        ({**TRUE, "resources": {"cpu": -1}}, "resources.cpu", "not less than 0"),
        ({**TRUE, "resources": {"memory": "much"}}, "resources.memory", "16GiB"),
        ({**TRUE, "workdir": "../x"}, "workdir", "absolute path"),
        ({**TRUE, "files": {"../x": ""}}, "files", "inside the working directory"),
        ({**TRUE, "group": "nowhere"}, "group", "groups are: default"),
        ({**TRUE, "kind": "session"}, "kind", "'job'"),
        ({**TRUE, "timeout": "NaN"}, "timeout", "duration"),
        ([], "spec", "keys with values"),
        ("text", "spec", "keys with values"),
        (None, "spec", "keys with values"),
    ],
)
def test_wrong_job_is_refused_whole_with_field_and_remedy(
    ada: httpx.Client, body: Any, field: str, told: str
) -> None:
    before = live_jobs(ada)
    answer = ada.post("/v1/jobs", content=json.dumps(body))
    assert answer.status_code == 422, answer.text
    found = answer.json()
    assert [problem["field"] for problem in found["problems"]] == [field]
    assert told in found["problems"][0]["expected"]
    assert told in found["error"]
    assert live_jobs(ada) == before


def test_every_problem_of_a_spec_is_told(ada: httpx.Client) -> None:
    answer = ada.post("/v1/jobs", json={"tasks": -1, "priority": 200, "x": 1})
    fields = {problem["field"] for problem in answer.json()["problems"]}
    assert fields == {"command", "tasks", "priority", "x"}


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"{", {}),
        (b"", {}),
        (b'{"command": ["true"], "tasks": NaN}', {}),
        (b"\xff\xfe", {}),
        (b"[" * 100_000, {}),
        (b"command: [", YAML),
        (b"\xff", YAML),
        (b"kind: session\nkernels: [{command: 'true'}]", YAML),
        (b"command: 'true'\nenv: {A: &value b, B: *value}", YAML),
        (b"- 1", YAML),
        (b"", YAML),
    ],
)
def test_unreadable_body_is_refused_with_a_sentence(
    ada: httpx.Client, content: bytes, headers: dict[str, str]
) -> None:
    answer = ada.post("/v1/jobs", content=content, headers=headers)
    assert answer.status_code == 422, answer.text
    assert answer.json()["problems"]


@pytest.mark.parametrize(
    ("size_bytes", "headers"), [(1_100_000, {}), (70_000, YAML), (50_000_000, {})]
)
def test_body_that_is_too_long_is_refused(
    ada: httpx.Client, size_bytes: int, headers: dict[str, str]
) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(size_bytes // 10_000):
            yield b"x" * 10_000

    try:
        answer = ada.post("/v1/jobs", content=pieces(), headers=headers)
    except httpx.WriteError:
        return  # the server closed on it before all was sent: refused all the same
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"


def test_spec_as_long_as_a_spec_may_be_is_accepted(ada: httpx.Client) -> None:
    env = {f"NAME_{number}": "x" * 131_000 for number in range(7)}
    answer = ada.post("/v1/jobs", json={**TRUE, "env": env, "resources": {"cpu": 999}})
    assert answer.status_code == 201, answer.text


def test_body_that_breaks_off_changes_nothing(cluster: ServedCluster, ada: httpx.Client) -> None:
    before = live_jobs(ada)
    host, port = cluster.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {cluster.token()}\r\n"
        connection.sendall(f'{head}Content-Length: 100\r\n\r\n{{"command":'.encode())
    assert live_jobs(ada) == before


def test_name_that_is_taken_is_a_conflict(ada: httpx.Client, bob: httpx.Client) -> None:
    named = {**TRUE, "name": "unique"}
    first = ada.post("/v1/jobs", json=named)
    second = ada.post("/v1/jobs", json=named)
    assert (first.status_code, second.status_code) == (201, 409)
    assert first.json()["id"] in second.json()["error"]
    assert bob.post("/v1/jobs", json=named).status_code == 201, "another owner's names are free"


# -- once ----------------------------------------------------------------------------------------


def test_repeated_submission_is_the_same_job(ada: httpx.Client, bob: httpx.Client) -> None:
    key = {"Idempotency-Key": "same"}
    first = ada.post("/v1/jobs", json=TRUE, headers=key)
    again = ada.post("/v1/jobs", json=TRUE, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    others = [
        ada.post("/v1/jobs", json=TRUE, headers={"Idempotency-Key": "other"}),
        bob.post("/v1/jobs", json=TRUE, headers=key),
        ada.post("/v1/jobs", json=TRUE),
    ]
    ids = {first.json()["id"], *(answer.json()["id"] for answer in others)}
    assert [answer.status_code for answer in others] == [201] * 3
    assert len(ids) == 4


def test_repeated_session_is_the_same_session(ada: httpx.Client) -> None:
    key = {"Idempotency-Key": "session"}
    body = {"kernels": [TRUE]}
    first = ada.post("/v1/sessions", json=body, headers=key)
    again = ada.post("/v1/sessions", json=body, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]


def test_submissions_that_arrive_together_make_one_job(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    headers = {"Idempotency-Key": "together", "Authorization": f"Bearer {cluster.token()}"}

    def submit(_: int) -> str:
        answer = httpx.post(cluster.url + "/v1/jobs", json=TRUE, headers=headers)
        id_: str = answer.json()["id"]
        return id_

    before = len(live_jobs(ada))
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(submit, range(8)))
    assert len(ids) == 1
    assert len(live_jobs(ada)) == before + 1


def test_refused_submission_may_be_corrected_under_the_same_key(ada: httpx.Client) -> None:
    key = {"Idempotency-Key": "corrected"}
    assert ada.post("/v1/jobs", json={**TRUE, "group": "no"}, headers=key).status_code == 422
    assert ada.post("/v1/jobs", json=TRUE, headers=key).status_code == 201


def test_submissions_beyond_the_limit_are_forgotten_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "MAX_KEPT", 10)
    cluster = ServedCluster(tmp_path, {})
    cluster.start()

    def submit(number: int) -> int:
        headers = {"Idempotency-Key": str(number), "Authorization": f"Bearer {cluster.token()}"}
        return httpx.post(cluster.url + "/v1/jobs", json=TRUE, headers=headers).status_code

    try:
        for number in range(30):
            assert submit(number) == 201
            cluster.pass_time(1)
        cluster.down()
        cluster.up()
        assert submit(29) == 200
        assert submit(0) == 201
        with cluster.store.engine.connect() as connection:
            assert len(read_submissions(connection)) < 15
    finally:
        cluster.stop()


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_key_of_an_absurd_length_is_refused(ada: httpx.Client, key: str) -> None:
    answer = ada.post("/v1/jobs", json=TRUE, headers={"Idempotency-Key": key})
    assert answer.json()["problems"][0]["field"] == "Idempotency-Key"


def test_submission_repeated_after_a_restart_is_the_same_job(tmp_path: Path) -> None:
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    try:
        headers = {"Idempotency-Key": "k", "Authorization": f"Bearer {cluster.token()}"}
        first = httpx.post(cluster.url + "/v1/jobs", json=TRUE, headers=headers)
        httpx.post(f"{cluster.url}/v1/jobs/{first.json()['id']}/cancel", headers=headers)
        cluster.down()
        cluster.up()
        again = httpx.post(cluster.url + "/v1/jobs", json=TRUE, headers=headers)
        assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])

        # Once nobody can mean it any more it is forgotten, in memory and on disk.
        cluster.pass_time(KEPT_S + FORGET_EVERY_S)
        late = {**headers, "Idempotency-Key": "late"}
        assert httpx.post(cluster.url + "/v1/jobs", json=TRUE, headers=late).status_code == 201
        cluster.down()
        cluster.up()
        afresh = httpx.post(cluster.url + "/v1/jobs", json=TRUE, headers=headers)
        assert afresh.status_code == 201
        assert afresh.json()["id"] != first.json()["id"]
    finally:
        cluster.stop()
