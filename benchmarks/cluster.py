"""A cluster of one agent in a temporary directory, as `muster up` makes it, and its processes."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.app.local_agents import holder
from muster.client import Client
from muster.core.errors import MusterError
from muster.core.states import AgentStatus

START_LIMIT_S = 30.0


class NoCluster(MusterError):
    """The cluster to be measured did not come up."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The three processes of a cluster with one agent."""

    controller: psutil.Process
    agent: psutil.Process
    supervisor: psutil.Process

    def cpu_s(self) -> dict[str, float]:
        """Processor time that each has used itself, without its children."""
        return {name: sum(process.cpu_times()[:2]) for name, process in self._named().items()}

    def rss_mib(self) -> dict[str, float]:
        return {name: process.memory_info().rss / 2**20 for name, process in self._named().items()}

    def _named(self) -> dict[str, psutil.Process]:
        return {
            "controller": self.controller,
            "agent": self.agent,
            "supervisor": self.supervisor,
        }


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster. ``client`` connects anew after it was closed."""

    client: Client
    processes: Processes
    home: Home


@contextmanager
def one_agent_cluster() -> Iterator[Cluster]:
    """A fresh cluster with the default settings of `muster up`; nothing of it stays.

    Raises:
        MusterError: it does not start, or does not stop.
    """
    path = Path(tempfile.mkdtemp(prefix="muster-bench-"))
    home = Home(path)
    try:
        report = up(UpOptions(home=path, agents=1))
        with Client(report.url, home.client()["token"]) as client:
            _await_agent(client)
            (directory,) = home.agent_directories()
            processes = Processes(
                psutil.Process(report.pid), _agent(directory), _supervisor(directory)
            )
            yield Cluster(client, processes, home)
    finally:
        try:
            down(path)
        finally:
            shutil.rmtree(path)


def _await_agent(client: Client) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while client.cluster().agents.get(AgentStatus.ALIVE, 0) < 1:
        if time.monotonic() > deadline_s:
            raise NoCluster(f"the agent did not come within {START_LIMIT_S:.0f} s")
        time.sleep(0.05)


def _agent(directory: Path) -> psutil.Process:
    pid = holder(directory)
    if pid is None:
        raise NoCluster("the agent's process is not there")
    return psutil.Process(pid)


def _supervisor(directory: Path) -> psutil.Process:
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [])[-2:] == ["--dir", str(directory)]:
            return process
    raise NoCluster("the supervisor's process is not there")
