"""Published services, as proxies, Prometheus and Traefik read them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.served import ADMIN, LARGE, ServedCluster
from tests.api.test_waiting import in_background

from muster.api.traffic import _prometheus, _traefik
from muster.control.deployment.entity import Deployment, DeploymentId, Route
from muster.control.deployment.traffic import Traffic
from muster.core.owner import Role
from muster.core.serving.traffic import Identity, Target, TrafficService

WEB = TrafficService(
    id="dep-1",
    name="web",
    host="web.example",
    domain="d",
    project="p",
    user="ann",
    public=True,
    targets=(
        Target(route="r1", host="10.0.0.1", port=80, revision=1, weight=3),
        Target(route="r2", host="fd00::2", port=81, revision=2, weight=1),
        Target(route="r3", host="10.0.0.3", port=82, revision=1, weight=0),
    ),
)


def test_prometheus_and_traefik_get_addresses_that_they_can_read() -> None:
    """Addresses of version 6 are in brackets; a replica that is drained is left out."""
    groups = _prometheus([WEB])
    assert [each["targets"] for each in groups] == [["10.0.0.1:80"], ["[fd00::2]:81"]]
    balancer = _traefik([WEB])["http"]["services"]["dep-1"]["loadBalancer"]
    assert balancer["servers"] == [
        {"url": "http://10.0.0.1:80", "weight": 3},
        {"url": "http://[fd00::2]:81", "weight": 1},
    ]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


def test_token_for_discovery_sees_the_routes_of_everybody_where_a_viewers_sees_none(
    cluster: ServedCluster,
) -> None:
    cluster.plane.parts[Traffic]._services[DeploymentId("dep-1")] = WEB

    def seen(path: str, role: Role) -> Any:
        headers = {"Authorization": f"Bearer {cluster.token(ADMIN, role)}"}
        return httpx.get(f"{cluster.url}/v1/traffic/{path}", headers=headers).json()

    assert seen("prometheus", Role.VIEWER) == []
    assert seen("traefik", Role.VIEWER) == {}
    for path in ("prometheus", "traefik"):
        assert seen(path, Role.DISCOVERY) == seen(path, Role.ADMIN)
    assert len(seen("prometheus", Role.DISCOVERY)) == 2
    assert list(seen("traefik", Role.DISCOVERY)["http"]["routers"]) == ["dep-1"]


def test_secrets_are_for_those_alone_who_send_the_requests_of_all(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        made = client.deploy({"name": "web", "command": ["true"], "resources": {"cpu": "10m"}})
    cluster.pass_time(1.0)
    secret = cluster.plane.live.of(Deployment)[made.id].secret
    assert len(secret) == 43

    def get(path: str, role: Role) -> str:
        headers = {"Authorization": f"Bearer {cluster.token(role=role)}"}
        return httpx.get(f"{cluster.url}{path}", headers=headers, timeout=60).text

    assert secret in get("/v1/traffic", Role.ADMIN)
    for role in (Role.USER, Role.VIEWER):
        assert '"web"' in get("/v1/traffic", role)
        assert secret not in get("/v1/traffic", role)
    for path in ("traffic/prometheus", "traffic/traefik", "traffic/top"):
        assert secret not in get(f"/v1/{path}", Role.ADMIN)
    assert secret not in get("/v1/traffic/prometheus", Role.DISCOVERY)
    for path in ("", "/history", "/revisions", "/routes", "/why"):
        assert secret not in get(f"/v1/deployments/{made.id}{path}", Role.ADMIN)
    (route,) = cluster.plane.live.of(Route).values()
    told = get(f"/v1/sessions/{route.session_id}", Role.ADMIN)
    assert "MUSTER_DEPLOYMENT" in told
    assert secret not in told


def test_token_for_discovery_opens_no_deployment(cluster: ServedCluster) -> None:
    """It stands in configurations of programs that others read."""
    given = {"token": cluster.token(ADMIN, Role.DISCOVERY)}
    headers = {"Authorization": f"Bearer {cluster.token(ADMIN, Role.ADMIN)}"}
    told = httpx.post(f"{cluster.url}/v1/traffic/identify", json=given, headers=headers)
    assert (told.status_code, told.json()) == (200, None)

    private = TrafficService(id="dep-2", name="mine", domain="d", project="p", user="ann")
    identity = Identity(domain="d", user="ann", projects=("p",), role=Role.DISCOVERY)
    assert not private.admits(identity)


def test_table_comes_once_it_is_another_and_at_once_to_who_knows_one_of_another_life(
    cluster: ServedCluster,
) -> None:
    def ask(**params: float) -> httpx.Response:
        headers = {"Authorization": f"Bearer {cluster.token(role=Role.ADMIN)}"}
        return httpx.get(f"{cluster.url}/v1/traffic", params=params, headers=headers, timeout=60)

    first = ask().json()
    assert first["services"] == []
    for other in (first["version"] - 1, first["version"] + 10**6, 0):
        assert ask(since=other, wait=50).json() == first
    assert ask(since=first["version"], wait=0.05).json() == first
    waits = in_background(lambda: ask(since=first["version"], wait=50))
    with cluster.client() as client:
        client.deploy({"name": "web", "command": ["true"], "resources": {"cpu": "10m"}})
    cluster.pass_time(1.0)
    found = waits.result(timeout=20).json()
    assert [each["name"] for each in found["services"]] == ["web"]
    assert found["version"] > first["version"]


def test_report_of_a_proxy_makes_no_wake_shorter_as_a_person_does(cluster: ServedCluster) -> None:
    share = cluster.run(cluster.plane.request(lambda work, _: work.share))
    cluster.pass_time(10.0)
    now = cluster.clock.now()
    headers = {"Authorization": f"Bearer {cluster.token(role=Role.ADMIN)}"}
    report = {"proxy": "p1", "seconds": 1.0}
    told = httpx.post(f"{cluster.url}/v1/traffic/load", json=report, headers=headers, timeout=60)
    assert told.status_code == 202
    assert not share.is_beside_people(now)
    with cluster.client() as client:
        client.submit({"command": ["true"]})
    assert share.is_beside_people(now)
