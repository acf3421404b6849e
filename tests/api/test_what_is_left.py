"""Ended jobs of which processes are left: in lists, in `why`, and once these are gone."""

from collections.abc import Iterator

import httpx
import pytest
from click.testing import CliRunner
from proving.hollow.supervisor import Run
from tests.api.served import LIMIT_S, ServedCluster
from tests.patience import until

from muster.cli.cluster import Cluster
from muster.cli.program import app

FOREVER = {"command": ["forever"], "resources": {"cpu": "10m"}, "grace": "5m", "tasks": 2}


@pytest.fixture
def stopping(cluster: ServedCluster) -> Iterator[str]:
    """A cancelled job, whose two kernels do not end."""
    cluster.behaviour = lambda start: Run(3600.0, stubborn=True)
    with cluster.client() as client:
        job = client.submit(FOREVER | {"name": "slow"})
        until(lambda: client.job(job.id).status == "RUNNING", LIMIT_S)
        client.cancel("slow")
        assert client.job(job.id).status == "KILLED"
        yield job.id
        client.cancel(job.id, force=True)
        until(lambda: not client.jobs("current"), LIMIT_S)


def test_job_of_which_processes_are_left_is_listed_beside_the_live_ones(
    cluster: ServedCluster, stopping: str, bob: httpx.Client
) -> None:
    with cluster.client() as client:
        assert [each.id for each in client.jobs("live")] == []
        (listed,) = client.jobs("current")
        assert (listed.id, listed.state, listed.kernels_left) == (stopping, "KILLED", 2)
        assert listed.standing == "STOPPING"
        other = client.submit(FOREVER | {"name": "other"})
        assert [each.id for each in client.jobs("current")] == [other.id, stopping]
        assert [each.id for each in client.jobs("current", limit=1)] == [other.id]
        assert [each.id for each in client.jobs("current", name="slow")] == [stopping]
        assert client.job("slow").kernels_left == 2
        client.cancel(other.id, force=True)
    assert bob.get("/v1/jobs", params={"state": "current"}).json()["items"] == []


def test_why_of_such_a_job_says_what_it_holds_and_for_how_long(
    cluster: ServedCluster, stopping: str
) -> None:
    with cluster.client() as client:
        why = client.why("slow")
        assert why.ended
        (left,) = why.details
        assert left.startswith("it is stopping: 2 kernels on a")
        assert left.endswith(
            "still hold 0.01 cpu each; what is left 5m00s after it was told to stop is killed, "
            "`muster cancel --force slow` kills it now"
        )
        client.cancel("slow", force=True)
        until(lambda: client.job(stopping).kernels_left == 0, LIMIT_S)
        assert client.why("slow").details == ()
        assert client.jobs("current") == []
        assert client.job("slow").standing == "CANCELLED"


def test_commands_say_that_it_is_stopping(cluster: ServedCluster, stopping: str) -> None:
    known = Cluster(cluster.url, cluster.token())

    def typed(*words: str) -> str:
        result = CliRunner().invoke(app, words, obj=known)
        assert result.exit_code == 0, result.output
        return result.stdout

    (line,) = typed("ps").splitlines()[1:]
    assert line.split()[1:3] == ["slow", "stopping"]
    assert line.endswith("cancelled by ada; 2 kernels may still run")
    assert typed("ps", "--state", "stopping").splitlines()[1:]
    assert "left       2 kernels may still run" in typed("show", "slow")
    assert "it is stopping: 2 kernels" in typed("why", "slow")
