"""A served cluster for a whole module: its tests tell their work apart by what they submit."""

from collections.abc import Iterator

import httpx
import pytest
from tests.api.served import ADMIN, BOB, LARGE, ServedCluster

from muster.client import Client
from muster.core.owner import Role


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Two agents of four processors and two GPUs; a kernel runs until it is stopped."""
    cluster = ServedCluster(tmp_path_factory.mktemp("cluster"), {"a1": LARGE, "a2": LARGE}, gpus=2)
    cluster.start()
    yield cluster
    cluster.stop()


def _http(cluster: ServedCluster, token: str) -> httpx.Client:
    return httpx.Client(base_url=cluster.url, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture(scope="module")
def ada(cluster: ServedCluster) -> Iterator[httpx.Client]:
    """A user."""
    with _http(cluster, cluster.token()) as http:
        yield http


@pytest.fixture(scope="module")
def bob(cluster: ServedCluster) -> Iterator[httpx.Client]:
    """Another user."""
    with _http(cluster, cluster.token(BOB)) as http:
        yield http


@pytest.fixture(scope="module")
def viewer(cluster: ServedCluster) -> Iterator[httpx.Client]:
    """A viewer, who may look at Ada's work."""
    with _http(cluster, cluster.token(role=Role.VIEWER)) as http:
        yield http


@pytest.fixture(scope="module")
def admin(cluster: ServedCluster) -> Iterator[httpx.Client]:
    with _http(cluster, cluster.token(ADMIN, Role.ADMIN)) as http:
        yield http


@pytest.fixture(scope="module")
def root(cluster: ServedCluster) -> Iterator[Client]:
    """An administrator's client."""
    with cluster.client(ADMIN, Role.ADMIN) as client:
        yield client
