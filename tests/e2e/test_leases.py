"""Leases between real processes: nothing that only waits costs work its lease, and whatever is cut
off, stalled or set anew, no task runs twice at once."""

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisor.driver import cgroups_of
from tests.e2e.cluster import Cluster, agent, started
from tests.e2e.markers import Work
from tests.e2e.proxy import StallingProxy, stalling
from tests.patience import until

from muster.agent.supervisor.cgroups import remove_tree
from muster.app.lost_supervisors import LOOK_S
from muster.client import Client
from muster.control.agent.leases import LEASE_MARGIN_S
from muster.core.errors import Conflict
from muster.core.states import AgentStatus, JobState

LEASE_S = 3.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    agents = [agent(name, cpu_milli=1000) for name in ("one", "two")]
    with started(Cluster(tmp_path / "home", agents), group()) as cluster:
        yield cluster


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[Cluster, StallingProxy]]:
    """Agent ``one`` reaches the controller through the proxy."""
    cluster = Cluster(tmp_path / "home", [agent(name, cpu_milli=1000) for name in ("one", "two")])
    with ExitStack() as stack:
        proxy = stack.enter_context(stalling(cluster.agent_port))
        cluster.through("one", proxy.port)
        stack.enter_context(started(cluster, group()))
        yield cluster, proxy


def group(**fields: Any) -> dict[str, Any]:
    return {"kind": "group", "name": "default", "agent_silence": 1.0, **fields}


def lease(cluster: Cluster, client: Client, lease_s: float | None) -> None:
    """Set the group's lease, and wait until no agent counts with another."""
    client.put_group(group(kernel_lease=lease_s))
    expected = float("inf") if lease_s is None else lease_s
    until(lambda: cluster.query("SELECT lease_s FROM agents") == [(expected,)] * 2)


def heard(client: Client, beats: int) -> None:
    """Wait until all agents were heard anew, so many times."""
    for _ in range(beats):
        last = max(found.seen_at or 0.0 for found in client.agents())
        until(partial(_all_heard_since, client, last))


def _all_heard_since(client: Client, last: float) -> bool:
    return all((found.seen_at or 0.0) > last for found in client.agents())


def work_on_one(client: Client, tmp_path: Path) -> Work:
    """Work that has begun on agent ``one``; ``two`` would take it over."""
    client.bar_agent("two", "cordoned")
    work = Work(client, tmp_path)
    client.bar_agent("two", None)
    return work


def kill_kernels(cluster: Cluster) -> None:
    """As if their machine was gone."""
    for pid in cluster.kernels():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def status_of_one(client: Client) -> AgentStatus | None:
    """None while there is no such agent."""
    return next((found.status for found in client.agents() if found.name == "one"), None)


def test_controller_whose_disk_hangs_past_the_lease_loses_no_work(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        lease(cluster, client, LEASE_S)
        work = Work(client, tmp_path)
        with closing(sqlite3.connect(cluster.home.database, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")  # the controller's next commit waits for its end
            began_s = time.monotonic()
            with pytest.raises(Exception, match=r"stored|locked|answer"):
                client.submit(command=["true"], name="late")
            assert time.monotonic() > began_s + 2 * LEASE_S
            database.execute("ROLLBACK")
        work.ran({work.agent or ""})
        assert len(work.marks("begin")) == 1


def test_renewals_that_stall_and_come_late_never_let_a_task_run_twice_at_once(
    proxied: tuple[Cluster, StallingProxy], tmp_path: Path
) -> None:
    cluster, proxy = proxied
    with cluster.client() as client:
        lease(cluster, client, LEASE_S)
        work = work_on_one(client, tmp_path)
        for up, down in ((False, True), (True, False)):
            proxy.stall(up=up, down=down)
            time.sleep(LEASE_S * 0.6)
            proxy.flow()
            until(lambda: status_of_one(client) is AgentStatus.ALIVE)
        proxy.stall()
        time.sleep(LEASE_S * 0.6)
        proxy.stall(down=False)  # what the controller said is heard late, and nothing answered
        until(lambda: work.marks("begin")[1:], timeout_s=60.0)
        proxy.flow()
        work.ran({"one", "two"})


def test_lease_made_shorter_on_a_live_group_lets_no_task_run_twice_at_once(
    proxied: tuple[Cluster, StallingProxy], tmp_path: Path
) -> None:
    cluster, proxy = proxied
    with cluster.client() as client:
        lease(cluster, client, 600.0)
        work = work_on_one(client, tmp_path)
        proxy.stall()
        until(lambda: status_of_one(client) is AgentStatus.UNREACHABLE)
        client.put_group(group(kernel_lease=0.5))  # which agent one does not learn
        time.sleep(LEASE_MARGIN_S + 2.0)
        assert status_of_one(client) is AgentStatus.UNREACHABLE
        assert len(work.marks("begin")) == 1
        client.put_group(group(kernel_lease=600.0))
        proxy.flow()
        until(lambda: status_of_one(client) is AgentStatus.ALIVE)
        work.ran({"one"})


def test_shorter_lease_is_learned_by_agents_at_once(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.client() as client:
        work = Work(client, tmp_path)
        lease(cluster, client, 0.5)
        cluster.kill_controller()
        until(lambda: not cluster.kernels(), timeout_s=15.0)
        cluster.start_controller()
        cluster.running()
        (work.markers / "go").touch()
        assert client.wait(work.job, 60.0).state == JobState.SUCCEEDED
        assert work.marks("overlap") == []


def test_work_beside_the_controller_outlives_its_absence(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.client() as client:
        lease(cluster, client, 0.5)
        lease(cluster, client, None)
        heard(client, beats=2)  # the second heartbeat follows the answer to the first
        work = Work(client, tmp_path)
        cluster.kill_controller()
        time.sleep(LEASE_S)
        cluster.start_controller()
        cluster.running()
        work.ran({work.agent or ""})
        assert len(work.marks("begin")) == 1


def test_agent_whose_supervisor_is_gone_with_all_it_ran_is_lost_though_its_lease_has_no_end(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        client.put_group(group())
        work = work_on_one(client, tmp_path)
        cluster.kill_agent("one")
        supervisor = cluster.kill_supervisor("one")
        until(lambda: status_of_one(client) is AgentStatus.UNREACHABLE)
        directory = cluster.home.agent_directory("one")
        cgroups = cgroups_of(directory)
        shutil.rmtree(directory)
        time.sleep(2 * LOOK_S)
        assert cluster.kernels(), "they outlive their supervisor"
        assert supervisor not in cluster.kernels()
        assert status_of_one(client) is AgentStatus.UNREACHABLE
        kill_kernels(cluster)
        for cgroup in cgroups:  # nobody else knows of them any more
            remove_tree(str(cgroup))
        until(lambda: status_of_one(client) is AgentStatus.LOST)
        work.ran({"one", "two"})


def test_agent_that_proves_nothing_any_more_is_removed_on_an_administrators_word(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        client.put_group(group())
        work = work_on_one(client, tmp_path)
        (former,) = (found for found in client.agents() if found.name == "one")
        cluster.kill_agent("one")
        cluster.signal_supervisor("one", signal.SIGSTOP)  # as long as it lives, so does the lease
        kill_kernels(cluster)
        until(lambda: status_of_one(client) is AgentStatus.UNREACHABLE)
        with pytest.raises(Conflict, match="muster agents remove --lost one"):
            client.remove_agent("one")
        client.remove_agent("one", lost=True)
        until(lambda: work.agent == "two")
        cluster.signal_supervisor("one", signal.SIGCONT)
        cluster.start_agent("one")  # it is told, and joins anew
        until(lambda: status_of_one(client) is AgentStatus.ALIVE)
        assert former.id not in {found.id for found in client.agents()}
        work.ran({"one", "two"})


def test_copy_of_an_agents_directory_is_refused_and_told_what_to_do(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        client.put_group(group())
        work = work_on_one(client, tmp_path)
        original = cluster.home.agent_directory("one")
        copy = cluster.add(agent("copy", cpu_milli=1000))
        copy.mkdir()
        shutil.copy(original / "credential.json", copy)
        cluster.start_agent("copy")
        log = copy.with_suffix(".log")
        until(lambda: "stop one of the two" in log.read_text())
        assert {found.name for found in client.agents()} == {"one", "two"}
        work.ran({"one"})
        assert len(work.marks("begin")) == 1
