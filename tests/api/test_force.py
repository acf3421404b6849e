"""Work that is cancelled with force over HTTP, by the client and by the command."""

import math

import httpx
import pytest
from click.testing import CliRunner
from proving.hollow.supervisor import Run
from tests.api.served import LIMIT_S, ServedCluster
from tests.patience import until

from muster.cli.cluster import Cluster
from muster.cli.program import app
from muster.core.errors import Conflict, NotFound

FOREVER = {"command": ["forever"], "resources": {"cpu": "10m"}, "grace": "5m"}


def test_job_and_session_are_killed_by_force_and_say_so(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        job = client.submit(FOREVER | {"name": "hard"})
        killed = client.cancel("hard", force=True)
        assert (
            killed.message == f"job hard ({job.id}) is cancelled; its processes are killed at once"
        )
        reason = client.job(job.id).reason
        assert reason is not None
        assert reason.sentence == "cancelled by ada, with force"
        session = client.submit({"kind": "session", "kernels": [FOREVER]})
        assert client.sessions.cancel(session.id, force=True).changed


def test_job_that_had_ended_says_so_when_what_is_left_of_it_is_killed(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as client:
        cluster.behaviour = lambda start: Run(3600.0, stubborn=True, outlives_kill_s=math.inf)
        job = client.submit(FOREVER | {"name": "slow"})
        until(lambda: client.job(job.id).status == "RUNNING", LIMIT_S)
        client.cancel("slow")
        until(lambda: client.job(job.id).status == "KILLED", LIMIT_S)
        killed = client.cancel(job.id, force=True)
    assert not killed.changed
    assert killed.message == (
        f"job slow ({job.id}) had ended already: it is killed; what is left of it is killed at once"
    )


def test_grace_is_told_where_there_is_one(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        session = client.submit({"kind": "session", "kernels": [FOREVER]})
        said = client.cancel(session.id).message
    assert said == f"session {session.id} is cancelled; its processes have up to 300 s to end"


def test_deployment_is_not_taken_down_by_force(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        made = client.deploy({"name": "web", "command": ["forever"], "resources": {"cpu": "10m"}})
        with pytest.raises(Conflict, match=rf"web \({made.id}\) is not cancelled with force"):
            client.cancel("web", force=True)
        assert client.deployments.show("web").status != "DESTROYED"


def test_command_kills_by_force(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        job = client.submit(FOREVER | {"name": "typed"})
    known = Cluster(cluster.url, cluster.token())
    result = CliRunner().invoke(app, ["cancel", "--force", "typed"], obj=known)
    assert result.exit_code == 0
    assert result.stdout == f"job typed ({job.id}) is cancelled; its processes are killed at once\n"


def test_others_work_is_not_killed(cluster: ServedCluster, bob: httpx.Client) -> None:
    with cluster.client() as client:
        job = client.submit(FOREVER | {"name": "mine"})
        answer = bob.post(f"/v1/jobs/{job.id}/cancel", params={"force": True})
        assert answer.status_code == 404
        client.cancel(job.id)
    with cluster.client() as client, pytest.raises(NotFound):
        client.cancel("nobody", force=True)
