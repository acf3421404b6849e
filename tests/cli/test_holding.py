"""``muster hold`` and ``muster release``, and where people see that a job is held."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from tests.api.served import ADMIN, BOB, LARGE, ServedCluster
from tests.cli.deployed import typed

from muster.client import AsyncClient, Conflict, NotFound
from muster.core.owner import Role
from muster.core.states import JobState


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, {"a1": LARGE}, behaviour=lambda start: Run(1.0))
    cluster.start()
    yield cluster
    cluster.stop()


def test_job_that_is_handed_in_held_is_seen_so_until_it_is_released(cluster: ServedCluster) -> None:
    typed(cluster, "run", "--hold", "--detach", "--name", "train", "--cpu", "10m", "true")
    cluster.pass_time(10.0)
    for command in (["ps"], ["why", "train"]):
        assert "held by ada since" in typed(cluster, *command).stdout
    assert "`muster release` releases it" in typed(cluster, "why", "train").stdout
    released = typed(cluster, "release", "train")
    assert released.stdout.startswith("job train (job-")
    assert released.stdout.endswith("is released\n")
    cluster.pass_time(10.0)
    with cluster.client() as client:
        assert client.job("train").state is JobState.SUCCEEDED
    late = typed(cluster, "hold", "train")
    assert (late.exit_code, "has ended: it is succeeded" in late.stderr) == (1, True)


def test_hold_is_told_by_a_sentence_as_json_and_in_history(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        client.submit(name="train", command=["true"], resources={"cpu": "64"})
    said = typed(cluster, "hold", "train").stdout
    assert said.endswith("is held: no more of its tasks begin\n")
    again = json.loads(typed(cluster, "hold", "train", "--json").stdout)
    assert (again["name"], again["state"]) == ("train", "PENDING")
    typed(cluster, "release", "train")
    history = typed(cluster, "history", "train").stdout
    assert "held by ada since" in history
    assert "released by ada" in history


def test_tasks_and_unknown_jobs_are_refused(cluster: ServedCluster) -> None:
    assert typed(cluster, "hold", "train/3").exit_code == 1
    assert "there is no job 'nothing'" in typed(cluster, "release", "nothing").stderr


async def test_admins_hold_is_released_by_admins_alone(cluster: ServedCluster) -> None:
    with cluster.client() as client, cluster.client(ADMIN, Role.ADMIN) as admin:
        job = client.submit(command=["true"], hold=True)
        assert admin.hold_job(job).state is JobState.PENDING
        with pytest.raises(Conflict, match="only admins release it"):
            client.release_job(job)
        with cluster.client(BOB) as bob, pytest.raises(NotFound):
            bob.hold_job(job)
        assert admin.release_job(job).id == job.id
    async with AsyncClient(cluster.url, cluster.token()) as client:
        assert (await client.hold_job(job)).id == job.id
        assert (await client.release_job(job)).id == job.id
