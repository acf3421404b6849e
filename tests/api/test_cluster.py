"""The cluster over HTTP: what is free of its agents, its groups, itself, its description."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from proving.hollow.supervisor import Run
from tests.api.served import LARGE, ServedCluster
from tests.control.driven_agent import task_index

from muster.core.errors import NotFound
from muster.core.owner import Role
from muster.core.states import AgentBar
from muster.wire.messages import Start

TRUE = {"command": ["true"], "resources": {"cpu": "10m"}}


def test_agents_tell_what_they_have_and_what_is_free(tmp_path: Path) -> None:
    cluster = ServedCluster(tmp_path, {"a1": LARGE}, gpus=2)
    cluster.start()
    try:
        headers = {"Authorization": f"Bearer {cluster.token()}"}
        with httpx.Client(base_url=cluster.url, headers=headers) as http:
            http.post("/v1/jobs", json={**TRUE, "resources": {"cpu": "1500m", "memory": "1GiB"}})
            http.post("/v1/jobs", json={**TRUE, "resources": {"cpu": 0, "gpu": 0.25}})
            (agent,) = http.get("/v1/agents").json()["items"]
            absent = http.get("/v1/agents", params={"group": "defualt"})
            mine = http.get("/v1/agents", params={"group": "default"}).json()["items"]
            whole = http.get("/v1/cluster").json()
            groups = http.get("/v1/groups").json()["items"]
    finally:
        cluster.stop()
    assert (agent["name"], agent["status"], agent["kernels"]) == ("a1", "ALIVE", 2)
    assert agent["connected"] is True
    assert agent["capacity"] == {
        "cpu_milli": 4000,
        "memory_bytes": 2**33,
        "disk_bytes": 0,
        "gpu_milli": 2000,
        "extra": {},
    }
    assert agent["free"]["cpu_milli"] == 2500
    assert agent["free"]["gpu_milli"] == 1750
    assert agent["held"]["memory_bytes"] == 2**30
    assert [device["free"] for device in agent["devices"]] == [0.75, 1.0]
    assert absent.status_code == 404
    assert absent.json()["error"] == "there is no group 'defualt'; did you mean 'default'?"
    assert mine == [agent]
    assert (whole["agents"], whole["jobs"], whole["kernels"]) == ({"ALIVE": 1}, 2, 2)
    (group,) = groups
    assert (group["name"], group["agents"], group["waiting"]) == ("default", 1, 0)
    assert (group["statuses"], group["devices"]) == ({"ALIVE": 1}, 2)
    assert group["devices_free"] == 1.75


def test_why_tells_how_many_agents_were_looked_at_and_what_they_lack(ada: httpx.Client) -> None:
    job = ada.post("/v1/jobs", json={**TRUE, "resources": {"gpu": 9}}).json()["id"]
    why = ada.get(f"/v1/jobs/{job}/why").json()
    assert (why["subject"], why["status"]) == (job, "PENDING")
    (reason,) = why["reasons"]
    assert (reason["code"], reason["kind"]) == ("NEVER_FITS", "request")
    assert "none of 2 agents" in reason["sentence"]
    assert "Ask for less" in reason["remedy"]
    assert why["placement"]["agents"] == 2


def test_amounts_in_a_reason_are_numbers_and_their_unit_is_told(ada: httpx.Client) -> None:
    job = ada.post("/v1/jobs", json={**TRUE, "resources": {"memory": "9TiB"}}).json()["id"]
    (request,) = ada.get(f"/v1/jobs/{job}/why").json()["placement"]["requests"]
    (reason,) = request["groups"][0]["shortfalls"]
    assert reason["numbers"]["requested"] == 9 * 2**40
    assert (reason["numbers"]["resource"], reason["numbers"]["unit"]) == ("memory", "bytes")
    assert reason["sentence"].startswith("memory: 9TiB asked, the agent has ")


def test_why_of_a_task_tells_its_run_its_wait_and_its_end(tmp_path: Path) -> None:
    cluster = ServedCluster(
        tmp_path,
        {"a1": LARGE},
        behaviour=lambda start: Run(5.0 if task_index(start) else 60.0, exit_code=3),
    )
    cluster.start()
    try:
        with cluster.client() as client:
            client.submit({**TRUE, "tasks": 2, "name": "prep", "keep_going": True})
            large = client.submit({**TRUE, "name": "large", "resources": {"gpu": 9}})
            cluster.pass_time(10.0)
            runs, ended = client.why_task("prep", 0), client.why_task("prep", 1)
            waits = client.why_task("large", 0)
            assert waits.reasons == client.why(large.id).reasons
            with pytest.raises(NotFound, match="no task 2"):
                client.why_task("prep", 2)
    finally:
        cluster.stop()
    assert (runs.verdict, runs.output) == ("prep/0 has run for 10s on a1", "prep/0")
    assert re.fullmatch(r"prep/1 ended [5-9]s ago after 5s", ended.verdict)
    assert ended.details == ("task 1 failed on a1: exited with code 3",)
    assert [reason.code for reason in waits.reasons] == ["NEVER_FITS"]


def test_why_of_what_has_ended_tells_how(ada: httpx.Client) -> None:
    job = ada.post("/v1/jobs", json=TRUE).json()["id"]
    ada.post(f"/v1/jobs/{job}/cancel")
    why = ada.get(f"/v1/jobs/{job}/why").json()
    assert re.fullmatch(r"\S+ ended \S+ ago after \S+", why["verdict"])
    assert [reason["code"] for reason in why["reasons"]] == ["CANCELLED"]
    assert why["reasons"][0]["sentence"] == "cancelled by ada"


def test_why_of_work_tells_where_it_runs_and_later_how_it_ended(tmp_path: Path) -> None:
    def behaviour(start: Start) -> Run:
        return Run(60.0, exit_code=0 if "MUSTER_TASK_INDEX" not in start.env else task_index(start))

    cluster = ServedCluster(tmp_path, {"a1": LARGE}, behaviour=behaviour)
    cluster.start()
    try:
        with cluster.client() as client:
            client.submit({**TRUE, "tasks": 2, "name": "prep", "keep_going": True})
            session = client.submit({"kind": "session", "kernels": [TRUE]}).id
            cluster.pass_time(10.0)
            job_runs, session_runs = client.why("prep"), client.why(session)
            cluster.pass_time(65.0)
            job_ended, session_ended = client.why("prep"), client.why(session)
    finally:
        cluster.stop()
    assert job_runs.details == ("prep has run for 10s on a1",)
    assert session_runs.details == ("it has run for 10s on a1",)
    assert (job_runs.output, session_runs.output) == ("prep", session)
    assert re.fullmatch(
        r"prep ended 1\ds ago after 1m00s: 1 succeeded, 1 failed", job_ended.verdict
    )
    assert job_ended.details == ("task 1 ran on a1",)
    assert (job_ended.name, job_ended.output) == ("prep", "prep/1")
    assert re.fullmatch(r"it ended 1\ds ago after 1m00s", session_ended.verdict)
    assert (session_ended.name, session_ended.output) == (session, session)


def test_cancelling_says_how_long_what_runs_may_take_to_end(ada: httpx.Client) -> None:
    def said(path: str, spec: dict[str, Any]) -> str:
        id_ = ada.post(path, json=spec).json()["id"]
        message: str = ada.post(f"{path}/{id_}/cancel").json()["message"]
        return message

    assert said("/v1/jobs", TRUE).endswith("is cancelled; its processes have up to 10 s to end")
    assert said("/v1/jobs", {**TRUE, "grace": "90s"}).endswith("have up to 90 s to end")
    assert said("/v1/jobs", {**TRUE, "resources": {"gpu": 9}}).endswith("is cancelled")
    kernels = [{**TRUE, "grace": 5}, {**TRUE, "grace": 7}]
    assert said("/v1/sessions", {"kernels": kernels}).endswith("have up to 7 s to end")
    waits = [{**TRUE, "resources": {"gpu": 9}}]
    assert said("/v1/sessions", {"kernels": waits}).endswith("is cancelled")


def test_cancelling_again_says_that_it_had_ended(ada: httpx.Client) -> None:
    job = ada.post("/v1/jobs", json=TRUE).json()["id"]
    first = ada.post(f"/v1/jobs/{job}/cancel").json()
    again = ada.post(f"/v1/jobs/{job}/cancel")
    assert first["changed"] is True
    assert (again.status_code, again.json()["changed"]) == (200, False)
    assert "had ended already: it is killed" in again.json()["message"]


def test_session_is_cancelled_and_one_of_a_job_is_not(ada: httpx.Client) -> None:
    session = ada.post("/v1/sessions", json={"kernels": [TRUE]}).json()["id"]
    assert ada.post(f"/v1/sessions/{session}/cancel").json()["changed"] is True
    assert ada.post(f"/v1/sessions/{session}/cancel").json()["changed"] is False
    job = ada.post("/v1/jobs", json=TRUE).json()
    of_job = ada.get(f"/v1/jobs/{job['id']}/tasks/0").json()["session_id"]
    answer = ada.post(f"/v1/sessions/{of_job}/cancel")
    assert answer.status_code == 409
    assert f"belongs to job {job['name']}:" in answer.json()["error"]


def test_group_is_made_and_given_another_policy(admin: httpx.Client) -> None:
    made = admin.put("/v1/groups/large", json={"name": "large", "max_tries": 5})
    assert made.status_code == 200, made.text
    assert (made.json()["spec"]["max_tries"], made.json()["agents"]) == (5, 0)
    admin.put("/v1/groups/large", json={**made.json()["spec"], "max_tries": 7})
    groups = admin.get("/v1/groups").json()["items"]
    assert [(group["name"], group["spec"]["max_tries"]) for group in groups] == [
        ("default", 3),
        ("large", 7),
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"name": "other"}, "'g'"),
        ({"name": "g", "max_tries": 0}, "max_tries"),
        ({"name": "g", "selektor": "x"}, "did you mean selector?"),
        ({"name": "g", "selector": "nonsense"}, "nonsense"),
    ],
)
def test_wrong_group_is_refused(admin: httpx.Client, body: dict[str, object], told: str) -> None:
    answer = admin.put("/v1/groups/g", json=body)
    assert answer.status_code in (400, 422)
    assert told in answer.json()["error"]
    assert "g" not in [group["name"] for group in admin.get("/v1/groups").json()["items"]]


def test_agent_that_is_alive_is_not_removed(admin: httpx.Client) -> None:
    answer = admin.delete("/v1/agents/a1")
    assert answer.status_code == 409
    assert "is alive" in answer.json()["error"]
    assert admin.delete("/v1/agents/nothing").status_code == 404


def test_history_is_read_by_job_task_and_agent(ada: httpx.Client) -> None:
    job = ada.post("/v1/jobs", json=TRUE).json()["id"]
    whole = ada.get(f"/v1/history/{job}").json()["items"]
    assert job in {item["entity"] for item in whole}
    assert ada.get(f"/v1/history/{job}/0").status_code == 200
    assert ada.get("/v1/history/a1").json()["items"][0]["phase"] == "Join"
    assert ada.get("/v1/history/nothing").status_code == 404
    assert ada.get(f"/v1/history/{job}", params={"limit": 1001}).status_code == 422


@pytest.mark.parametrize(
    ("path", "params", "field"),
    [
        ("/v1/jobs", {"state": "nonsense"}, "state"),
        ("/v1/jobs", {"limit": "0"}, "limit"),
        ("/v1/jobs", {"limit": "1001"}, "limit"),
        ("/v1/jobs/x/tasks", {"offset": "-1"}, "offset"),
        ("/v1/jobs/x/tasks", {"state": "nonsense"}, "state"),
        ("/v1/jobs/x/tasks/y", {}, "index"),
        ("/v1/jobs/x/logs", {"tail_bytes": "0"}, "tail_bytes"),
        ("/v1/sessions", {"state": "RUNNIN"}, "state"),
    ],
)
def test_wrong_parameter_is_named(
    ada: httpx.Client, path: str, params: dict[str, str], field: str
) -> None:
    answer = ada.get(path, params=params)
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["problems"]] == [field]


def test_what_the_api_does_not_have_is_told_as_json(ada: httpx.Client) -> None:
    for method, path, status in (
        ("GET", "/v1/nothing", 404),
        ("PATCH", "/v1/jobs", 405),
        ("GET", "/v1/jobs/", 404),
    ):
        answer = ada.request(method, path)
        assert answer.status_code == status
        assert f"the API has no {method} {path}" in answer.json()["error"]
        assert answer.headers.get("allow") == ("GET, HEAD, POST" if status == 405 else None)


@pytest.mark.parametrize("path", ["/health", "/v1/jobs", "/v1/jobs/nothing", "/v1/openapi.json"])
def test_head_is_answered_as_get_is_without_the_body(ada: httpx.Client, path: str) -> None:
    whole, head = ada.get(path), ada.head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert {**head.headers, "date": ""} == {**whole.headers, "date": ""}


def test_head_of_what_has_no_end_ends(ada: httpx.Client) -> None:
    answer = ada.head("/v1/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert ada.get("/health").status_code == 200


def test_description_names_every_path_with_errors_specs_and_tokens(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    document = ada.get("/v1/openapi.json").json()
    assert set(document["paths"]) >= {
        "/health",
        "/v1/jobs",
        "/v1/jobs/{ref}",
        "/v1/jobs/{ref}/cancel",
        "/v1/jobs/{ref}/logs",
        "/v1/jobs/{ref}/tasks",
        "/v1/jobs/{ref}/tasks/{index}",
        "/v1/jobs/{ref}/tasks/{index}/why",
        "/v1/jobs/{ref}/wait",
        "/v1/jobs/{ref}/why",
        "/v1/sessions",
        "/v1/history/{ref}",
        "/v1/agents",
        "/v1/agents/{ref}",
        "/v1/groups",
        "/v1/groups/{name}",
        "/v1/cluster",
        "/v1/events",
    }
    known = set(document["components"]["schemas"])
    text = ada.get("/v1/openapi.json").text
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= known, "every reference leads somewhere"
    assert {"JobSpec", "SessionSpec", "ScalingGroup", "JobView", "ErrorView"} <= known
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert "4XX" in operation["responses"]
            assert ("security" in operation) == (path != "/health")


def test_drained_agent_has_a_note_and_a_deadline(admin: httpx.Client, ada: httpx.Client) -> None:
    drained = {"bar": "draining", "note": "new disk", "deadline": "10m"}
    assert ada.post("/v1/agents/a1/bar", json=drained).status_code == 403
    told = admin.post("/v1/agents/a1/bar", json=drained).json()
    try:
        assert (told["barred"], told["bar_note"]) == ("draining", "new disk")
        assert told["leave_by"] is not None
    finally:
        free = admin.post("/v1/agents/a1/bar", json={"bar": None}).json()
    assert (free["barred"], free["bar_note"], free["leave_by"]) == (None, "", None)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"bar": "cordoned", "deadline": 5}, "deadline"),
        ({"bar": "draining", "note": "two\nlines"}, "note"),
        ({"bar": "draining", "note": "x" * 201}, "note"),
        ({"bar": "draining", "deadline": "soon"}, "deadline"),
        ({"bar": "broken"}, "bar"),
    ],
)
def test_bar_that_cannot_be_meant_is_refused(
    admin: httpx.Client, keys: dict[str, Any], field: str
) -> None:
    answer = admin.post("/v1/agents/a1/bar", json=keys)
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["problems"]] == [field]


def test_listings_choose_by_group_and_by_the_beginning_of_a_name(ada: httpx.Client) -> None:
    for name in ("chosen-1", "chosen-2", "choose"):
        ada.post("/v1/jobs", json={**TRUE, "name": name})
    named = ada.get("/v1/jobs", params={"name": "chosen*"}).json()["items"]
    assert [job["name"] for job in named] == ["chosen-2", "chosen-1"]
    assert ada.get("/v1/jobs", params={"name": "chosen"}).json()["items"] == []
    assert ada.get("/v1/jobs", params={"group": "other"}).json()["items"] == []
    assert (
        len(ada.get("/v1/jobs", params={"group": "default", "name": "cho*"}).json()["items"]) == 3
    )
    assert ada.get("/v1/sessions", params={"group": "other", "state": "all"}).json()["items"] == []


def test_defect_inside_is_told_without_its_details(
    cluster: ServedCluster, ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "detail that is nobody's business"

    def broken(*_: object) -> None:
        raise RuntimeError(secret)

    monkeypatch.setattr("muster.api.cluster.group_view", broken)
    answer = ada.get("/v1/groups")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert secret not in answer.text


def test_agent_that_was_removed_is_named_as_it_was_typed(tmp_path: Path) -> None:
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    try:
        with cluster.client(role=Role.ADMIN) as client:
            client.bar_agent("a1", AgentBar.DRAINING)
            client.remove_agent("a1")
            with pytest.raises(NotFound, match="agent 'a1' was removed already"):
                client.remove_agent("a1")
            with pytest.raises(NotFound, match="agent 'a1' was removed already"):
                client.bar_agent("a1", AgentBar.CORDONED)
    finally:
        cluster.stop()
