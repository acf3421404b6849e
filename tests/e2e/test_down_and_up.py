"""`muster down` and `muster up` again, also with fewer agents: what ended meanwhile does not run a
second time."""

import json
import os
import signal
from pathlib import Path

import httpx
import pytest
from tests.e2e.cluster import client_of, processes_naming
from tests.e2e.test_up import muster, names
from tests.patience import until

from muster.agent.identity import LOCK_FILE
from muster.agent.supervisor import lock_file
from muster.agent.supervisor.shutdown import LOCK_NAME
from muster.app import local
from muster.app.home import Home
from muster.app.keeper import keeper_of
from muster.app.local import UpOptions, down, up
from muster.core.specs.pool import PoolSpec

GROUP = {"kind": "group", "name": "default", "agent_silence": "1s"}


def shorten_silence(home: Home) -> None:
    """Have agents count as silent soon."""
    known = home.client()
    headers = {"Authorization": f"Bearer {known['token']}"}
    url = f"{known['url']}/v1/groups/default"
    assert httpx.put(url, headers=headers, content=json.dumps(GROUP)).status_code == 200


def kernels(home: Home) -> list[int]:
    """The processes of kernels of the home's agents."""
    return [
        pid
        for pid, _, environment in processes_naming(home.path)
        if any(entry.startswith(b"MUSTER_KERNEL_ID=") for entry in environment)
    ]


def test_output_stays_readable_when_its_agent_is_not_started_and_when_it_is_again(
    home: Home,
) -> None:
    up(UpOptions(home.path, agents=2, cpus="1"))
    shorten_silence(home)
    with client_of(home) as cluster:
        there = {"agents": ["agent-2"]}
        job = cluster.submit(command=["echo", "hello"], placement=there).id
        assert cluster.wait(job).state == "SUCCEEDED"
        assert b"".join(cluster.logs(job)) == b"hello\n"
    down(home.path)

    up(UpOptions(home.path, agents=1))
    with client_of(home) as cluster:
        assert b"".join(cluster.logs(job)) == b"hello\n"
        until(lambda: names(home) == ["agent-1"])
        assert b"".join(cluster.logs(job)) == b"hello\n"
    down(home.path)

    up(UpOptions(home.path, agents=2))
    with client_of(home) as cluster:
        until(lambda: names(home) == ["agent-1", "agent-2"])
        assert b"".join(cluster.logs(job)) == b"hello\n"
        assert b"".join(cluster.logs(job, follow=True)) == b"hello\n"
    down(home.path)


def test_agent_that_is_not_started_any_more_is_forgotten_with_what_it_ran(home: Home) -> None:
    up(UpOptions(home.path, agents=2, cpus="1"))
    shorten_silence(home)
    with client_of(home) as cluster:
        until(lambda: sum(agent.capacity.cpu_milli for agent in cluster.agents()) == 2000)
        job = cluster.submit(command=["sleep", "1000"], tasks=2, resources={"cpu": 1}).id
        until(lambda: cluster.job(job).counts == {"RUNNING": 2})
    down(home.path, keep_kernels=True)

    up(UpOptions(home.path, agents=1))
    with client_of(home) as cluster:
        until(lambda: names(home) == ["agent-1"])
        until(lambda: cluster.job(job).counts == {"RUNNING": 1, "PENDING": 1})
        cluster.cancel(job)
        until(lambda: cluster.agents()[0].kernels == 0)
    assert "agent-2" not in muster(home, "doctor").stdout
    down(home.path)

    up(UpOptions(home.path, agents=2))
    until(lambda: names(home) == ["agent-1", "agent-2"])


def end_without_a_controller(home: Home, pid: int, go: Path) -> None:
    """Kill the controller and its keeper, let work end that waits for this file, and take down the
    rest."""
    kept = keeper_of(home)
    assert kept is not None
    for each in (kept, pid):
        os.kill(each, signal.SIGKILL)
    go.touch()
    until(lambda: not kernels(home))
    down(home.path)


def test_work_that_ended_on_a_local_pools_machine_runs_no_second_time_after_down_and_up(
    home: Home,
) -> None:
    first = up(UpOptions(home.path, agents=0))
    shorten_silence(home)
    go, runs = home.path / "go", home.path / "runs"
    command = f"echo $MUSTER_ATTEMPT >>{runs}; until [ -e {go} ]; do sleep 0.05; done"
    machine = {"cpu": 1, "memory": "512MiB"}
    pool = {"name": "here", "provider": "local", "machine": machine, "max_slices": 2}
    with client_of(home) as cluster:
        cluster.apply_pool(PoolSpec.model_validate(pool))
        job = cluster.submit(command=command, tasks=2, resources={"cpu": 1}).id
        until(lambda: cluster.job(job).counts == {"RUNNING": 2}, 90.0)
        until(lambda: runs.exists() and len(runs.read_text().split()) == 2)
    end_without_a_controller(home, first.pid, go)

    up(UpOptions(home.path))
    with client_of(home) as cluster:
        assert cluster.wait(job, 90.0).state == "SUCCEEDED"
        attempts = [len(cluster.task(job, task).attempts) for task in range(2)]
    assert (attempts, runs.read_text().split()) == ([1, 1], ["1", "1"])


@pytest.mark.parametrize("together", [False, True])
def test_work_that_ended_on_an_agent_that_is_not_started_any_more_runs_no_second_time(
    home: Home, together: bool
) -> None:
    first = up(UpOptions(home.path, agents=2, cpus="1"))
    shorten_silence(home)
    go, runs = home.path / "go", home.path / "runs"
    command = f"echo $MUSTER_ATTEMPT >>{runs}; until [ -e {go} ]; do sleep 0.05; done"
    one = {"cpu": 1}
    with client_of(home) as cluster:
        job = cluster.submit(command=command, tasks=2, coscheduled=together, resources=one).id
        until(lambda: cluster.job(job).counts == {"RUNNING": 2})
        until(lambda: runs.exists() and len(runs.read_text().split()) == 2)
    end_without_a_controller(home, first.pid, go)

    up(UpOptions(home.path, agents=1))
    with client_of(home) as cluster:
        assert cluster.wait(job, 90.0).state == "SUCCEEDED"
        attempts = [len(cluster.task(job, task).attempts) for task in range(2)]
        until(lambda: names(home) == ["agent-1"])
    assert (attempts, runs.read_text().split()) == ([1, 1], ["1", "1"])
    until(lambda: not lock_file.is_held(home.agent_directory("agent-2") / LOCK_NAME))


@pytest.mark.parametrize("together", [False, True])
def test_work_that_ended_without_a_controller_runs_no_second_time_after_down_and_up(
    home: Home, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the journal has the ends, and it is read once the agent is back, which is long after its
    silence counts."""
    monkeypatch.setattr(local, "JOINED_WITHIN_S", 0.1)
    first = up(UpOptions(home.path, agents=1, cpus="2"))
    shorten_silence(home)
    go, runs = home.path / "go", home.path / "runs"
    command = f"echo $MUSTER_ATTEMPT >>{runs}; until [ -e {go} ]; do sleep 0.05; done"
    with client_of(home) as cluster:
        job = cluster.submit(command=command, tasks=2, coscheduled=together).id
        until(lambda: cluster.job(job).counts == {"RUNNING": 2})
        until(lambda: runs.exists() and len(runs.read_text().split()) == 2)
    end_without_a_controller(home, first.pid, go)

    lock = lock_file.take(home.agent_directory("agent-1") / LOCK_FILE)  # so that it starts late
    try:
        up(UpOptions(home.path))
        until(lambda: "silent and its supervisor gone" in home.log.read_text())
    finally:
        os.close(lock)
    with client_of(home) as cluster:
        assert cluster.wait(job, 60.0).state == "SUCCEEDED"
        attempts = [len(cluster.task(job, task).attempts) for task in range(2)]
    assert (attempts, runs.read_text().split()) == ([1, 1], ["1", "1"])
