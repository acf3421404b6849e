"""How deployments stand is told alike wherever it is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.served import ServedCluster
from tests.cli.deployed import AGENTS, typed


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, AGENTS)
    cluster.start()
    yield cluster
    cluster.stop()


def test_deployment_that_waits_for_other_work_says_for_which_in_the_list(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as client:
        client.submit(name="prep", command=["true"])
        spec = {"command": ["forever"], "resources": {"cpu": "10m"}}
        client.deploy({"name": "web", "after": ["prep"], **spec})
        client.deploy({"name": "chat", **spec})
    rows = typed(cluster, "deployments").stdout.splitlines()[1:]
    assert [row.split()[:2] for row in rows][-1] == ["web", "pending"]
    assert "waits until prep has succeeded" in rows[-1]
    assert "waits" not in rows[0]


def test_deployment_of_which_no_replica_is_healthy_is_ready_in_no_answer(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as client:
        client.deploy({"name": "web", "command": ["forever"], "resources": {"cpu": "64"}})
        cluster.pass_time(5.0)
        assert client.deployments.show("web").status == "READY"
        assert client.why("web").status == "READY"
    assert typed(cluster, "why", "web").stdout.startswith("not ready  deployment web: 0 of 1 ")
    assert typed(cluster, "show", "web").stdout.startswith("web  not ready  ")
    (row,) = typed(cluster, "deployments").stdout.splitlines()[1:]
    assert row.split()[1:3] == ["not", "ready"]
    assert '"status":"READY"' in typed(cluster, "why", "web", "--json").stdout.replace(": ", ":")


def test_why_says_of_jobs_how_they_stand_as_lists_do(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        client.submit(name="prep", command=["forever"], resources={"cpu": "10m"})
        client.submit(name="then", command=["true"], after=["prep"])
        cluster.pass_time(2.0)
        said = {name: client.why(name).standing for name in ("prep", "then")}
        assert said == {each.name: each.standing for each in client.jobs()}
    assert typed(cluster, "why", "prep").stdout.startswith("running  ")
    assert typed(cluster, "why", "then").stdout.startswith("waiting  ")
