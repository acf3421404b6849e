"""Machines that are taken out of work while kernels run on them: as an operator does it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster, agent, started
from tests.e2e.markers import Work
from tests.patience import until

from muster.client import Client
from muster.core.states import JobState

MUSTER = Path(sys.executable).with_name("muster")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    agents = [agent(name, cpu_milli=3000, gpus="none") for name in ("one", "two")]
    with started(Cluster(tmp_path / "home", agents)) as cluster:
        yield cluster


def muster(cluster: Cluster, *words: str) -> str:
    done = subprocess.run(
        [str(MUSTER), *words],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_one(client: Client, tmp_path: Path, *names: str) -> list[Work]:
    """Work that has begun on agent ``one``."""
    client.bar_agent("two", "cordoned")
    works = [Work(client, tmp_path, name) for name in names]
    client.bar_agent("two", None)
    assert {work.agent for work in works} == {"one"}
    return works


def kernels_of_one(client: Client) -> int:
    return next(found.kernels for found in client.agents() if found.name == "one")


def test_cordoned_agent_runs_on_what_it_runs_and_takes_nothing_new(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        (work,) = on_one(client, tmp_path, "work")
        (pid,) = [mark.pid for mark in work.marks("begin")]
        said = muster(cluster, "cordon", "one", "--reason", "looks odd")
        assert "one" in said
        others = client.submit(name="others", command=["true"], tasks=20)
        assert client.wait(others.id, 30.0).state == JobState.SUCCEEDED
        where = {client.task(others.id, index).attempts[-1].agent for index in range(20)}
        assert where == {"two"}
        assert pid in cluster.kernels()
        muster(cluster, "uncordon", "one")
        client.bar_agent("two", "cordoned")
        after = client.submit(name="after", command=["true"])
        assert client.wait(after.id, 30.0).state == JobState.SUCCEEDED
        work.ran({"one"})
        assert len(work.marks("begin")) == 1


def test_drained_agent_is_empty_after_its_deadline_and_its_work_runs_elsewhere_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        *works, ends_in_time = on_one(client, tmp_path, "first", "second", "third")
        pids = {mark.pid for work in works for mark in work.marks("begin")}
        muster(cluster, "drain", "one", "--deadline", "3s", "--reason", "new disk")
        ends_in_time.ran({"one"})
        assert pids <= set(cluster.kernels()), "the deadline is still to come"
        until(lambda: all(len(work.marks("begin")) == 2 for work in works))
        assert not pids & set(cluster.kernels())
        until(lambda: kernels_of_one(client) == 0)
        for work in works:
            work.ran({"one", "two"})
            assert len(work.marks("begin")) == 2
            task = client.task(work.job, 0)
            assert (task.failure_count, task.preemption_count) == (0, 1)


def test_agent_that_is_drained_at_once_is_empty_and_can_be_removed(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        (work,) = on_one(client, tmp_path, "work")
        muster(cluster, "drain", "one", "--deadline", "0")
        until(lambda: work.marks("begin")[1:])
        until(lambda: kernels_of_one(client) == 0)
        (former,) = [found.id for found in client.agents() if found.name == "one"]
        muster(cluster, "agents", "remove", "one")
        # It has a join token that is still good, and may be back as another.
        assert former not in {found.id for found in client.agents()}
        work.ran({"one", "two"})
        log = cluster.home.agent_directory("one").with_suffix(".log")
        until(lambda: "removed" in log.read_text())
