"""Another user's submissions beside floods: what one user, or a viewer, takes from everybody else.

A user submits a job of one task every ``PAUSE_S``, for a calm phase and then while somebody else
floods the cluster. The floods are requests of each kind over many connections, and jobs of millions
of short tasks.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
from benchmarks.cluster import NoCluster
from benchmarks.flooding import Flood
from benchmarks.results import Figure, MeaninglessFigures, Results
from tests.patience import until

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.client import Client
from muster.core.owner import Role
from muster.core.states import AgentStatus

TITLE = "Another user's submissions beside floods"
PAUSE_S = 0.15
START_S = 60.0
IDLE_S, IDLE_PERCENT = 1.0, 10.0
SLOTS = {"cpu": 0.01}
"""The bystander's jobs ask for so much: room is always left for them."""
MOST_RATIO, MOST_99TH_MS, MOST_MEMORY_MB, MOST_WAIT, MOST_CANCEL_S = 3.0, 150.0, 300.0, 0.5, 1.0

PLAN = {"command": "true", "tasks": 10_000}
GANG = {"command": "true", "tasks": 16, "coscheduled": True}
SESSION = {"kind": "session", "kernels": [{"command": ["true"], "replicas": 16}]}
LATER = {"command": "true", "not_before": "2099-01-01T00:00:00Z"}
"""A job that waits, and takes no room."""

REQUESTS: Mapping[str, tuple[Role, str, str, Mapping[str, Any] | None]] = {
    "plans of 10,000 tasks": (Role.VIEWER, "POST", "/v1/plan", PLAN),
    "plans of a gang": (Role.VIEWER, "POST", "/v1/plan", GANG),
    "plans of a session": (Role.VIEWER, "POST", "/v1/plan", SESSION),
    "openapi.json": (Role.VIEWER, "GET", "/v1/openapi.json", None),
    "jobs": (Role.VIEWER, "GET", "/v1/jobs?limit=500", None),
    "sessions": (Role.VIEWER, "GET", "/v1/sessions?limit=500", None),
    "why": (Role.USER, "GET", "/v1/jobs/stuck/why", None),
    "history": (Role.USER, "GET", "/v1/history/stuck", None),
    "tasks": (Role.USER, "GET", "/v1/jobs/stuck/tasks?limit=500", None),
    "agents": (Role.VIEWER, "GET", "/v1/agents", None),
    "cluster": (Role.VIEWER, "GET", "/v1/cluster", None),
    "refused": (Role.VIEWER, "POST", "/v1/jobs", PLAN),
    "not found": (Role.VIEWER, "GET", "/v1/jobs/nothing", None),
    "submissions": (Role.USER, "POST", "/v1/jobs", LATER),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each flood and the calm before it last, over how many connections it comes, on how
    many agents short tasks run, and which requests are sent."""

    seconds: float
    calm_s: float = 5.0
    connections: int = 16
    agents: tuple[int, ...] = (3, 6)
    requests: Collection[str] = tuple(REQUESTS)


FULL = Plan(12.0)
SHORT = Plan(4.0, agents=(3,))


def measure(plan: Plan) -> Results:
    """
    Raises:
        MusterError: a cluster does not start, or does not stop.
        MeaninglessFigures: a flood did not reach the controller.
    """
    figures: list[Figure] = []
    for agents in plan.agents:
        with _cluster(agents) as target:
            if agents == plan.agents[0]:
                for name in plan.requests:
                    figures += _beside(name, target, plan, _requests(name, target, plan))
            for cpu in (0, 1):
                name = f"short tasks, cpu {cpu}, agents {agents}"
                figures += _beside(name, target, plan, _short_tasks(target, cpu, plan))
    return Results(1, figures)


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster with a bystander, and an attacker who is a user and a viewer."""

    url: str
    controller: psutil.Process
    bystander: str
    tokens: Mapping[Role, str]
    cancels_s: list[float] = field(default_factory=list)


@contextmanager
def _cluster(agents: int) -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as path:
        report = up(UpOptions(home=Path(path), agents=agents, proxy=False))
        try:
            with Client(report.url, Home(Path(path)).client()["token"]) as admin:
                _await_agents(admin, agents)
                secrets = {}
                for name in ("bystander", "attacker"):
                    admin.add_user(name)
                    secrets[name] = admin.create_token(name, user=name).secret
                seen = admin.create_token("viewer", user="attacker", role=Role.VIEWER).secret
            tokens = {Role.USER: secrets["attacker"], Role.VIEWER: seen}
            with Client(report.url, secrets["attacker"]) as attacker:
                attacker.submit({**PLAN, **LATER, "name": "stuck", "tasks": 2_000})
            yield Target(report.url, psutil.Process(report.pid), secrets["bystander"], tokens)
        finally:
            down(Path(path))


def _await_agents(client: Client, number: int) -> None:
    until(lambda: client.cluster().agents.get(AgentStatus.ALIVE, 0) >= number, START_S)


def _requests(name: str, target: Target, plan: Plan) -> Callable[[], None]:
    role, method, path, body = REQUESTS[name]
    flood = Flood(
        *(target.url, target.tokens[role], method, path, body, plan.seconds, plan.connections)
    )

    def send() -> None:
        ran = subprocess.run(
            [sys.executable, "-m", "benchmarks.flooding"],
            input=flood.dump(),
            capture_output=True,
            text=True,
            timeout=plan.seconds + START_S,
            check=False,
        )
        if ran.returncode or not int(ran.stdout):
            raise MeaninglessFigures(f"{name} were not answered: {ran.stderr[-300:]}")

    return send


def _short_tasks(target: Target, cpu: int, plan: Plan) -> Callable[[], None]:
    def run() -> None:
        with Client(target.url, target.tokens[Role.USER]) as attacker:
            spec = {"command": ["true"], "tasks": 10_000_000, "resources": {"cpu": cpu}}
            job = attacker.submit(spec)
            time.sleep(plan.seconds)
            began_s = time.monotonic()
            attacker.cancel(job.id)
            target.cancels_s.append(time.monotonic() - began_s)

    return run


def _beside(name: str, target: Target, plan: Plan, attack: Callable[[], None]) -> Iterator[Figure]:
    """The figures of one flood, beside a calm phase of its own."""
    until(lambda: _is_idle(target.controller), START_S)  # what the last flood left is done
    bystander = Bystander(target)
    target.cancels_s.clear()
    with bystander.submitting():
        time.sleep(plan.calm_s)
        scheduled, began_s = _scheduled(target.controller), time.monotonic()
        attack()
        ended_s = time.monotonic()
        ran_s, waited_s = _between(scheduled, _scheduled(target.controller))
        memory_mb = target.controller.memory_info().rss / 1e6
    calm = bystander.between(0.0, began_s)
    flooded = bystander.between(began_s, ended_s)
    if len(flooded) < 2:
        raise MeaninglessFigures(f"no submissions were answered beside {name}")
    ratio = median(flooded) / median(calm)
    worst_ms = quantiles(flooded, n=100)[-1] * 1e3
    said = f"{median(calm) * 1e3:.0f} ms calm, {median(flooded) * 1e3:.0f} ms beside it"
    yield Figure(f"{name}: ratio", ratio, said, f"≤ {MOST_RATIO:g}")
    yield Figure(f"{name}: 99th, ms", worst_ms, "of submissions", f"≤ {MOST_99TH_MS:g}")
    yield Figure(
        f"{name}: wait", waited_s / ran_s, "of the controller, of what it ran", f"≤ {MOST_WAIT:g}"
    )
    yield Figure(f"{name}: memory, MB", memory_mb, "of the controller", f"≤ {MOST_MEMORY_MB:g}")
    for cancel_s in target.cancels_s:
        yield Figure(f"{name}: cancel, s", cancel_s, "until answered", f"≤ {MOST_CANCEL_S:g}")


class Bystander:
    """A user who submits a small job every ``PAUSE_S``, in a thread that comes before others for
    the processor where it may: what it measures is the controller."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stop = threading.Event()
        self._answered: list[tuple[float, float]] = []  # when, and how long it took

    @contextmanager
    def submitting(self) -> Iterator[None]:
        thread = threading.Thread(target=self._submit)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def between(self, first_s: float, last_s: float) -> list[float]:
        """How long the submissions took that were made and answered between these moments."""
        return [
            took_s for at_s, took_s in self._answered if at_s - took_s >= first_s and at_s <= last_s
        ]

    def _submit(self) -> None:
        if os.geteuid() == 0:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -15)
        with Client(self._target.url, self._target.bystander) as client:
            while not self._stop.wait(PAUSE_S):
                began_s = time.monotonic()
                client.submit(command=["true"], resources=SLOTS)
                ended_s = time.monotonic()
                self._answered.append((ended_s, ended_s - began_s))


def _is_idle(process: psutil.Process) -> bool:
    """Whether a process does next to nothing for a moment."""
    return process.cpu_percent(IDLE_S) < IDLE_PERCENT


def _scheduled(process: psutil.Process) -> dict[str, tuple[int, int]]:
    """Nanoseconds that each thread of a process ran, and waited for a processor.

    Raises:
        NoCluster: the process is gone.
    """
    found = {}
    try:
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends meanwhile
                ran, waited, _ = (thread / "schedstat").read_text().split()
                found[thread.name] = int(ran), int(waited)
    except OSError as error:
        raise NoCluster(f"the controller cannot be looked at: {error.strerror}") from None
    return found


def _between(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> tuple[float, float]:
    """Seconds that the threads ran and waited that were there at the end: what one that ended
    did is told by nobody any more."""
    ran_ns = waited_ns = 0
    for thread, (ran, waited) in after.items():
        ran_before, waited_before = before.get(thread, (0, 0))
        ran_ns += ran - ran_before
        waited_ns += waited - waited_before
    return ran_ns / 1e9, waited_ns / 1e9
