"""The control plane's part of B5: pools whose machines are only records, the cost of wakes, and the
time from a submission until the provider is called."""

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, TypeVar, cast

from benchmarks.results import Figure, MeaninglessFigures

from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.engine.effects import AgentsDoor, Surroundings
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.inbox import Inbox
from muster.control.job.requests import JobRequests
from muster.control.modules import cluster_entities, cluster_modules
from muster.control.plane import ControlPlane
from muster.control.pool.autoscaler import ROUTE_S, ROUTE_S_A_SLICE
from muster.control.pool.records import OwnMachine, Pool, Slice, SliceId
from muster.control.pool.requests import PoolRequests
from muster.control.pool.slices import SliceLifecycle
from muster.core.clock import SteadyClock
from muster.core.ids import IdFactory, IdKind
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons.of_agents import AgentJoined
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.specs.pool import PoolSpec
from muster.core.states import AgentStatus
from muster.core.states.slice import SliceStatus
from muster.providers import found
from muster.providers.provider import Machine, MachineListing, MachineState, Provider, SliceOrder
from muster.store.database import open_engine, sqlite_url
from muster.store.records import Agent
from muster.store.store import Store

T = TypeVar("T")

CHUNK = 500  # machines that one wake adds
_SOMEBODY = Principal(Owner("default", "default", "ada"), Role.ADMIN)
_TIMEOUT_S = 30.0


class Ledger(Provider):
    """A provider that makes nothing, and notes when it was called."""

    name = "ledger"
    is_beside = True
    created: list[tuple[float, str]] = []  # noqa: RUF012 # all objects share it
    called = threading.Event()

    @classmethod
    def problems(cls, spec: PoolSpec) -> Sequence[Any]:
        return ()

    def check(self) -> None:
        return

    def create(self, order: SliceOrder) -> tuple[Machine, ...]:
        self.created.append((time.perf_counter(), order.slice))
        self.called.set()
        return tuple(Machine(name, order.slice, name, MachineState.COMING) for name in order.names)

    def delete(self, slice_: str) -> bool:
        return True

    def list(self) -> MachineListing:
        return MachineListing((), complete=False)

    def reboot(self, machine: Machine, *, hard: bool = False) -> None:
        return


class Fleet:
    """A control plane over a fresh database."""

    def __init__(self, directory: Path) -> None:
        found.BUILTIN["ledger"] = f"{__name__}:Ledger"
        self.clock = SteadyClock()
        self.engine = open_engine(sqlite_url(directory / "muster.db"))
        self.store = Store(self.engine, cluster_entities())
        self.hinted = threading.Event()
        self.inbox, leases = Inbox(self.hinted.set), LeaseBook(self.clock)
        desk = AgentDesk(self.store, self.clock, leases, self.inbox)
        door = AgentsDoor("127.0.0.1:1", "127.0.0.1:1")
        surroundings = Surroundings(self.engine, self._report, directory, True, door)
        modules = cluster_modules(desk, leases, surroundings)
        ids = IdFactory(self.clock, random.Random(1))
        self._reported: list[Any] = []
        self.plane = ControlPlane(self.store, self.clock, ids, self.inbox, modules)
        self.ask(lambda work, parts: parts[GroupRequests].name_cluster(work, "bench"))
        group = ScalingGroup(name="default")
        self.ask(lambda work, parts: parts[GroupRequests].put_group(work, group))

    def _report(self, outcome: Any) -> None:
        self._reported.append(outcome)
        self.hinted.set()

    def close(self) -> None:
        self.plane.close()
        self.store.close()

    def step(self) -> None:
        """A wake, with what was reported meanwhile."""
        reported, self._reported = self._reported, []
        for outcome in reported:
            self.inbox.put(outcome)
        self.plane.step()

    def ask(self, action: Callable[[Work, Parts], T]) -> T:
        answers: list[T | None] = []

        def answer(result: T | None, error: Exception | None) -> None:
            if error is not None:
                raise error
            answers.append(result)

        self.plane.ask(action, answer)
        until_s = time.monotonic() + _TIMEOUT_S
        while not answers:
            if time.monotonic() > until_s:
                raise TimeoutError("a request was not answered")
            self.step()
        return cast(T, answers[0])

    def settle(self, seconds: float = 1.0) -> None:
        """Wakes for so long."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.hinted.clear()
            self.step()
            self.hinted.wait(0.02)

    def apply(self, **keys: Any) -> Pool:
        machine = {"cpu": 8, "memory": "32GiB"}
        whole: dict[str, Any] = {"provider": "ledger", "machine": machine, "max_slices": 200}
        spec = PoolSpec.model_validate({**whole, **keys})
        return self.ask(lambda work, parts: parts[PoolRequests].apply(work, _SOMEBODY, spec))

    def fill(self, pool: Pool, slices: int) -> None:
        """Give a pool so many slices that are READY, each with an agent."""
        for first in range(0, slices, CHUNK):
            number = min(CHUNK, slices - first)
            self.ask(lambda work, parts, number=number: _add(work, parts, pool, number))  # type: ignore[misc]

    def submit(self, **keys: Any) -> None:
        spec = JobSpec.model_validate({"command": ["true"], **keys})
        self.ask(lambda work, parts: parts[JobRequests].submit(work, _SOMEBODY, spec, {}))


def _add(work: Work, parts: Parts, pool: Pool, slices: int) -> None:
    shape = pool.spec.machine
    for _ in range(slices):
        id_ = SliceId(work.ids.new(IdKind.SLICE))
        name = f"{pool.name}-{id_[-6:]}"
        slice_ = Slice(
            id=id_,
            pool=pool.name,
            group=pool.group,
            spec=pool.spec,
            revision=1,
            status=SliceStatus.READY,
            status_changed_at=work.now,
            created_at=work.now,
            ready_at=work.now,
            machines=(OwnMachine(name, name),),
            secret="",
        )
        work.unit.add(slice_)
        fixed = pool.spec.attributes_in(id_)
        agent = Agent(
            id=work.ids.agent(),
            name=name,
            group=pool.group,
            status=AgentStatus.ALIVE,
            status_changed_at=work.now,
            credential_hash=id_,
            boot_id="boot",
            version="",
            host="",
            capacity=shape.capacity(1000),
            devices=shape.devices,
            attributes=dict(fixed),
            fixed=fixed,
            joined_at=work.now,
            seen_at=work.now + 1e6,
            connected=True,
        )
        why = AgentJoined(group=pool.group)
        parts[AgentLifecycle].add(work, agent, "bench", why)


@contextmanager
def fleet() -> Iterator[Fleet]:
    """A control plane in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        made = Fleet(Path(directory))
        try:
            yield made
        finally:
            made.close()


def idle_tick(pools: int, slices: int, runs: int) -> Iterator[Figure]:
    """Wakes in which nothing has changed, and the routing of a group that has no demand."""
    with fleet() as made:
        some = [made.apply(name=f"p{number}", idle_timeout="1d") for number in range(pools)]
        for pool in some:
            made.fill(pool, slices)
        made.settle(3.0)
        idle, routed = [], []
        for _ in range(runs):
            idle.append(_took_ms(made.step))
            time.sleep(ROUTE_S + pools * slices * ROUTE_S_A_SLICE)
            routed.append(_took_ms(lambda: made.ask(_look)))
    meaning = f"processor time, {pools * slices:,} agents in {pools} pools"
    yield Figure("idle_tick_ms", median(idle), f"a wake in which nothing changed: {meaning}", "5")
    yield Figure(
        "look_ms",
        median(routed),
        f"a look at all slices without demand, of which there is one "
        f"each {ROUTE_S + pools * slices * ROUTE_S_A_SLICE:.2f} s at most: {meaning}",
    )


def submit_to_create(runs: int) -> Iterator[Figure]:
    """The time from a submission, of which there is none besides, to the provider's call."""
    took = []
    with fleet() as made:
        made.apply(name="pool")
        for number in range(runs):
            made.settle(1.0)
            Ledger.called.clear()
            Ledger.created.clear()
            began_s = time.perf_counter()
            made.submit(name=f"job-{number}", resources={"cpu": 8})
            while not Ledger.called.wait(0.001):
                made.step()
                if time.perf_counter() > began_s + _TIMEOUT_S:
                    raise MeaninglessFigures("the provider was not called")
            took.append((Ledger.created[0][0] - began_s) * 1000)
    meaning = "from a submission to the provider's create call, on another thread"
    yield Figure("submit_to_create_ms", median(took), meaning, "50")


def singles(jobs: int) -> Iterator[Figure]:
    """The slices that are opened for jobs of one task, and for one job of as many."""
    opened = []
    for number, tasks in ((jobs, 1), (1, jobs)):
        with fleet() as made:
            made.apply(name="pool", machine={"cpu": 32, "memory": "64GiB"})
            made.settle(0.5)
            for each in range(number):
                made.submit(name=f"job-{each}", tasks=tasks, resources={"cpu": 8})
            made.settle(1.5)
            opened.append(len(made.plane.live.of(Slice)))
    yield Figure("slices_of_singles", opened[0], f"opened for {jobs} jobs of one task", "the same")
    yield Figure("slices_of_one", opened[1], f"opened for one job of {jobs} tasks")


def _took_ms(action: Callable[[], object]) -> float:
    began_s = time.thread_time()
    action()
    return (time.thread_time() - began_s) * 1000


def _look(work: Work, parts: Parts) -> None:
    parts[SliceLifecycle].changed_groups.add("default")
    work.mark(next(iter(work.live.of(Pool).values())))
