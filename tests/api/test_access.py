"""Rights of roles to see and do: the work of others does not exist for a user (design: Access)."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.served import ADMIN, BOB, LARGE, ServedCluster

from muster.control.identity.tokens import create_open_join_token
from muster.core.owner import Role
from muster.core.resources import Resources

TRUE = {"command": ["true"], "resources": {"cpu": "10m"}}
JOB_PATHS = ["", "/tasks", "/tasks/0", "/tasks/0/why", "/wait", "/why", "/logs"]
SESSION_PATHS = ["", "/why", "/logs"]


def submitted(http: httpx.Client, path: str = "/v1/jobs", body: Any = TRUE) -> str:
    answer = http.post(path, json=body)
    assert answer.status_code == 201, answer.text
    id_: str = answer.json()["id"]
    return id_


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer wrong",
        "Basic d3Jvbmc6d3Jvbmc=",
        "bearer\twrong",
        "Bearer \xff",
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/openapi.json", "/v1/nothing", "/", "/health/x"])
def test_request_without_a_good_token_learns_nothing(
    cluster: ServedCluster, header: str | None, path: str
) -> None:
    headers = [] if header is None else [(b"Authorization", header.encode("latin-1"))]
    answer = httpx.get(cluster.url + path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] == "unauthenticated"


def test_every_route_but_health_needs_a_token(cluster: ServedCluster) -> None:
    paths = cluster.app.openapi()["paths"]
    asked = [(method, path) for path, methods in paths.items() for method in methods]
    assert len(asked) > 15
    for method, path in [*asked, ("options", "/v1/jobs"), ("head", "/v1/jobs")]:
        answer = httpx.request(method, cluster.url + path.replace("{", "").replace("}", ""))
        assert answer.status_code == (200 if path == "/health" else 401), (method, path)


def test_join_token_is_no_api_token(cluster: ServedCluster) -> None:
    token = cluster.run(cluster.plane.request(lambda work, _: create_open_join_token(work, "root")))
    answer = httpx.get(cluster.url + "/v1/jobs", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401


def test_health_needs_no_token(cluster: ServedCluster) -> None:
    answer = httpx.get(cluster.url + "/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_job_of_another_answers_exactly_as_one_that_does_not_exist(
    ada: httpx.Client, bob: httpx.Client
) -> None:
    theirs = submitted(ada)
    missing = theirs[:-1] + ("0" if theirs[-1] != "0" else "1")
    for path in JOB_PATHS:
        found = bob.get(f"/v1/jobs/{theirs}{path}")
        absent = bob.get(f"/v1/jobs/{missing}{path}")
        assert found.status_code == absent.status_code == 404, path
        assert found.text == absent.text.replace(missing, theirs)
    assert bob.post(f"/v1/jobs/{theirs}/cancel").status_code == 404
    urgent = bob.post(f"/v1/jobs/{theirs}/reprioritise", json={"priority": 90})
    assert urgent.status_code == 404
    assert bob.get(f"/v1/history/{theirs}").status_code == 404
    assert bob.get(f"/v1/history/{theirs}/0").status_code == 404
    assert bob.get(f"/v1/jobs/{theirs}/logs?follow=true").status_code == 404
    assert bob.get("/v1/jobs?state=all").json()["items"] == []
    assert ada.get(f"/v1/jobs/{theirs}").json()["state"] in ("PENDING", "RUNNING")


def test_session_of_another_is_not_found(ada: httpx.Client, bob: httpx.Client) -> None:
    theirs = submitted(ada, "/v1/sessions", {"kernels": [TRUE]})
    for path in SESSION_PATHS:
        assert bob.get(f"/v1/sessions/{theirs}{path}").status_code == 404, path
    assert bob.get(f"/v1/history/{theirs}").status_code == 404
    assert bob.post(f"/v1/sessions/{theirs}/cancel").status_code == 404
    urgent = bob.post(f"/v1/sessions/{theirs}/reprioritise", json={"priority": 90})
    assert urgent.status_code == 404
    assert bob.get("/v1/sessions?state=all").json()["items"] == []


def test_viewer_sees_what_is_the_owners_and_changes_nothing(
    ada: httpx.Client, viewer: httpx.Client
) -> None:
    theirs = submitted(ada)
    assert viewer.get(f"/v1/jobs/{theirs}").status_code == 200
    refusals = [
        viewer.post("/v1/jobs", json=TRUE),
        viewer.post("/v1/sessions", json={"kernels": [TRUE]}),
        viewer.post(f"/v1/jobs/{theirs}/cancel"),
        viewer.post("/v1/jobs/nothing/cancel"),
        viewer.post(f"/v1/jobs/{theirs}/reprioritise", json={"priority": 90}),
        viewer.put("/v1/groups/g", json={"name": "g"}),
        viewer.delete("/v1/agents/a1"),
    ]
    assert [refusal.status_code for refusal in refusals] == [403] * 7
    assert refusals[2].text == refusals[3].text, "whether it exists is not revealed"
    assert viewer.get(f"/v1/jobs/{theirs}").json()["state"] in ("PENDING", "RUNNING")


def test_user_may_not_change_the_cluster(ada: httpx.Client) -> None:
    for answer in (
        ada.put("/v1/groups/g", json={"name": "g"}),
        ada.delete("/v1/agents/a1"),
        ada.delete("/v1/agents/nothing"),
    ):
        assert answer.status_code == 403
        assert "only an admin's token" in answer.json()["error"]
    assert {group["name"] for group in ada.get("/v1/groups").json()["items"]} == {"default"}


def test_admin_sees_and_cancels_what_is_anybodys(ada: httpx.Client, admin: httpx.Client) -> None:
    theirs = submitted(ada)
    assert admin.get(f"/v1/jobs/{theirs}").json()["owner"]["user"] == "ada"
    listed = admin.get("/v1/jobs", params={"owner": "ada"}).json()["items"]
    assert theirs in [item["id"] for item in listed]
    urgent = admin.post(f"/v1/jobs/{theirs}/reprioritise", json={"priority": 90})
    assert urgent.json()["priority"] == 90
    assert admin.post(f"/v1/jobs/{theirs}/cancel").json()["changed"] is True


def test_work_of_an_agent_is_named_to_its_owner_and_counted_for_others(tmp_path: Path) -> None:
    cluster = ServedCluster(tmp_path, {"a1": LARGE, "a2": Resources(cpu_milli=1000)}, gpus=2)
    cluster.start()
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        tokens = [cluster.token(), cluster.token(BOB), cluster.token(ADMIN, Role.ADMIN)]
        headers = ({"Authorization": f"Bearer {each}"} for each in tokens)
        ada, bob, admin = (
            stack.enter_context(httpx.Client(base_url=cluster.url, headers=each))
            for each in headers
        )
        fills_a1 = {"tasks": 2, "resources": {"cpu": 2, "gpu": 0.5}}
        submitted(ada, body={**TRUE, "name": "train", **fills_a1})
        submitted(bob, body={**TRUE, "name": "hers", "resources": {"cpu": 1}})
        seen = {
            who: http.get("/v1/agents/a1/kernels").json()
            for who, http in (("ada", ada), ("bob", bob), ("admin", admin))
        }
        listed = {
            (who, agent): [
                each["name"]
                for each in http.get("/v1/jobs", params={"agent": agent}).json()["items"]
            ]
            for who, http in (("ada", ada), ("bob", bob), ("admin", admin))
            for agent in ("a1", "a2")
        }
        why = {
            who: http.get("/v1/agents/a1/why").json()["details"]
            for who, http in (("ada", ada), ("bob", bob))
        }
        absent = ada.get("/v1/jobs", params={"agent": "a9"})
    for who in ("ada", "admin"):
        held = seen[who]["items"]
        assert sorted(each["work"] for each in held) == ["train/0", "train/1"]
        assert {each["owner"]["user"] for each in held} == {"ada"}
        assert {each["resources"]["gpu_milli"] for each in held} == {500}
        assert (seen[who]["others"], seen[who]["other_gpu_milli"]) == (0, 0)
    assert seen["bob"] == {"items": [], "others": 2, "other_gpu_milli": 1000}
    assert listed == {
        ("ada", "a1"): ["train"],
        ("ada", "a2"): [],
        ("bob", "a1"): [],
        ("bob", "a2"): ["hers"],
        ("admin", "a1"): ["train"],
        ("admin", "a2"): ["hers"],
    }
    assert why["ada"][0].startswith("train/0 (ada): 2 cpu, 0.5 gpu on GPU ")
    assert why["bob"] == ["2 kernels of others, with 1 gpu"]
    assert absent.status_code == 404
