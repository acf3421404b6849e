"""Machines of the provider ``local`` beside a real controller."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster, assert_no_survivors, started
from tests.patience import until

from muster.app.home import Home
from muster.app.local import down
from muster.client import Client
from muster.core.specs.pool import PoolSpec
from muster.providers.local.processes import LocalProcesses
from muster.providers.provider import AgentSetup, Machine, MachineState, Scope, SliceOrder

SPEC = {"name": "here", "provider": "local", "max_slices": 2}
SHAPE = {"cpu": 1, "memory": "256MiB", "disk": "1GiB", "gpus": 1, "gpu_model": "T4"}


def spec() -> PoolSpec:
    return PoolSpec.model_validate({**SPEC, "machine": SHAPE})


def order(slice_: str, setup: AgentSetup) -> SliceOrder:
    return SliceOrder(slice_, (f"{slice_}-0",), spec().machine, False, {}, setup)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(Cluster(tmp_path_factory.mktemp("cluster"))) as made:
        yield made


@pytest.fixture
def pool(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[LocalProcesses, Machine]]:
    """A pool with one machine, which has joined."""
    provider = LocalProcesses(spec(), Scope("c-1", "here", tmp_path / "pool"))
    token = cluster.home.join_token()
    assert token is not None
    setup = AgentSetup(f"127.0.0.1:{cluster.agent_port}", "default", token)
    (machine,) = provider.create(order("sl-1", setup))
    with cluster.client() as client:
        until(lambda: [each.capacity.cpu_milli for each in client.agents()] == [1000])
    yield provider, machine
    until(lambda: provider.delete("sl-1"))


def test_work_of_a_rebooted_machine_runs_again_at_once(
    cluster: Cluster, pool: tuple[LocalProcesses, Machine]
) -> None:
    """Control takes the other boot for what it is: it waits for no lease."""
    provider, machine = pool
    with cluster.client() as client:
        (agent,) = client.agents()
        assert (agent.name, agent.status) == ("sl-1-0", "ALIVE")
        assert [device.model for device in agent.devices] == ["T4"]
        job = client.submit(command=["sleep", "1000"]).id
        until(lambda: attempt_that_runs(client, job) == 1)

        provider.reboot(machine, hard=True)

        until(lambda: attempt_that_runs(client, job) == 2, timeout_s=20.0)
        task = client.task(job, 0)
        assert (task.failure_count, task.preemption_count) == (0, 1)
        client.cancel(job)


def test_down_ends_machines_of_local_pools_and_what_they_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    provider = LocalProcesses(spec(), Scope("c-1", "here", home.providers / "here"))
    provider.create(order("sl-1", AgentSetup("127.0.0.1:1", "default", "t")))
    provider.create(order("sl-2", AgentSetup("127.0.0.1:1", "default", "t")))
    until((home.providers / "here/sl-1/sl-1-0/agent/supervisor.sock").exists)

    down(home.path, keep_kernels=True)
    assert MachineState.STOPPED not in {each.state for each in provider.list().machines}

    down(home.path)
    assert_no_survivors(home.path)
    assert [each.state for each in provider.list().machines] == [MachineState.STOPPED] * 2
    assert provider.delete("sl-1")
    assert provider.delete("sl-2")


def attempt_that_runs(client: Client, job: str) -> int | None:
    task = client.task(job, 0)
    return task.attempt if task.state == "RUNNING" else None
