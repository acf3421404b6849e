"""B1: no-op tasks on one machine, durable, with real processes, through the public client; those of
the home's token run as whoever started the cluster, those of a user as that user where that was
root."""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
from benchmarks.cluster import Cluster, one_agent_cluster
from benchmarks.results import Figure, MeaninglessFigures, Results, Samples
from sqlalchemy import text

from muster.client import Client
from muster.core.specs import JobSpec
from muster.core.states import JobState
from muster.store.database import open_engine, sqlite_url

TITLE = "B1. No-op tasks, one machine, durable, real processes"
NOOP = "/bin/true"
AT_ONCE = 2
JOB_LIMIT_S = 300.0
LONE_PAUSE_S = 0.005
"""Time before each lone job: a client learns of an end while control, agent and supervisor still
acknowledge it to each other, and a lone job is to find them idle."""
SQLITE_FULL = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: ``runs`` jobs of each size, and ``lone_jobs`` of one task."""

    lone_jobs: int
    runs: int
    few_tasks: int = 1_000
    many_tasks: int = 10_000
    floor_spawns: int = 3_000


FULL = Plan(lone_jobs=200, runs=5)
SHORT = Plan(lone_jobs=50, runs=3)


def measure(plan: Plan) -> Results:
    """
    Raises:
        MusterError, MeaninglessFigures: there is no cluster to measure, or it does not do its work.
    """
    samples = Samples()
    with one_agent_cluster() as cluster:
        durable = _durable(cluster)
        disk = _file_system(cluster)
        _run_job(cluster.client, 1)  # the client's and the controller's late imports
        for _ in range(plan.lone_jobs):
            _measure_lone_job(cluster, samples)
        with _user_of(cluster) as user:
            _run_job(user, 1)  # a uid, and the user's spawner
            for _ in range(plan.runs):
                samples.add("floor_per_s", asyncio.run(_floor_per_s(plan.floor_spawns)))
                samples.add("floor_bare_per_s", _bare_floor_per_s(plan.floor_spawns))
                samples.add("few", plan.few_tasks / _run_job(cluster.client, plan.few_tasks))
                _measure_many(cluster, plan.many_tasks, samples)
                samples.add("many_user", plan.many_tasks / _run_job(user, plan.many_tasks))
    return Results(plan.runs, list(_figures(plan, samples, durable=durable, disk=disk)))


def _figures(plan: Plan, samples: Samples, *, durable: bool, disk: str) -> Iterator[Figure]:
    yield Figure(
        "n1_start_ms_p50",
        samples.median("n1_start_ms"),
        f"a lone job: from just before submit (wall clock) to its attempt's started_at, taken by "
        f"the supervisor right after the spawn; {plan.lone_jobs} jobs, one after the other with "
        f"{LONE_PAUSE_S * 1e3:.0f} ms between them",
        "≤ 2",
    )
    yield Figure(
        "n1_done_ms_p50",
        samples.median("n1_done_ms"),
        "the same job: until the client has seen that it ended",
    )
    yield Figure(
        "tasks_per_s_1000",
        samples.median("few"),
        f"one job of {plan.few_tasks}: from just before submit until it is seen ended",
        "≥ 2,400",
    )
    yield Figure(
        "tasks_per_s_10000",
        samples.median("many"),
        f"the same with {plan.many_tasks}",
        "≥ 2,400",
    )
    yield Figure(
        "tasks_per_s_10000_user",
        samples.median("many_user"),
        "the same, handed in by a user, in turn with the runs above: "
        + ("run as that user" if os.geteuid() == 0 else "run as the agent's user as well"),
        "as the line above",
    )
    yield Figure(
        "floor_per_s",
        samples.median("floor_per_s"),
        f"posix_spawn + pidfd under asyncio, {AT_ONCE} at a time, in turn with the runs above",
    )
    yield Figure(
        "floor_bare_per_s",
        samples.median("floor_bare_per_s"),
        f"posix_spawn + waitpid, {AT_ONCE} at a time",
    )
    yield Figure(
        "floor_share_10000",
        samples.median("many") / samples.median("floor_per_s"),
        "tasks_per_s_10000 of floor_per_s: what a noisy machine changes least",
    )
    for name in ("controller", "agent", "supervisor", "client"):
        yield Figure(
            f"{name}_cpu_us_per_task",
            samples.median(f"{name}_cpu_us"),
            f"processor time of the {name} in a job of {plan.many_tasks}, its children left out",
        )
    yield Figure(
        "durable", durable, "whether commits are synchronous (FULL) as the product opens SQLite"
    )
    yield Figure("file_system", disk, "what holds the database")


def _measure_lone_job(cluster: Cluster, samples: Samples) -> None:
    client = cluster.client
    time.sleep(LONE_PAUSE_S)
    submitted_at = time.time()
    job = client.submit(JobSpec(command=[NOOP]))
    client.wait(job.id, JOB_LIMIT_S)
    seen_at = time.time()
    (attempt,) = client.task(job.id, 0).attempts
    if attempt.started_at is None:
        raise MeaninglessFigures(f"job {job.name} ended without a start")
    samples.add("n1_start_ms", (attempt.started_at - submitted_at) * 1e3)
    samples.add("n1_done_ms", (seen_at - submitted_at) * 1e3)


def _measure_many(cluster: Cluster, tasks: int, samples: Samples) -> None:
    before, client_before_s = cluster.processes.cpu_s(), time.process_time()
    samples.add("many", tasks / _run_job(cluster.client, tasks))
    samples.add("client_cpu_us", (time.process_time() - client_before_s) / tasks * 1e6)
    for name, cpu_s in cluster.processes.cpu_s().items():
        samples.add(f"{name}_cpu_us", (cpu_s - before[name]) / tasks * 1e6)


def _user_of(cluster: Cluster) -> Client:
    """A client with the token of a user who is made for it."""
    user = cluster.client.add_user("bench")
    made = cluster.client.create_token("bench", user=user.name)
    return Client(cluster.client.url, made.secret)


def _run_job(client: Client, tasks: int) -> float:
    """Seconds from submit until the job is seen ended."""
    began_s = time.perf_counter()
    job = client.submit(JobSpec(command=[NOOP], tasks=tasks))
    job = client.wait(job.id, JOB_LIMIT_S)
    took_s = time.perf_counter() - began_s
    if job.state is not JobState.SUCCEEDED:
        raise MeaninglessFigures(f"job {job.name} of {tasks} tasks is {job.state}: {job.counts}")
    return took_s


async def _floor_per_s(spawns: int) -> float:
    """The spawns per second of bare asyncio: a supervisor's least cost, without its duties."""
    loop = asyncio.get_running_loop()
    left = iter(range(spawns))

    async def spawn_in_turn() -> None:
        for _ in left:
            pid = os.posix_spawn(NOOP, [NOOP], {})  # noqa: ASYNC221 - it is what is measured
            pidfd = os.pidfd_open(pid)
            ended = loop.create_future()
            loop.add_reader(pidfd, ended.set_result, None)
            await ended
            loop.remove_reader(pidfd)
            os.close(pidfd)
            os.waitpid(pid, 0)  # noqa: ASYNC222 - it has ended

    began_s = time.perf_counter()
    await asyncio.gather(*(spawn_in_turn() for _ in range(AT_ONCE)))
    return spawns / (time.perf_counter() - began_s)


def _bare_floor_per_s(spawns: int) -> float:
    began_s = time.perf_counter()
    for started in range(spawns):
        if started >= AT_ONCE:
            os.waitpid(-1, 0)
        os.posix_spawn(NOOP, [NOOP], {})
    for _ in range(min(AT_ONCE, spawns)):
        os.waitpid(-1, 0)
    return spawns / (time.perf_counter() - began_s)


def _durable(cluster: Cluster) -> bool:
    """Whether an answered commit survives the loss of power."""
    engine = open_engine(sqlite_url(cluster.home.database))
    try:
        with engine.connect() as connection:
            level = connection.execute(text("PRAGMA synchronous")).scalar_one()
    finally:
        engine.dispose()
    return bool(level >= SQLITE_FULL)


def _file_system(cluster: Cluster) -> str:
    """The type of the file system under the cluster's home."""
    mounts = psutil.disk_partitions(all=True)
    holding = [mount for mount in mounts if cluster.home.path.is_relative_to(mount.mountpoint)]
    return max(holding, key=lambda mount: len(mount.mountpoint)).fstype if holding else "unknown"
