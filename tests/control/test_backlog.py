"""Work held ahead on an agent: short work behind short work, and what if the next is not short."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select
from tests.control.world import Behaviour, Run, World, task_index

from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import JOB_TABLE, JobState, TaskState
from muster.store import schema
from muster.store.records import Job, Kernel

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
SHORT_S, LONG_S = 0.1, 300.0
LONG_TASK = 3  # those before it are short, so that the next seem to be so too

MakeWorld = Callable[[Behaviour], World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    worlds: list[World] = []

    def make(behaviour: Behaviour) -> World:
        group = ScalingGroup(name="default", backlog_window=1.0)
        worlds.append(World(tmp_path, {"a": ONE_CPU}, group=group, behaviour=behaviour))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(lambda s: Run(LONG_S if task_index(s) == LONG_TASK else SHORT_S))


def history_rows(world: World, entity: str) -> int:
    history = schema.history
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        count = select(func.count()).where(history.c.entity == entity)
        return connection.execute(count).scalar_one()


def behind_the_long_task(world: World, job: Job) -> Kernel:
    """The last task's kernel, once the long one runs."""
    world.run_until(lambda: job.counts.get(TaskState.SUCCEEDED) == LONG_TASK)
    session_id = job.tasks[LONG_TASK + 1].session_id
    assert session_id is not None
    (kernel,) = world.plane.live.sessions[session_id].kernels
    return kernel


def test_work_held_behind_a_long_task_goes_back_to_the_queue_and_stays_there(world: World) -> None:
    job = world.submit(JobSpec(command=["x"], tasks=LONG_TASK + 2))
    kernel = behind_the_long_task(world, job)
    agent = world.agent("a")
    assert (kernel.id, kernel.generation) in agent.queued, "at first it is held ahead"
    world.run(5.0, 0.1)
    settled = kernel.generation, history_rows(world, kernel.session.id)
    assert settled[0] <= 2
    assert settled[1] <= 25

    world.run(LONG_S / 2)
    assert (kernel.generation, history_rows(world, kernel.session.id)) == settled
    assert not agent.queued

    world.run_until(lambda: job.status in JOB_TABLE.terminal, LONG_S)
    assert job.status is JobState.SUCCEEDED


def test_work_that_was_held_behind_a_long_task_times_out_like_all_that_waits(
    world: World,
) -> None:
    timeout_s = 30.0
    spec = JobSpec(command=["x"], tasks=LONG_TASK + 2, scheduling_timeout=timeout_s)
    job = world.submit(spec)
    behind_the_long_task(world, job)
    world.run_until(lambda: job.status in JOB_TABLE.terminal, timeout_s + 5.0)

    assert job.status is JobState.UNSCHEDULABLE
    assert job.counts[TaskState.UNSCHEDULABLE] == 1
