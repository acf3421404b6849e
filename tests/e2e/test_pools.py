"""A real cluster that makes its machines itself: agents of the provider ``local``."""

import os
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster, started
from tests.patience import until

from muster.client import Client, Unavailable, Unreachable
from muster.core.reasons import ReasonCode
from muster.core.specs.pool import PoolSpec
from muster.core.states import JobState

SEED = int(os.environ.get("MUSTER_TEST_SEED", "3"))
KILLS = 6
MOST = 3
JOBS = 9
LIMIT_S = 90.0


def pool(**keys: object) -> PoolSpec:
    machine = {"cpu": 1, "memory": "512MiB"}
    whole = {"name": "here", "provider": "local", "machine": machine, "max_slices": MOST}
    return PoolSpec.model_validate({**whole, "idle_timeout": 1, **keys})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without a machine."""
    with started(Cluster(tmp_path)) as made:
        yield made


def machines(cluster: Cluster) -> list[str]:
    """The machines that the provider keeps, by their directories."""
    found: list[str] = []
    with suppress(FileNotFoundError):
        for slice_ in (cluster.home.providers / "here").iterdir():
            with suppress(FileNotFoundError, NotADirectoryError):
                found += [each.name for each in slice_.iterdir() if each.is_dir()]
    return found


def told(client: Client, job: str) -> set[str]:
    """The codes of the reasons for which a job waits."""
    return {each.code for each in client.why(job).reasons}


def gone(client: Client) -> bool:
    return not client.slices()


def test_jobs_make_machines_run_and_the_machines_go(cluster: Cluster) -> None:
    with cluster.client() as client:
        client.apply_pool(pool())
        jobs = [client.submit(command=["true"], resources={"cpu": 1}).id for _ in range(5)]
        until(lambda: ReasonCode.WAITS_FOR_SLICE in told(client, jobs[0]))
        for job in jobs:
            assert client.wait(job, timeout_s=LIMIT_S).state is JobState.SUCCEEDED
        until(lambda: gone(client), LIMIT_S)
        ended = client.slices("ended")
        assert {each.status for each in ended} == {"TERMINATED"}
        assert not client.agents()
    assert not machines(cluster)


def test_a_controller_killed_at_any_moment_loses_no_machine_and_makes_none_twice(
    cluster: Cluster,
) -> None:
    rng = random.Random(SEED)
    with cluster.client() as client:
        client.apply_pool(pool(slice_size=1))
    jobs: list[str] = []
    most = 0
    for kill in range(KILLS):
        with cluster.client() as client:
            until(partial(answers, client))
            for number in range(JOBS // 3 if kill % 3 == 0 else 0):
                name = f"job-{kill}-{number}"
                submitted = client.submit(name=name, command=["sleep", "0.3"], resources={"cpu": 1})
                jobs.append(submitted.id)
        ends_s = time.monotonic() + rng.uniform(0.0, 2.5)
        while time.monotonic() < ends_s:
            most = max(most, len(machines(cluster)))
            time.sleep(0.02)
        cluster.kill_controller()
        cluster.start_controller()
    cluster.running()
    with cluster.client() as client:
        for job in jobs:
            assert client.wait(job, timeout_s=LIMIT_S).state is JobState.SUCCEEDED
            assert len(client.task(job, 0).attempts) == 1, "no machine was taken away from it"
        until(lambda: gone(client), LIMIT_S)
        assert not client.agents()
    assert most <= MOST
    until(lambda: not machines(cluster), LIMIT_S)


def answers(client: Client) -> bool:
    try:
        client.cluster()
    except (Unavailable, Unreachable):
        return False
    return True
