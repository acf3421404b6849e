"""The cluster under attack, and a bystander whose work on it must not suffer."""

import json
import math
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.control.strangers import install
from tests.e2e.cluster import Cluster, agent, started
from tests.patience import until

from muster.agent.config import AgentConfig
from muster.client import Client
from muster.core.states import AgentStatus, TaskState

ROOT = Path(__file__).parents[2]
LONGEST_P99_S = 0.15
"""Of the bystander's submissions, on a machine of usual speed: 60 to 115 ms are measured there;
what an attack must not do makes them seconds."""
MOST_MEMORY_BYTES = 300 << 20
"""Of the controller, whatever it was asked."""
KERNELS = 4
LOG_BYTES = 4000
"""Of each log, at its end, that a failure shows."""
LEASE_S = 20.0
"""Of kernels: what stops the controller for as long would cost the bystander its work."""
SILENCE_S = 5.0
"""Of agents: what keeps them from speaking for as long would have them count as unreachable."""
USUAL_OPEN_FILES = 1024
MALLORYS_ADDRESS = "127.0.0.2"
"""The address of attackers; the bystander's is 127.0.0.1."""


@dataclass(frozen=True)
class Probe:
    """One submission of the bystander: seconds that it would have taken on a machine of usual
    speed, and what went wrong."""

    at: float
    took_s: float
    error: str


class Target:
    """A cluster with users: ``mallory`` may hand in work, ``victor`` only look, ``ada`` is the
    bystander, and the administrator's token is the home's."""

    def __init__(self, path: Path, agents: Sequence[AgentConfig]) -> None:
        self.cluster = Cluster(path / "home", agents)
        packages = install(path / "packages").parent
        self.cluster.environment["PYTHONPATH"] = f"{packages}:{ROOT}:{ROOT / 'src'}"
        self.tokens: dict[str, str] = {}
        self._probes = path / "probes"
        self._prober: subprocess.Popen[bytes] | None = None
        self._kernels: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.cluster.port}"

    @property
    def agent_address(self) -> str:
        return f"127.0.0.1:{self.cluster.agent_port}"

    def client(self, user: str | None = None) -> Client:
        """A client of a user, or of the administrator."""
        return self.cluster.client(self.tokens[user] if user else None)

    def raw(self, user: str, timeout_s: float = 30.0) -> httpx.Client:
        """Plain HTTP with a user's token, from the attackers' address: any path and any body."""
        return httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.tokens[user]}"},
            timeout=timeout_s,
            transport=httpx.HTTPTransport(local_address=MALLORYS_ADDRESS),
        )

    def add_users(self) -> None:
        """Have the running cluster know its users."""
        roles = {"mallory": "user", "victor": "viewer", "ada": "user"}
        self.tokens = {user: self.cluster.add_user(user, role) for user, role in roles.items()}

    def set_policy(self, **policy: str) -> None:
        """Have the group of everybody's work follow this policy, and forget the one before."""
        group = {"name": "default", "kernel_lease": LEASE_S, "agent_silence": SILENCE_S, **policy}
        with self.client() as admin:
            admin.put_group(group)

    # -- the bystander ---------------------------------------------------------------------------

    @contextmanager
    def bystander(self) -> Iterator[None]:
        """Kernels of the bystander run from now on, and it hands in work all the while."""
        self.set_policy()
        with self.client("ada") as ada:
            job = ada.submit(
                name="long", command=["sleep", "100000"], tasks=KERNELS, max_retries_preemption=0
            )
            until(lambda: ada.job(job.id).counts.get(TaskState.RUNNING) == KERNELS)
        self._kernels = self._running()
        with self._probes.open("wb") as output:
            self._prober = subprocess.Popen(
                [sys.executable, "-m", "tests.attacks.prober"],
                stdin=subprocess.PIPE,
                stdout=output,
                cwd=ROOT,
            )
        try:
            assert self._prober.stdin is not None
            said = (self.cluster.running().pid, self.cluster.port, self.tokens["ada"])
            self._prober.stdin.write("{} {} {}\n".format(*said).encode())
            self._prober.stdin.flush()
            until(lambda: len(self.probes()) > 5)
            yield
        finally:
            self._prober.communicate(timeout=60)
        with self.client("ada") as ada:
            ada.cancel("long")

    def probes(self) -> list[Probe]:
        """The bystander's submissions so far."""
        lines = self._probes.read_text().splitlines(keepends=True)
        return [Probe(*json.loads(line)) for line in lines if line.endswith("\n")]

    def _running(self) -> dict[str, str]:
        """The bystander's long tasks: what their kernels are and how they are."""
        with self.client("ada") as ada:
            details = [ada.task("long", index) for index in range(KERNELS)]
        return {kernel.id: kernel.status for detail in details for kernel in detail.attempts}

    def assert_unharmed(self, since: int) -> None:
        """All kernels of the bystander are those of the beginning, and none of its submissions
        failed; ``since`` is the number of those that an earlier look has judged."""
        count = len(self.probes())
        until(lambda: len(self.probes()) > count, timeout_s=10.0)
        assert self.peak_memory_bytes() < MOST_MEMORY_BYTES
        failed = [probe for probe in self.probes()[since:] if probe.error]
        assert not failed, f"submissions of a bystander failed: {failed[:3]}"
        assert self._running() == self._kernels
        self.assert_agents_alive()

    def peak_memory_bytes(self) -> int:
        """The most memory that the controller has ever had."""
        lines = Path(f"/proc/{self.cluster.running().pid}/status").read_text().splitlines()
        peak_kib = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(peak_kib) * 1024

    def assert_agents_alive(self) -> None:
        """The agents of the beginning are all there."""
        with self.client() as admin:
            agents = [each for each in admin.agents() if each.name in ("one", "two")]
        assert [each.status for each in agents] == [AgentStatus.ALIVE] * 2, [
            *map(str, agents),
            *self.cluster.log_tails(LOG_BYTES),
        ]

    def assert_served(self, since: int = 0) -> None:
        """99 of 100 submissions of the bystander took less than ``assert_p99`` allows: of all,
        or without so many of the first."""
        took_s = sorted(probe.took_s for probe in self.probes()[since:])
        # Of fewer than a hundred one may be slow, or this would be a limit of the slowest.
        p99_s = took_s[min(math.ceil(len(took_s) * 0.99) - 1, len(took_s) - 2)]
        assert_p99(p99_s, len(took_s))


def assert_p99(took_s: float, of: int) -> None:
    """99 of 100 submissions took as long as they may, on a machine of usual speed."""
    told = f"p99 of {of} submissions: {took_s * 1e3:.0f} ms of a machine of usual speed"
    assert took_s < LONGEST_P99_S, told


@contextmanager
def under_attack(path: Path) -> Iterator[Target]:
    """A target that runs, with its bystander; it was started with room for few open files."""
    agents = [agent(name, cpu_milli=16_000, gpus="none") for name in ("one", "two")]
    target = Target(path, agents)
    with ExitStack() as stack:
        with few_open_files():
            stack.enter_context(started(target.cluster))
        target.add_users()
        with target.bystander():
            yield target


@contextmanager
def few_open_files() -> Iterator[None]:
    """Processes that are started have the usual soft limit, which the connections of one address
    alone pass."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(USUAL_OPEN_FILES, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
