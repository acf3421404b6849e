"""Machines of the provider ``local`` for tests, and looks at what they run."""

from pathlib import Path

from tests.e2e.cluster import assert_no_survivors
from tests.patience import until
from tests.providers.conformance import SHAPE, Site, gone

from muster.core.ids import KernelId
from muster.core.specs.pool import PoolSpec
from muster.providers.local.processes import LocalProcesses
from muster.providers.provider import Machine, MachineState, Provider, Scope

KERNEL = KernelId("krn-1")


def spec(pool: str = "one", **fields: object) -> PoolSpec:
    given = {"name": pool, "provider": "local", "machine": SHAPE, "max_slices": 4}
    return PoolSpec.model_validate(given | fields)


class LocalSite(Site):
    """All pools of all clusters keep their machines in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._scopes: dict[tuple[str, str], LocalProcesses] = {}

    def provider(self, pool: str = "one", cluster: str = "c-1") -> LocalProcesses:
        made = LocalProcesses(spec(pool), Scope(cluster, pool, self.directory))
        self._scopes[cluster, pool] = made
        return made

    def close(self) -> None:
        for provider in self._scopes.values():
            for slice_ in {machine.slice for machine in provider.list().machines}:
                gone(self, provider, slice_)
        assert_no_survivors(self.directory)
        assert not self.directory.exists() or [*self.directory.iterdir()] == []


def agent_pid(site: LocalSite, machine: Machine) -> int:
    """The process of a machine's agent, once it is up."""
    lock = site.directory / machine.id / "agent/agent.lock"
    until(lambda: lock.exists() and lock.stat().st_size)
    return int(lock.read_text())


def state_of(provider: Provider, name: str) -> MachineState:
    (state,) = {machine.state for machine in provider.list().machines if machine.name == name}
    return state


def processes_of(kernel: KernelId) -> list[int]:
    """The processes of a kernel."""
    tag = f"MUSTER_KERNEL_ID={kernel}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if tag in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
