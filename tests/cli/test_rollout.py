"""The exit codes of commands that tell how far an update is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.api.served import LARGE, ServedCluster

from muster.cli.cluster import Cluster
from muster.cli.exits import ExitCode
from muster.cli.main import app

SPEC = {"name": "web", "command": ["forever"], "resources": {"cpu": "10m"}}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


def test_replica_that_is_still_to_come_is_no_update_that_was_given_up(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as client:
        client.deploy({**SPEC, "replicas": 2})
        cluster.pass_time(1.0)
        found = client.deployments.show("web")
        assert (found.rollout, found.healthy) == (None, 0)
    obj = Cluster(cluster.url, cluster.token())
    result = CliRunner().invoke(app, ["rollout", "status", "web"], obj=obj)
    assert result.exit_code == ExitCode.OK, result.output
