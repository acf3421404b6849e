"""Pools, slices and the autoscaler over HTTP: what is refused, shown, and done."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.odd_providers import Hangs
from tests.api.served import ADMIN, ServedCluster

from muster.api.provider_checks import MAX_CHECKS, ProviderChecks
from muster.autoscaling.standing import CreateOutcome
from muster.core.owner import Role
from muster.providers.found import BUILTIN

pytestmark = pytest.mark.usefixtures("many_cpus")

MACHINE = {"cpu": 4, "memory": "1GiB"}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path_factory.mktemp("cluster"), {})
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def admin(cluster: ServedCluster) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {cluster.token(ADMIN, Role.ADMIN)}"}
    with httpx.Client(base_url=cluster.url, headers=headers) as http:
        yield http


@pytest.fixture
def ada(cluster: ServedCluster) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {cluster.token()}"}
    with httpx.Client(base_url=cluster.url, headers=headers) as http:
        yield http


def pool(name: str = "cpu", **keys: Any) -> dict[str, Any]:
    whole = {"name": name, "provider": "local", "machine": MACHINE, "max_slices": 4}
    return {"kind": "pool", **whole, "idle_timeout": 60, **keys}


def apply(admin: httpx.Client, **keys: Any) -> dict[str, Any]:
    spec = pool(**keys)
    applied = admin.put(f"/v1/pools/{spec['name']}", json=spec)
    assert applied.status_code == 200, applied.text
    found: dict[str, Any] = applied.json()
    return found


def submit(http: httpx.Client, cpu: int = 4, **keys: Any) -> str:
    spec = {"command": ["x"], "resources": {"cpu": cpu, "memory": "1MiB"}, **keys}
    submitted = http.post("/v1/jobs", json=spec)
    assert submitted.status_code == 201, submitted.text
    return str(submitted.json()["id"])


def items(http: httpx.Client, path: str) -> list[dict[str, Any]]:
    answer = http.get(path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


# What is refused


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"min_slices": 9}, "min_slices is 9: expected at most max_slices, which is 4"),
        ({"slice_size": 0}, "slice_size is 0: expected at least 1"),
        ({"machine": {"cpu": 0, "memory": "1GiB"}}, "machine.cpu is 0: expected more than 0"),
        ({"machine": {"cpu": 1}}, "machine.memory: missing, and it has no default"),
        ({"max_slice": 2}, "max_slice: unknown key; did you mean max_slices?"),
        (
            {"provider": "locall"},
            "provider is 'locall': expected one of aws-ec2, kubernetes, local, script, ssh; "
            "did you mean local?",
        ),
        (
            {"settings": {"zone": "a"}},
            "settings.zone is 'a': the provider local has no settings: leave it out",
        ),
        (
            {"attributes": {"pool": "mine"}},
            "attributes.pool is 'mine': every machine of a pool has this attribute by itself: "
            "leave it out",
        ),
        (
            {"settings": {"a": "x" * 66_000}},
            "settings is 66,009 bytes: expected at most 65,536 bytes as JSON",
        ),
        ({"name": "other"}, "name is 'other': expected 'cpu', as in the path"),
    ],
)
def test_wrong_pool_is_refused_with_the_field_and_nothing_is_made(
    admin: httpx.Client, keys: dict[str, Any], told: str
) -> None:
    refused = admin.put("/v1/pools/cpu", json=pool(**keys))
    assert refused.status_code == 422
    assert refused.json()["error"] == told
    assert not items(admin, "/v1/pools")


def test_pool_of_a_group_that_does_not_exist_is_refused(admin: httpx.Client) -> None:
    refused = admin.put("/v1/pools/cpu", json=pool(group="nowhere"))
    assert refused.status_code == 404
    assert "nowhere" in refused.json()["error"]


def test_pool_whose_name_differs_in_case_alone_is_refused(admin: httpx.Client) -> None:
    apply(admin)
    refused = admin.put("/v1/pools/CPU", json=pool("CPU"))
    assert refused.status_code == 422
    assert "that of pool cpu differs by case only" in refused.json()["error"]


def test_provider_that_could_not_make_such_machines_says_so_unless_it_is_not_asked(
    admin: httpx.Client,
) -> None:
    huge = pool(machine={"cpu": 1, "memory": "1024TiB"})
    refused = admin.put("/v1/pools/cpu", json=huge)
    assert refused.status_code == 422
    said = refused.json()["error"]
    assert said.startswith("settings: provider local says: bad request: a machine of 1024TiB"), said
    many = pool(machine={"cpu": 1000, "memory": "1GiB"})
    said = admin.put("/v1/pools/cpu", json=many).json()["error"]
    assert said == (
        "settings: provider local says: bad request: a machine of 1000 cpu is more than the "
        "controller's own, which has 64 cpu: work may be placed that does not fit; `--no-check` "
        "applies it all the same"
    )
    assert admin.put("/v1/pools/cpu?check=false", json=huge).status_code == 200


def test_pool_whose_machines_could_not_join_is_refused_unless_it_is_not_checked(
    cluster: ServedCluster, admin: httpx.Client
) -> None:
    checks = ProviderChecks(cluster.path, on_loopback=True)
    cluster.app.state.api = replace(cluster.app.state.api, provider_checks=checks)
    apply(admin)
    script = pool(name="lab", provider="script", settings={"command": ["true"]})
    refused = admin.put("/v1/pools/lab", json=script)
    assert refused.status_code == 422
    assert refused.json()["error"] == (
        "provider is 'script': machines elsewhere cannot join a controller that listens on "
        "loopback only: start it by `muster controller --host ADDRESS --tls-self-signed`"
    )
    assert admin.put("/v1/pools/lab?check=false", json=script).status_code == 200


def test_refused_pool_leaves_no_file(cluster: ServedCluster, admin: httpx.Client) -> None:
    before = {path for path in cluster.path.rglob("*") if path.is_dir()}
    command = ["sh", "-c", "pwd >here; cat here >&2; exit 1"]
    lab = pool(name="lab", provider="script", settings={"command": command})
    said = admin.put("/v1/pools/lab", json=lab).json()["error"]
    where = Path(said.split()[-1])
    assert where.name.startswith("muster-check-"), said
    assert not where.exists()
    assert {path for path in cluster.path.rglob("*") if path.is_dir()} == before
    own = cluster.path / "providers" / "lab"
    own.mkdir(parents=True)
    assert str(own) in admin.put("/v1/pools/lab", json=lab).json()["error"]
    assert (own / "here").exists(), "a pool that is there has its own directory"


def test_provider_that_hangs_or_fails_is_told_in_a_sentence_and_keeps_nobody_else_waiting(
    cluster: ServedCluster, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUILTIN, "hangs", "tests.api.odd_providers:Hangs")
    monkeypatch.setitem(BUILTIN, "raises", "tests.api.odd_providers:Raises")
    checks = ProviderChecks(cluster.path, limit_s=0.5)
    cluster.app.state.api = replace(cluster.app.state.api, provider_checks=checks)
    began = time.monotonic()
    refused = admin.put("/v1/pools/cpu", json=pool(provider="hangs"))
    assert time.monotonic() - began < 10.0
    assert refused.json()["error"] == (
        "settings: provider hangs says: it did not answer within 0.5 s"
    )
    refused = admin.put("/v1/pools/cpu", json=pool(provider="raises"))
    said = refused.json()["error"]
    assert refused.status_code == 422
    assert said.startswith("settings: provider raises says: unknown: SystemExit:")
    assert "\x1b" not in said
    assert len(said) < 400
    for _ in range(MAX_CHECKS - 1):
        admin.put("/v1/pools/cpu", json=pool(provider="hangs"))
    assert admin.put("/v1/pools/cpu", json=pool(provider="hangs")).status_code == 429
    Hangs.go_on.set()
    cluster.until(lambda: checks.under_way == 0)
    Hangs.go_on.clear()
    assert apply(admin)["name"] == "cpu"


# What is shown


def test_pool_tells_what_it_has_and_its_settings_to_admins_alone(
    cluster: ServedCluster, admin: httpx.Client, ada: httpx.Client
) -> None:
    made = apply(admin, min_slices=2, slice_size=2, price=1.5)
    assert (made["status"], made["revision"], made["closed"]) == ("ACTIVE", 1, None)
    cluster.pass_time(1)
    (seen,) = items(ada, "/v1/pools")
    assert seen["slices"] == {"BOOTING": 2}
    assert (seen["machines"], seen["price"]) == (4, 6.0)
    assert "settings" not in seen["spec"]
    assert admin.get("/v1/pools/cpu").json()["spec"]["settings"] == {}
    cluster.pass_time(60)
    seen = ada.get(f"/v1/pools/{made['id']}").json()
    assert seen["slices"] == {"READY": 2}
    assert seen["usual_s"] == pytest.approx(30, abs=12)
    assert seen["reported"]["cpu"] == "4000m"
    assert seen["differs"] is None
    assert seen["listed_at"] is not None


def test_slice_tells_its_machines_and_when_it_is_deleted(
    cluster: ServedCluster, admin: httpx.Client, ada: httpx.Client
) -> None:
    apply(admin, price=2.0)
    job = submit(ada)
    cluster.pass_time(1)
    (coming,) = items(ada, "/v1/slices?pool=cpu")
    assert coming["status"] == "BOOTING"
    assert (coming["machines"], coming["other_machines"], coming["joined"]) == ([], 1, 0)
    assert not items(ada, "/v1/slices?pool=other")
    why = ada.get(f"/v1/slices/{coming['id']}/why").json()
    assert why["verdict"].startswith("a slice of pool cpu, booting for ")
    assert "missing: cpu-" in " ".join(why["details"])
    cluster.pass_time(60)
    (busy,) = items(ada, "/v1/slices")
    assert (busy["status"], busy["kernels"]) == ("READY", 1)
    assert busy["stays"]["code"] == "SLICE_BUSY"
    assert (busy["machines"], busy["other_machines"], busy["joined"]) == ([], 1, 1)
    (machine,) = ada.get(f"/v1/slices/{busy['id']}").json()["machines"]
    assert machine["joined"]
    assert machine["agent"].startswith("agt-")
    assert busy["cost"] == pytest.approx(2.0 * 61 / 3600, rel=0.2)
    ada.post(f"/v1/jobs/{job}/cancel")
    cluster.pass_time(20)
    idle = ada.get(f"/v1/slices/{busy['id']}").json()
    assert idle["stays"]["code"] == "SLICE_IDLE"
    assert idle["deletes_at"] == pytest.approx(idle["idle_since"] + 60)
    cluster.pass_time(70)
    assert not items(ada, "/v1/slices")
    (ended,) = items(ada, "/v1/slices?state=ended")
    assert ended["status"] == "TERMINATED"
    why = ada.get(f"/v1/slices/{ended['id']}/why").json()
    assert why["ended"]
    assert "its machines are gone after" in why["verdict"]
    history = items(ada, f"/v1/history/{ended['id']}")
    assert [each["to_status"] for each in history if each["to_status"]][-1] == "TERMINATED"


def test_agent_of_a_slice_tells_why_it_takes_no_work(
    cluster: ServedCluster, admin: httpx.Client, ada: httpx.Client
) -> None:
    cluster.farm.boot_s = 1.0
    apply(admin, min_slices=1, machine={**MACHINE, "gpus": 1, "gpu_model": "H100"})
    cluster.pass_time(10)
    (agent,) = items(ada, "/v1/agents")
    assert agent["withheld"] == ""
    (slice_,) = items(ada, "/v1/slices")
    submit(ada)
    cluster.pass_time(1)
    admin.post(f"/v1/slices/{slice_['id']}/drain", json={})
    (agent,) = items(ada, "/v1/agents")
    assert agent["withheld"] == "its slice is being deleted"
    why = ada.get(f"/v1/agents/{agent['id']}/why").json()
    assert "takes nothing new" in why["verdict"]
    assert why["reasons"][0]["sentence"] == "its slice is being deleted: it takes nothing new"


def test_autoscaler_tells_where_demand_goes_and_why_the_rest_has_none(
    cluster: ServedCluster, admin: httpx.Client, ada: httpx.Client
) -> None:
    assert not items(ada, "/v1/autoscaler")
    apply(admin, max_slices=2, price=1.0)
    submit(ada, tasks=3)
    submit(ada, cpu=64)
    cluster.pass_time(1)
    cluster.pass_time(1)
    (group,) = items(ada, "/v1/autoscaler")
    assert group["slices"] == {"BOOTING": 2}
    assert (group["machines"], group["price"]) == (2, 2.0)
    (routed,) = group["routed"]
    assert (routed["destination"], routed["pool"]) == ("coming", "cpu")
    assert routed["shape"]["sessions"] == 2
    assert len(routed["slices"]) == 2
    unmet = {each["shape"]["asks"]: each for each in group["unmet"]}
    full = unmet["4 cpu, 1MiB memory"]
    assert full["could_be_met"]
    assert [each["code"] for each in full["pools"][0]["reasons"]] == ["POOL_AT_MAX"]
    large = unmet["64 cpu, 1MiB memory"]
    assert not large["could_be_met"]
    assert large["pools"][0]["reasons"][0]["sentence"] == (
        "cpu: 64 asked, a machine of pool cpu has 4"
    )
    assert group["live"]["slices"] == 2
    assert items(ada, "/v1/autoscaler?group=default")
    assert ada.get("/v1/autoscaler?group=nothing").status_code == 404


def test_autoscaler_names_sessions_to_those_who_may_see_them(
    cluster: ServedCluster, admin: httpx.Client, ada: httpx.Client
) -> None:
    apply(admin)
    submit(admin, cpu=64)
    cluster.pass_time(1)
    (theirs,) = items(ada, "/v1/autoscaler")[0]["unmet"]
    assert theirs["shape"]["first"] is None
    (own,) = items(admin, "/v1/autoscaler")[0]["unmet"]
    assert own["shape"]["first"].startswith("ses-")


def test_what_slices_cost_is_told_of_those_that_ended_too(
    cluster: ServedCluster, admin: httpx.Client
) -> None:
    apply(admin, min_slices=1, price=3.0)
    cluster.pass_time(360)
    (slice_,) = items(admin, "/v1/slices")
    admin.delete(f"/v1/slices/{slice_['id']}")
    cluster.pass_time(10)
    (group,) = items(admin, "/v1/autoscaler")
    assert group["ended"]["slices"] == 1
    assert group["ended"]["machine_hours"] == pytest.approx(0.1, rel=0.1)
    assert group["ended"]["cost"] == pytest.approx(0.3, rel=0.1)
    assert group["ended_since"] is not None


def test_pool_that_makes_nothing_says_why(
    cluster: ServedCluster, admin: httpx.Client, ada: httpx.Client
) -> None:
    cluster.farm.refuses["cpu"] = CreateOutcome.STOCK_OUT
    apply(admin, min_slices=1)
    cluster.pass_time(5)
    closed = ada.get("/v1/pools/cpu").json()["closed"]
    assert closed["code"] == "POOL_STOCKED_OUT"
    assert "says the farm" in closed["sentence"]
    why = ada.get("/v1/pools/cpu/why").json()
    assert why["verdict"] == "pool cpu has 0 of at most 4 slices; it makes no more"
    assert [each["code"] for each in why["reasons"]] == ["POOL_STOCKED_OUT"]


# What is done


def test_pool_is_paused_resumed_and_deleted_with_its_slices(
    cluster: ServedCluster, admin: httpx.Client, ada: httpx.Client
) -> None:
    apply(admin, min_slices=1)
    cluster.pass_time(60)
    paused = admin.post("/v1/pools/cpu/pause").json()
    assert (paused["status"], paused["closed"]["code"]) == ("PAUSED", "POOL_PAUSED")
    submit(ada, tasks=2)
    cluster.pass_time(5)
    assert len(items(ada, "/v1/slices")) == 1
    assert admin.post("/v1/pools/cpu/resume").json()["status"] == "ACTIVE"
    assert ada.get("/v1/pools/cpu/why").json()["reasons"] == []
    cluster.pass_time(5)
    assert len(items(ada, "/v1/slices")) == 2
    assert admin.delete("/v1/pools/cpu").json()["status"] == "DELETING"
    cluster.pass_time(200)
    assert not items(ada, "/v1/slices")
    assert not items(ada, "/v1/pools")
    (ended,) = items(ada, "/v1/pools?state=ended")
    assert ended["status"] == "DELETED"
    assert ada.get(f"/v1/pools/{ended['id']}/why").json()["verdict"] == "pool cpu was deleted"
    assert admin.post(f"/v1/pools/{ended['id']}/pause").status_code == 404
    assert apply(admin)["id"] != ended["id"]


def test_changed_shape_makes_slices_outdated_and_they_are_replaced_when_asked(
    cluster: ServedCluster, admin: httpx.Client
) -> None:
    apply(admin, min_slices=1)
    cluster.pass_time(60)
    (old,) = items(admin, "/v1/slices")
    assert apply(admin, min_slices=1, machine={"cpu": 8, "memory": "1GiB"})["revision"] == 2
    cluster.pass_time(120)
    (same,) = items(admin, "/v1/slices")
    assert (same["id"], same["outdated"]) == (old["id"], True)
    assert admin.get("/v1/pools/cpu").json()["outdated"] == 1
    replaced = admin.post("/v1/pools/cpu/replace", json={"at_a_time": 2}).json()
    assert replaced["replacing"] == 2
    cluster.pass_time(120)
    (new,) = items(admin, "/v1/slices")
    assert (new["id"] != old["id"], new["outdated"]) == (True, False)
    assert admin.post("/v1/pools/cpu/replace", json={"at_a_time": -1}).status_code == 422


def test_held_slice_stays_until_it_is_released(
    cluster: ServedCluster, admin: httpx.Client, ada: httpx.Client
) -> None:
    apply(admin)
    job = submit(ada)
    cluster.pass_time(60)
    (slice_,) = items(ada, "/v1/slices")
    held = admin.post(f"/v1/slices/{slice_['id']}/hold").json()
    assert held["held_by"] == "root"
    ada.post(f"/v1/jobs/{job}/cancel")
    cluster.pass_time(300)
    (still,) = items(ada, "/v1/slices")
    assert still["stays"]["remedy"] == f"`muster slices release {slice_['id']}` lets it go."
    assert admin.post(f"/v1/slices/{slice_['id']}/release").json()["held_by"] is None
    cluster.pass_time(120)
    assert not items(ada, "/v1/slices")
    assert admin.post(f"/v1/slices/{slice_['id']}/hold").status_code == 404


def test_drained_slice_goes_once_its_work_has_ended_and_deleted_one_at_once(
    cluster: ServedCluster, admin: httpx.Client, ada: httpx.Client
) -> None:
    apply(admin, max_slices=1)
    job = submit(ada)
    cluster.pass_time(60)
    (slice_,) = items(ada, "/v1/slices")
    path = f"/v1/slices/{slice_['id']}"
    drained = admin.post(f"{path}/drain", json={"deadline": None}).json()
    assert drained["doomed"]["sentence"] == "root deletes it"
    assert drained["leave_by"] is None
    cluster.pass_time(300)
    why = ada.get(f"{path}/why").json()
    assert why["details"] == ["1 kernel still runs there, and may do so to the end"]
    assert admin.delete(path).json()["leave_by"] is not None
    cluster.pass_time(20)
    assert ada.get(path).json()["status"] == "TERMINATED"
    assert ada.get(f"/v1/jobs/{job}").json()["state"] in ("PENDING", "RUNNING")
