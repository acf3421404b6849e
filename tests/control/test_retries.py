"""Retries that find no place at once: in the queue, or because an attempt is not proven gone."""

import math

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import attempt, task_index
from tests.databases import ON_BOTH

from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState, TaskState
from muster.store import schema
from muster.wire.messages import Start

pytestmark = ON_BOTH

TWO_CPUS = Resources(cpu_milli=2000, memory_bytes=2**30)
MANY = 40  # more than stand in the queue at a time


@pytest.fixture
def make_world(worlds: MakeWorld) -> MakeWorld:
    return lambda behaviour: worlds({"a": TWO_CPUS}, behaviour=behaviour)


def test_attempt_that_failed_is_charged_once_though_its_retry_waits(make_world: MakeWorld) -> None:
    world = make_world(lambda start: Run(exit_code=1 if attempt(start) == 1 else 0))
    flaky = JobSpec(command=["flaky"], tasks=MANY, max_retries_failure=1)
    job = world.submit(flaky)
    # It gets what the first attempts free, so that their retries find no place in the queue.
    world.submit(flaky.model_copy(update={"name": "urgent", "priority": 100}))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.SUCCEEDED
    tasks = schema.tasks
    with world.store.engine.connect() as connection:
        charged = connection.execute(
            select(tasks.c.failure_count).where(tasks.c.job_id == job.id)
        ).scalars()
        assert list(charged) == [1] * MANY


def test_retry_that_waits_is_not_forgotten_when_the_controller_restarts(
    make_world: MakeWorld,
) -> None:
    def behaviour(start: Start) -> Run:
        if attempt(start) > 1:
            return Run()
        return (
            Run(exit_code=1)
            if task_index(start) == 0
            else Run(1e9, stubborn=True, outlives_kill_s=math.inf)
        )

    world = make_world(behaviour)
    id_ = world.submit(
        JobSpec(command=["gang"], tasks=2, coscheduled=True, max_retries_failure=1, grace=1)
    ).id
    world.run_until(lambda: len(world.plane.live.jobs[id_].waiting) == 2)
    assert world.plane.live.ledger, "the sibling does not end, so the retry has to wait"
    world.restart_controller()
    job = world.plane.live.jobs[id_]
    assert sorted(job.waiting) == [0, 1]

    world.agent("a").reboot()
    world.connect(world.agent("a"))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert job.status is JobState.SUCCEEDED
    assert job.counts[TaskState.SUCCEEDED] == 2
    assert not world.plane.live.ledger


def test_task_that_fails_is_charged_though_a_sibling_is_not_proven_gone_in_time(
    make_world: MakeWorld,
) -> None:
    def behaviour(start: Start) -> Run:
        return (
            Run(exit_code=1)
            if task_index(start) == 1
            else Run(1e9, stubborn=True, outlives_kill_s=math.inf)
        )

    world = make_world(behaviour)
    job = world.submit(JobSpec(command=["gang"], tasks=2, coscheduled=True, grace=1))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert world.plane.live.ledger, "the sibling runs on"
    tasks = schema.tasks
    with world.store.engine.connect() as connection:
        charged = connection.execute(
            select(tasks.c.status, tasks.c.failure_count, tasks.c.exit_code)
            .where(tasks.c.job_id == job.id)
            .order_by(tasks.c.idx)
        ).all()
    assert charged == [("WORKER_FAILED", 0, None), ("FAILED", 1, 1)]
    assert job.reason is not None
    assert job.reason.code is ReasonCode.TASKS_FAILED
    assert job.reason.numbers()["index"] == 1
    assert job.reason.sentence() == "task 1 failed: exited with code 1"
