"""`muster logs` of deployments: of their only replica, or of several together."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.served import ServedCluster
from tests.cli.deployed import AGENTS, deployed, settled, typed


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, AGENTS)
    cluster.start()
    yield cluster
    cluster.stop()


def test_logs_of_a_deployment_are_those_of_its_replica(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        client.deploy({"name": "web", "command": ["x"], "replicas": 0})
        assert "no replica of web has run yet" in typed(cluster, "logs", "web").stderr
        deployed(cluster, client)
        (route,) = client.deployments.show("web").routes
        assert route.session is not None
        kernel = client.session(route.session).kernels[0].id
        cluster.write(kernel, b"listening\n")
        for ref in ("web", route.id, route.session):
            shown = typed(cluster, "logs", ref)
            assert (shown.exit_code, shown.stdout) == (0, "listening\n"), shown.output
        client.scale("web", 0)
        settled(cluster, client, "web", lambda found: found.up == 0)
        assert typed(cluster, "logs", "web").stdout == "listening\n", "the last one's, if none runs"
        deployed(cluster, client, replicas=3)
    assert "did you mean web?" in typed(cluster, "logs", "wb").stderr


def test_logs_of_several_replicas_are_shown_together(
    cluster: ServedCluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        deployed(cluster, client, replicas=2)
        routes = sorted(client.deployments.show("web").routes, key=lambda route: route.id)
        for number, route in enumerate(routes):
            kernel = client.session(str(route.session)).kernels[0].id
            cluster.write(kernel, b"hello %d\n" % number * (number + 1))
    shown = typed(cluster, "logs", "web")
    assert shown.exit_code == 0, shown.stderr
    heads, lines = zip(*(line.split(" | ") for line in shown.stdout.splitlines()), strict=True)
    assert lines == ("hello 0", "hello 1", "hello 1")
    assert routes[0].id.startswith(heads[0])
    assert routes[1].id.startswith(heads[2])
    assert heads[0] != heads[1] == heads[2]
    assert typed(cluster, "logs", heads[0]).stdout == "hello 0\n"
    assert typed(cluster, "logs", "web", "--tail", "1").stdout.count("hello") == 2
    assert typed(cluster, "logs", "web", "--save", str(tmp_path / "out")).exit_code == 0
    saved = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert saved[f"replica-{routes[1].id}.log"] == b"hello 1\n" * 2
    numbered = typed(cluster, "logs", "web", "--task", "1")
    assert (numbered.exit_code, numbered.stdout) == (2, "")
    assert "replicas have no numbers: give the id of one" in numbered.stderr
