"""People stop single tasks of a job: the others go on."""

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import clinic, fails
from tests.control.world import ADA, BOB, World
from tests.databases import ON_BOTH

from muster.control.job.requests import JobRequests
from muster.control.recovery.entity import Recovery
from muster.core.errors import Conflict, NotFound
from muster.core.owner import Principal
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState, TaskState
from muster.core.states.recovery import RecoveryStatus
from muster.store import schema
from muster.store.records import Job
from muster.wire.messages import Start

pytestmark = ON_BOTH


def runs_for_ten_seconds(start: Start) -> Run:
    return Run(10.0)


def stop(world: World, job: Job, index: int, by: Principal = ADA) -> None:
    world.ask(lambda work, parts: parts[JobRequests].stop_task(work, by, job.id, index))


def ended(world: World, job: Job) -> JobState:
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    return job.status


def states(world: World, job: Job) -> list[tuple[TaskState, str | None]]:
    """The states of all tasks of a job that has ended, and their reasons."""
    tasks = schema.tasks.c
    query = select(tasks.status, tasks.reason).where(tasks.job_id == job.id).order_by(tasks.idx)
    with world.store.engine.connect() as connection:
        return [(TaskState(row.status), row.reason) for row in connection.execute(query)]


STOPPED = (TaskState.KILLED, ReasonCode.TASK_STOPPED)


def test_task_that_is_stopped_is_killed_and_the_others_go_on(group_world: MakeWorld) -> None:
    world = group_world({"a": 3}, runs_for_ten_seconds)
    job = world.submit(JobSpec(command=["x"], tasks=3))
    world.run(2.0)
    stop(world, job, 1)
    world.run(1.0)
    assert (job.status, job.counts[TaskState.RUNNING]) == (JobState.RUNNING, 2)
    assert len(world.agent("a").running) == 2
    assert ended(world, job) is JobState.SUCCEEDED
    assert [state for state, _ in states(world, job)] == [
        TaskState.SUCCEEDED,
        TaskState.KILLED,
        TaskState.SUCCEEDED,
    ]
    assert states(world, job)[1] == STOPPED
    history = schema.history.c
    told = select(history.reasons).where(history.entity == job.id, history.phase == "Request")
    with world.store.engine.connect() as connection:
        assert any("TASK_STOPPED" in reasons for (reasons,) in connection.execute(told))


def test_tasks_that_wait_or_are_to_come_are_stopped_over_a_restart_of_the_controller(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, runs_for_ten_seconds)
    id_ = world.submit(JobSpec(command=["x"], tasks=40)).id
    world.run(2.0)
    job = world.plane.live.jobs[id_]
    waits, to_come = max(job.tasks), 39
    assert to_come not in job.tasks
    stop(world, job, waits)
    stop(world, job, to_come)
    with pytest.raises(NotFound):
        stop(world, job, to_come)
    world.restart_controller()
    job = world.plane.live.jobs[id_]
    assert ended(world, job) is JobState.SUCCEEDED
    found = states(world, job)
    assert [i for i, each in enumerate(found) if each == STOPPED] == [waits, to_come]
    assert sum(state is TaskState.SUCCEEDED for state, _ in found) == 38


def test_job_of_which_all_tasks_were_stopped_is_cancelled(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab")
    job = here.job(tasks=2)
    recovery = here.recovery(job)
    here.run(2.0)
    stop(here.world, job, 0)
    here.run(1.0)
    assert (job.status, recovery.status) == (JobState.RUNNING, RecoveryStatus.IN_PROGRESS)
    stop(here.world, job, 1)
    assert (job.status, recovery.status) == (JobState.KILLED, RecoveryStatus.USER_STOPPED)
    here.run_until(lambda: not here.world.plane.live.sessions)
    assert not here.world.plane.live.of(Recovery)


def test_job_with_some_stopped_tasks_is_complete_once_the_others_succeeded(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "ab")
    job = here.job(tasks=2)
    recovery = here.recovery(job)
    here.run(2.0)
    stop(here.world, job, 0)
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.status is RecoveryStatus.COMPLETE


def test_task_that_is_stopped_while_its_machine_is_checked_leaves_its_job_to_the_others(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)))
    job = here.job(tasks=2, max_retries_failure=1)
    recovery = here.recovery(job)
    here.until(recovery, RecoveryStatus.PENDING_HEALTHCHECK)
    here.run(1.0)
    stop(here.world, job, 0)
    here.until(recovery, RecoveryStatus.IN_PROGRESS)
    assert here.ended(job) is JobState.SUCCEEDED
    assert (0, 2) not in here.ran_on
    assert states(here.world, job)[0] == STOPPED


def test_timeout_of_another_task_ends_the_job_as_ever(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, lambda start: Run(1e6))
    job = world.submit(JobSpec(command=["x"], tasks=2, timeout=30.0, grace=1))
    world.run(2.0)
    stop(world, job, 0)
    world.run(5.0)
    assert job.status is JobState.RUNNING
    assert ended(world, job) is JobState.KILLED


def test_task_of_a_gang_is_not_stopped_alone(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, runs_for_ten_seconds)
    job = world.submit(JobSpec(command=["x"], name="ring", tasks=2, coscheduled=True))
    world.run(2.0)
    with pytest.raises(Conflict, match="`muster cancel ring` stops all"):
        stop(world, job, 0)
    assert ended(world, job) is JobState.SUCCEEDED


def test_tasks_that_ended_do_not_exist_or_are_anothers_are_not_found(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, lambda start: Run(3.0))
    job = world.submit(JobSpec(command=["x"], tasks=3))
    world.run_until(lambda: job.counts.get(TaskState.SUCCEEDED, 0) == 1)
    for index, by in ((0, ADA), (3, ADA), (2, BOB)):
        with pytest.raises(NotFound):
            stop(world, job, index, by)
    assert ended(world, job) is JobState.SUCCEEDED
