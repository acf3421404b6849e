"""A supervisor that stalls: nothing of a gang runs until all of it can."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster, agent, started
from tests.patience import until

from muster.core.states import JobState

STALL_S = 3.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    agents = [agent(name, cpu_milli=1000) for name in ("one", "two")]
    with started(Cluster(tmp_path / "home", agents)) as cluster:
        yield cluster


def test_gang_does_not_run_in_part_while_one_supervisor_is_frozen(
    cluster: Cluster, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    command = ["sh", "-c", f"echo $MUSTER_ATTEMPT $RANK >>{lines}; sleep 0.2"]
    cluster.signal_supervisor("two", signal.SIGSTOP)
    try:
        with cluster.client() as client:
            job = client.submit(command=command, tasks=2, coscheduled=True)
            held = "SELECT count(*) FROM sessions WHERE status = 'CREATING'"
            until(lambda: cluster.query(held) == [(1,)])
            time.sleep(STALL_S)  # for which half of it used to run alone
            assert not lines.exists()
            assert client.job(job.id).state == JobState.RUNNING
    finally:
        cluster.signal_supervisor("two", signal.SIGCONT)
    with cluster.client() as client:
        assert client.wait(job.id, 30.0).state == JobState.SUCCEEDED
    assert sorted(lines.read_text().split("\n")) == ["", "1 0", "1 1"]
