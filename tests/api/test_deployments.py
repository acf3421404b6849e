"""Deployments over HTTP, as programs that are none of Muster's hand them in."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.served import ADA, ADMIN, BOB, LARGE, ServedCluster

from muster.core.owner import Role

WEB = {"name": "web", "command": ["true"], "resources": {"cpu": "10m"}, "host": "Web.example.org"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    cluster.token(ADA)
    with cluster.client(ADMIN, Role.ADMIN) as admin:
        admin.set_hosts("default", ["example.org", "web.localhost"])
    yield cluster
    cluster.stop()


def post(
    cluster: ServedCluster, token: str, spec: Mapping[str, Any], key: str = ""
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} | ({"Idempotency-Key": key} if key else {})
    return httpx.post(f"{cluster.url}/v1/deployments", json=spec, headers=headers)


def test_deployment_is_handed_in_once(cluster: ServedCluster) -> None:
    ada = cluster.token(ADA)
    made = post(cluster, ada, WEB, "k")
    assert (made.status_code, made.json()["host"]) == (201, "web.example.org")
    assert post(cluster, ada, WEB, "k").json()["id"] == made.json()["id"]
    again = post(cluster, ada, WEB)
    assert again.status_code == 409, "another one of this name"


@pytest.mark.parametrize(
    ("other", "status"),
    [
        ({"name": "web", "host": None}, 409),
        ({"host": "web.example.org"}, 409),
        ({"host": " WEB.EXAMPLE.ORG "}, 409),
        ({"host": "web.example.org."}, 422),
        ({"host": "web.example.org:80"}, 422),
        ({"host": "127.0.0.1"}, 422),
        ({"host": "localhost"}, 422),
        ({"host": "com"}, 422),
        ({"host": "web.localhost"}, 201),
        ({"name": "WEB", "host": None}, 201),
        ({"host": "other.example.org"}, 201),
    ],
)
def test_name_and_host_are_one_deployment_s_alone(
    cluster: ServedCluster, other: Mapping[str, Any], status: int
) -> None:
    post(cluster, cluster.token(ADA), WEB)
    assert (
        post(cluster, cluster.token(BOB), {**WEB, "name": "other", **other}).status_code == status
    )
