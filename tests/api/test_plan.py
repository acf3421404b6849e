"""Plans, quotas, bars and dependencies over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.served import ADMIN, LARGE, ServedCluster

from muster.core.owner import Role

SMALL: dict[str, Any] = {"command": ["true"], "resources": {"cpu": "10m"}}
YAML = {"Content-Type": "application/yaml"}


def counts(http: httpx.Client) -> tuple[int, int]:
    jobs = http.get("/v1/jobs?state=all&limit=1000").json()["items"]
    sessions = http.get("/v1/sessions?state=all&limit=1000&of_jobs=true").json()["items"]
    return len(jobs), len(sessions)


@pytest.fixture
def agent(cluster: ServedCluster, admin: httpx.Client) -> Iterator[str]:
    """An agent that takes work again after the test."""
    yield "a1"
    admin.post("/v1/agents/a1/bar", json={"bar": None})


# -- plans ---------------------------------------------------------------------------------------


def test_plan_of_a_job_and_of_a_session_tells_where_and_hands_nothing_in(
    ada: httpx.Client, viewer: httpx.Client
) -> None:
    before = counts(ada)
    bodies = (SMALL, {**SMALL, "kind": "job"}, {"kind": "session", "kernels": [SMALL]})
    for http in (ada, viewer):
        for body in bodies:
            answer = http.post("/v1/plan", json=body)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert (found["outcome"], len(found["kernels"])) == ("starts", 1)
            assert found["kernels"][0]["agent"] in ("a1", "a2")
    text = "kind: session\nkernels: [{command: [x]}]"
    assert ada.post("/v1/plan", content=text, headers=YAML).json()["outcome"] == "starts"
    assert counts(ada) == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "group", "name": "g"}, "kind"),
        ({"kind": 1, **SMALL}, "kind"),
        ({**SMALL, "taks": 1}, "taks"),
        ({"kind": "session", "kernels": []}, "kernels"),
        ({**SMALL, "group": "nowhere"}, "group"),
        ({**SMALL, "after": ["nothing"]}, "after.0.on"),
        ([], "spec"),
    ],
)
def test_wrong_plan_is_refused_as_the_work_would_be(
    ada: httpx.Client, body: Any, field: str
) -> None:
    answer = ada.post("/v1/plan", json=body)
    assert answer.status_code == 422, answer.text
    assert [problem["field"] for problem in answer.json()["problems"]] == [field]


def test_plan_of_what_is_too_large_says_what_every_agent_lacks(ada: httpx.Client) -> None:
    found = ada.post("/v1/plan", json={**SMALL, "resources": {"gpu": 3}}).json()
    assert found["outcome"] == "waits"
    assert [reason["code"] for reason in found["reasons"]] == ["NEVER_FITS"]
    assert found["reasons"][0]["remedy"]
    (group,) = found["placement"]["requests"][0]["groups"]
    assert (group["agents"], group["shortfalls"][0]["sentence"]) == (
        2,
        "gpu: 3 asked, the agent has 2",
    )


# -- quotas --------------------------------------------------------------------------------------


_NOBODY = {"domain": "mars", "project": "default/mars", "user": "default/default/mars"}


def test_quota_is_set_told_with_its_use_to_whom_it_binds_and_removed(
    ada: httpx.Client, bob: httpx.Client, admin: httpx.Client
) -> None:
    for live in ada.get("/v1/jobs").json()["items"]:
        ada.post(f"/v1/jobs/{live['id']}/cancel")
    job = ada.post("/v1/jobs", json={**SMALL, "resources": {"cpu": "500m"}}).json()["id"]
    body = {"limits": {"cpu": 2, "gpu": 1}, "sessions": 9, "largest": {"gpu": 1}}
    name = "default/default/ada"
    put = admin.put(f"/v1/quotas/user/{name}", json={"name": name, **body})
    assert put.status_code == 200, put.text
    assert put.json()["is_nobodys"] is False
    every = {"level": "domain", "name": "*", "pending_sessions": 100}
    assert admin.put("/v1/quotas/domain/*", json=every).status_code == 200
    try:
        listed = admin.get("/v1/quotas").json()["items"]
        assert [(q["level"], q["name"], q["of"]) for q in listed] == [
            ("domain", "*", None),
            ("user", "*/*/*", None),  # the default
            ("user", name, name),
        ]
        assert listed[0]["pending_sessions"] == {
            "resource": "pending_sessions",
            "used": None,
            "limit": 100,
            "group": None,
            "model": None,
        }
        domain, own = ada.get("/v1/quotas").json()["items"]
        assert (domain["name"], domain["of"]) == ("*", "default")
        assert isinstance(domain["pending_sessions"]["used"], int)
        limits = {limit["resource"]: limit for limit in own["limits"]}
        cpu = limits["cpu"]
        assert (cpu["used"], cpu["limit"], cpu["group"]) == (500, 2000, None)
        assert own["max_priority"]["limit"] == 50
        assert own["largest"] == {"gpu": 1000}
        others = bob.get("/v1/quotas").json()["items"]
        assert [quota["name"] for quota in others] == ["*", "*/*/*"]

        for level, nobody in _NOBODY.items():
            body = {"level": level, "name": nobody}
            early = admin.put(f"/v1/quotas/{level}/{nobody}", json=body).json()
            assert early["is_nobodys"] is True
            assert admin.delete(f"/v1/quotas/{level}/{nobody}").status_code == 204

        refused = ada.post("/v1/plan", json={**SMALL, "resources": {"cpu": 3}})
        assert refused.status_code == 409
        assert "requested 3 > limit 2, over by 1" in refused.json()["error"]
    finally:
        assert admin.delete(f"/v1/quotas/user/{name}").status_code == 204
        assert admin.delete("/v1/quotas/domain/*").status_code == 204
    assert admin.delete(f"/v1/quotas/user/{name}").status_code == 404
    (default,) = ada.get("/v1/quotas").json()["items"]
    assert default["open_specs"]["limit"] == 24 * 2**20
    assert default["open_specs"]["used"] > 0
    ada.post(f"/v1/jobs/{job}/cancel")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("user/default/default/ada", {"name": "default/default/bob"}),
        ("user/default/default/ada", {"name": "default/default/ada", "level": "project"}),
        ("user/default", {"name": "default"}),
        ("team/default", {"name": "default"}),
        ("user/d/p/u", {"name": "d/p/u", "limits": {"cpu": -1}}),
    ],
)
def test_wrong_quota_is_refused(admin: httpx.Client, path: str, body: dict[str, Any]) -> None:
    assert admin.put(f"/v1/quotas/{path}", json=body).status_code == 422
    assert [each["name"] for each in admin.get("/v1/quotas").json()["items"]] == ["*/*/*"]


def test_only_an_admin_changes_quotas_and_bars_agents(ada: httpx.Client) -> None:
    body = {"name": "default/default/ada"}
    assert ada.put("/v1/quotas/user/default/default/ada", json=body).status_code == 403
    assert ada.delete("/v1/quotas/user/default/default/ada").status_code == 403
    assert ada.post("/v1/agents/a1/bar", json={"bar": "cordoned"}).status_code == 403


# -- bars ----------------------------------------------------------------------------------------


def test_barred_agent_is_shown_so_and_takes_nothing_new(
    admin: httpx.Client, ada: httpx.Client, agent: str
) -> None:
    for bar in ("cordoned", "draining"):
        barred = admin.post(f"/v1/agents/{agent}/bar", json={"bar": bar}).json()
        assert (barred["status"], barred["barred"]) == ("ALIVE", bar)
        found = ada.post("/v1/plan", json=SMALL).json()
        assert [kernel["agent"] for kernel in found["kernels"]] == ["a2"]
    open_again = admin.post(f"/v1/agents/{agent}/bar", json={"bar": None}).json()
    assert open_again["barred"] is None


@pytest.mark.parametrize("body", [{"bar": "suspect"}, {"bar": True}, {}, {"bra": None}, []])
def test_wrong_bar_is_refused(admin: httpx.Client, body: Any) -> None:
    assert admin.post("/v1/agents/a1/bar", json=body).status_code == 422
    assert admin.post("/v1/agents/a1/bar", content="bar: null", headers=YAML).status_code == 422


def test_bar_of_an_unknown_agent_is_not_found(admin: httpx.Client) -> None:
    assert admin.post("/v1/agents/nothing/bar", json={"bar": None}).status_code == 404


# -- what work is to start after -----------------------------------------------------------------


def test_work_may_follow_what_has_ended_by_name_and_by_id(
    ada: httpx.Client, bob: httpx.Client
) -> None:
    old = ada.post("/v1/jobs", json={**SMALL, "name": "gone"}).json()["id"]
    session = ada.post("/v1/sessions", json={"name": "over", "kernels": [SMALL]}).json()["id"]
    ada.post(f"/v1/jobs/{old}/cancel")
    ada.post(f"/v1/sessions/{session}/cancel")
    for ref, id_ in (("gone", old), (old, old), ("over", session), (session, session)):
        after = [f"{ref}:ended"]
        job = ada.post("/v1/jobs", json={**SMALL, "after": after})
        assert job.status_code == 201, job.text
        spec = ada.get(f"/v1/jobs/{job.json()['id']}").json()["spec"]
        assert [each["on"] for each in spec["after"]] == [id_]
        assert ada.post("/v1/plan", json={**SMALL, "after": after}).json()["outcome"] == "starts"
        made = ada.post("/v1/sessions", json={"kernels": [SMALL], "after": after})
        assert made.status_code == 201
        refused = ada.post("/v1/plan", json={**SMALL, "after": [ref]})
        assert refused.status_code == 422
        assert "ended without success" in refused.text
        assert bob.post("/v1/jobs", json={**SMALL, "after": after}).status_code == 422


def test_of_several_that_ended_under_a_name_the_newest_is_meant(ada: httpx.Client) -> None:
    ids = []
    for _ in range(2):
        ids.append(ada.post("/v1/jobs", json={**SMALL, "name": "again"}).json()["id"])
        ada.post(f"/v1/jobs/{ids[-1]}/cancel")
    job = ada.post("/v1/jobs", json={**SMALL, "after": ["again:ended"]}).json()["id"]
    (after,) = ada.get(f"/v1/jobs/{job}").json()["spec"]["after"]
    assert after["on"] == ids[1]


# -- plug-ins ------------------------------------------------------------------------------------


def test_group_tells_which_of_its_plug_ins_do_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    metadata = site / "moody-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "moody_order.py").write_text(
        "class Moody:\n"
        "    dynamic = False\n"
        "    def key(self, session, context):\n"
        "        raise ValueError('not today')\n"
    )
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[muster.sequencers]\nmoody = moody_order:Moody\n")
    monkeypatch.syspath_prepend(site)
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    try:
        headers = {"Authorization": f"Bearer {cluster.token(ADMIN, Role.ADMIN)}"}
        with httpx.Client(base_url=cluster.url, headers=headers) as http:
            put = http.put("/v1/groups/default", json={"name": "default", "sequencer": "moody"})
            assert put.json()["refused"] == []
            assert http.post("/v1/jobs", json=SMALL).status_code == 201
            (group,) = http.get("/v1/groups").json()["items"]
    finally:
        cluster.stop()
    (refused,) = group["refused"]
    assert refused["code"] == "PLUGIN_REFUSED"
    assert "sequencer moody of group default is not used: it raised" in refused["sentence"]
    assert "muster groups apply" in refused["remedy"]
