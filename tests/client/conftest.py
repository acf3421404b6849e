"""A served cluster for a whole module, and a client of it."""

from collections.abc import Iterator

import pytest
from tests.api.served import ADMIN, LARGE, ServedCluster

from muster.client import Client
from muster.core.owner import Role


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Two agents of four processors; a kernel runs until it is stopped."""
    cluster = ServedCluster(tmp_path_factory.mktemp("cluster"), {"a1": LARGE, "a2": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def client(cluster: ServedCluster) -> Iterator[Client]:
    with cluster.client() as client:
        yield client


@pytest.fixture
def admin(cluster: ServedCluster) -> Iterator[Client]:
    with cluster.client(ADMIN, Role.ADMIN) as client:
        yield client
