"""B2: the control plane with hollow agents: sessions through their whole life, each status of it
and its history committed.

`python -m benchmarks.b2 PART [DATABASE]` measures one part of it, and prints the rows of a table.
"""

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import uvloop
from benchmarks.fleet import ADA, LIMIT_S, Cluster
from benchmarks.results import Figure, MeaninglessFigures, Results
from sqlalchemy import Engine
from tests.databases import running_server, why_not

from muster.app.process import garbage_collection_off, settle_memory
from muster.control.job.requests import JobRequests
from muster.control.session.requests import SessionRequests
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState, SessionStatus
from muster.store.database import open_engine, sqlite_url
from muster.store.records import Session

TITLE = "B2. Control plane, hollow agents, durable"
KERNEL = {"command": ["/bin/true"], "resources": {"cpu": 0.1}}
MOST_WAITING = 10_000
"""Requests that wait for their answers at a time."""
POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
"""As an operator would have it: every commit is on disk before it is answered."""
PACED_PER_S = 500
PACED_RUN_S = 0.5
_BEGUN = SESSION_TABLE.terminal | {SessionStatus.RUNNING, SessionStatus.TERMINATING}


@dataclass(frozen=True, slots=True)
class Plan:
    """``runs`` times ``sessions`` each way, ``paced`` ones at PACED_PER_S, once each size of
    ``growth`` as the tasks of one job, and a start of the controller with ``loaded`` live ones; on
    ``agents`` and each of the ``databases``."""

    runs: int = 0
    sessions: int = 10_000
    paced: int = 0
    growth: Sequence[int] = ()
    loaded: int = 0
    agents: int = 1_000
    databases: Sequence[str] = ("sqlite", "postgres")


FULL = Plan(runs=3, paced=10_000, growth=(100_000,), loaded=100_000)
SHORT = Plan(runs=1, paced=2_500)
PARTS = {
    "lives": Plan(runs=5),
    "paced": Plan(paced=10_000),
    "growth": Plan(growth=(10_000, 100_000)),
    "million": Plan(growth=(1_000_000,)),
    "load": Plan(loaded=100_000),
}
"""The parts of the full plan, each in a few minutes; ``million`` is no part of it."""


@dataclass(frozen=True, slots=True)
class _Rate:
    """How many sessions lived a second, and this process's time for each."""

    per_s: float
    cpu_us: float


@dataclass(slots=True)
class _Found:
    """The measurements on one database."""

    one_request: list[_Rate] = field(default_factory=list)
    many_requests: list[_Rate] = field(default_factory=list)
    start_ms: list[float] = field(default_factory=list)
    growth: dict[int, _Rate] = field(default_factory=dict)
    load: _Rate | None = None


class _Stopwatch:
    """Measures from when it is made."""

    def __init__(self) -> None:
        self._began_s, self._cpu_began_s = time.perf_counter(), time.process_time()

    def rate(self, sessions: int) -> _Rate:
        took_s = time.perf_counter() - self._began_s
        return _Rate(sessions / took_s, (time.process_time() - self._cpu_began_s) / sessions * 1e6)


class _Watch:
    """Sessions that have begun, each with the moment at which that was known, and how many have
    ended."""

    def __init__(self) -> None:
        self.begun_at: dict[str, float] = {}
        self.ended = 0

    def __call__(self, events: Iterable[tuple[str, str, str]]) -> None:
        now = time.perf_counter()
        for kind, id_, status in events:
            if kind == "session" and status in _BEGUN:
                self.begun_at.setdefault(id_, now)
                self.ended += status in SESSION_TABLE.terminal


def measure(plan: Plan) -> Results:
    """
    Raises:
        MeaninglessFigures, TimeoutError: sessions did not live as they should.
    """
    found: dict[str, _Found] = {}
    if "sqlite" in plan.databases:
        with _sqlite() as engine:
            found["sqlite"] = uvloop.run(_measure_on(engine, plan))
    if "postgres" in plan.databases and why_not() is None:  # a server can be had
        with _postgres() as engine:
            found["postgres"] = uvloop.run(_measure_on(engine, plan))
    return Results(plan.runs, list(_figures(plan, found)))


@contextmanager
def _sqlite() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        yield open_engine(sqlite_url(Path(directory) / "muster.db"))


@contextmanager
def _postgres() -> Iterator[Engine]:
    with running_server(POSTGRES) as server:
        engine = open_engine(server.url(server.empty_database()))
        yield engine
        engine.dispose()


async def _measure_on(engine: Engine, plan: Plan) -> _Found:
    found = _Found()
    cluster = Cluster(engine)
    async with cluster.running(plan.agents):
        await _in_many_requests(cluster, 1_000)  # statements are compiled
        settle_memory()  # as a controller that has started
        for _ in range(plan.runs):
            found.one_request.append(await _in_one_request(cluster, plan.sessions))
            found.many_requests.append(await _in_many_requests(cluster, plan.sessions))
        if plan.paced:
            found.start_ms = await _paced(cluster, plan.paced)
        for sessions in plan.growth:
            found.growth[sessions] = await _in_one_request(cluster, sessions)
        if plan.loaded:
            await _leave_running(cluster, plan.loaded)
    cluster.close()
    if plan.loaded:
        gc.unfreeze()
        del cluster
        gc.collect()
        found.load = _start_again(engine, plan.loaded)
    return found


async def _in_one_request(cluster: Cluster, sessions: int) -> _Rate:
    """From the request for one job until the job has ended."""
    cluster.fleet.run_s = 0.0
    spec = JobSpec.model_validate({**KERNEL, "tasks": sessions})
    stopwatch = _Stopwatch()
    job = await cluster.plane.request(
        lambda work, parts: parts[JobRequests].submit(work, ADA, spec), LIMIT_S
    )
    await cluster.until(lambda: job.status in JOB_TABLE.terminal)
    rate = stopwatch.rate(sessions)
    if job.status is not JobState.SUCCEEDED:
        raise MeaninglessFigures(f"the job is {job.status}")
    return rate


async def _in_many_requests(cluster: Cluster, sessions: int) -> _Rate:
    """From the first of as many requests until the last session has ended."""
    cluster.fleet.run_s = 0.0
    watch, specs = _Watch(), _specs(sessions)
    end = cluster.plane.watch(watch)
    stopwatch = _Stopwatch()
    await _submit(cluster, specs)
    await cluster.until(lambda: watch.ended == sessions)
    rate = stopwatch.rate(sessions)
    end()
    return rate


async def _leave_running(cluster: Cluster, sessions: int) -> None:
    cluster.fleet.run_s = None
    watch = _Watch()
    cluster.plane.watch(watch)
    await _submit(cluster, _specs(sessions))
    await cluster.until(lambda: len(watch.begun_at) == sessions)


def _specs(sessions: int) -> list[SessionSpec]:
    whole = ({"name": f"session-{number}", "kernels": [KERNEL]} for number in range(sessions))
    return [SessionSpec.model_validate({**each, "type": "batch"}) for each in whole]


async def _submit(cluster: Cluster, specs: Iterable[SessionSpec]) -> None:
    """A request for each; at most MOST_WAITING wait for their answers at a time.

    Raises:
        MeaninglessFigures: one is refused.
    """
    room = asyncio.Semaphore(MOST_WAITING)
    refusals: list[Exception] = []

    def answer(_session: Session | None, error: Exception | None) -> None:
        if error is not None:
            refusals.append(error)
        room.release()

    for spec in specs:
        await room.acquire()
        if refusals:
            raise MeaninglessFigures(f"a session is refused: {refusals[0]}")
        _ask(cluster, spec, answer)


async def _paced(cluster: Cluster, sessions: int) -> list[float]:
    """Milliseconds from when each of so many sessions was to be handed in until it was known to
    run, at PACED_PER_S a second."""
    cluster.fleet.run_s = PACED_RUN_S
    watch, due_at, specs = _Watch(), dict[str, float](), _specs(sessions)
    end = cluster.plane.watch(watch)

    def answer(due: float, session: Session | None, _error: Exception | None) -> None:
        if session is not None:
            due_at[session.id] = due

    began = time.perf_counter()
    for number, spec in enumerate(specs):
        due = began + number / PACED_PER_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        _ask(cluster, spec, partial(answer, due))
    await cluster.until(lambda: watch.ended == sessions)
    end()
    return [(watch.begun_at[id_] - due) * 1e3 for id_, due in due_at.items()]


def _ask(
    cluster: Cluster,
    spec: SessionSpec,
    answer: Callable[[Session | None, Exception | None], None],
) -> None:
    cluster.plane.ask(
        lambda work, parts: parts[SessionRequests].submit(work, ADA, spec), answer, ADA.owner
    )


def _start_again(engine: Engine, sessions: int) -> _Rate:
    """The rate at which a new controller reads its state and takes its first wake, in which it
    looks at every session.

    Raises:
        MeaninglessFigures: it does not know so many sessions.
    """
    stopwatch = _Stopwatch()
    with garbage_collection_off():  # as a controller that starts
        cluster = Cluster(engine)
        cluster.plane.step()
    rate = stopwatch.rate(sessions)
    found = len(cluster.plane.live.sessions)
    cluster.close()
    if found != sessions:
        raise MeaninglessFigures(f"{found} sessions are alive, not {sessions}")
    return rate


def _figures(plan: Plan, found: Mapping[str, _Found]) -> Iterator[Figure]:
    goals = {"sqlite": "≥ 3,000", "postgres": "≥ 2,000"}
    for name, its in found.items():
        ways = {
            "one_request": (its.one_request, "asked for as the tasks of one job"),
            "many_requests": (its.many_requests, "each asked for by itself"),
        }
        if plan.runs:
            yield Figure(
                f"{name}_sessions_per_s",
                min(median(each.per_s for each in rates) for rates, _ in ways.values()),
                f"{plan.sessions} sessions through their whole life on {name}: the slower of the "
                f"two ways to ask for them",
                goals[name],
            )
        for way, (rates, how) in ways.items() if plan.runs else ():
            yield Figure(f"{name}_{way}_per_s", median(each.per_s for each in rates), how)
            cpu_us = median(each.cpu_us for each in rates)
            meaning = f"processor time for each, {how}: of control and hollow agents together"
            yield Figure(f"{name}_{way}_cpu_us", cpu_us, meaning)
        for sessions, rate in its.growth.items():
            how = f"{sessions} sessions, asked for as the tasks of one job, once"
            yield Figure(f"{name}_sessions_per_s_{sessions}", rate.per_s, how)
            yield Figure(f"{name}_cpu_us_{sessions}", rate.cpu_us, "processor time for each")
        if its.load is not None:
            yield Figure(
                f"{name}_load_s",
                plan.loaded / its.load.per_s,
                f"a controller's start with {plan.loaded} running sessions: reading its state, and "
                f"its first wake",
                "≤ 5",
            )
            cpu_s = its.load.cpu_us * plan.loaded / 1e6
            yield Figure(f"{name}_load_cpu_s", cpu_s, "processor time of that start")
    for name, its in found.items() if plan.paced else ():
        p50, p99 = (quantiles(its.start_ms, n=100)[percent - 1] for percent in (50, 99))
        suffix = "" if name == "sqlite" else f"_{name}"
        yield Figure(
            f"start_ms_p99_at_500{suffix}",
            p99,
            f"{plan.paced} sessions at {PACED_PER_S} a second on {name}: from when each was due to "
            f"be handed in until it is committed that it runs; p50 is {p50:.3g}",
            "≤ 100",
        )


if __name__ == "__main__":
    part, *databases = sys.argv[1:]
    chosen = PARTS[part]
    for figure in measure(replace(chosen, databases=databases or chosen.databases)).figures:
        print(f"| {figure.key}: {figure.meaning} | {figure.shown} | {figure.goal} |", flush=True)
