"""Prefill of an agent: short work behind short work, and what if the next is not short."""

from collections.abc import Callable
from typing import Any

import pytest
from proving.hollow.supervisor import Behaviour, Run
from sqlalchemy import func, select
from tests.control.conftest import MakeWorld, under
from tests.control.driven_agent import task_index
from tests.control.world import ADA, World

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.job.requests import JobRequests
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Resources
from muster.core.specs import JobSpec, Level, QuotaSpec
from muster.core.specs.group import QueuePolicy
from muster.core.states import JOB_TABLE, JobState, TaskState
from muster.store import schema
from muster.store.records import Job, Kernel
from muster.wire.messages import Commands, Start, Stop

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
SHORT_S, LONG_S = 0.1, 300.0
Request = Callable[[Work, Parts], object]
LONG_TASK = 3  # those before it are short, so that the next seem to be so too


@pytest.fixture
def make_world(worlds: MakeWorld) -> MakeWorld:
    def make(behaviour: Behaviour, **policy: Any) -> World:
        group = under(backlog_window=1.0, **policy)
        return worlds({"a": ONE_CPU}, group=group, behaviour=behaviour)

    return make


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
    assert (kernel.id, kernel.generation) in agent.queued, "at first it is prefilled"
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


def stream(world: World) -> Job:
    """Short tasks on the agent, and more of them prefilled there."""
    job = world.submit(JobSpec(command=["short"], tasks=600, priority=10))
    world.run(2.0, 0.05)
    assert world.agent("a").queued
    return job


def is_running(job: Job) -> bool:
    return job.status is JobState.RUNNING


def short_or_long(start: Start) -> Run:
    return Run(SHORT_S if start.template.command[0] == "short" else LONG_S)


@pytest.mark.parametrize("queue", QueuePolicy)
def test_higher_priority_starts_soon_behind_a_stream_of_short_tasks(
    make_world: MakeWorld, queue: QueuePolicy
) -> None:
    world = make_world(short_or_long, queue=queue)
    stream(world)
    urgent = world.submit(JobSpec(command=["long"], priority=90))
    world.run(3.0, 0.1)
    assert urgent.status is JobState.RUNNING


def test_work_starts_once_the_session_before_it_is_prefilled(group_world: MakeWorld) -> None:
    world = group_world({"a": 3}, short_or_long, queue="strict", backlog_window=1.0)
    two_cpus = {"resources": {"cpu": 2}}
    stream = world.submit(JobSpec.model_validate({"command": ["short"], "tasks": 3, **two_cpus}))
    job = world.submit(JobSpec(command=["long"]))
    assert not is_running(job)
    world.run_until(lambda: stream.counts.get(TaskState.SUCCEEDED) == 1)
    assert world.agent("a").queued
    assert is_running(job), "at once, and not with the next event"


@pytest.mark.parametrize("sequencer", ["drf", "fair_share"])
def test_owner_who_has_nothing_starts_soon_behind_a_stream_of_short_tasks(
    make_world: MakeWorld, sequencer: str
) -> None:
    world = make_world(short_or_long, sequencer=sequencer)
    stream(world)
    bob = Principal(Owner("default", "default", "bob"), Role.USER)
    job = world.submit(JobSpec(command=["long"], priority=10), bob)
    world.run(3.0, 0.1)
    assert job.status is JobState.RUNNING


def test_quota_that_is_set_calls_back_what_is_prefilled(make_world: MakeWorld) -> None:
    world = make_world(short_or_long)
    job = stream(world)
    nobody = QuotaSpec(level=Level.DOMAIN, name="default", sessions=0)
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, nobody))
    world.run(1.0, 0.1)
    started = len(world.agent("a").starts)
    world.run(5.0, 0.1)
    assert len(world.agent("a").starts) == started
    assert not world.agent("a").queued
    world.ask(lambda work, parts: parts[GroupRequests].remove_quota(work, Level.DOMAIN, "default"))
    world.run_until(lambda: job.status is JobState.SUCCEEDED)


@pytest.mark.parametrize("cancelled_first", [False, True])
def test_prefilled_kernel_that_is_recalled_and_cancelled_in_one_wake_is_told_to_stop(
    world: World, cancelled_first: bool
) -> None:
    job = world.submit(JobSpec(command=["x"], tasks=LONG_TASK + 2, grace=7.0))
    kernel = behind_the_long_task(world, job)
    nobody = QuotaSpec(level=Level.DOMAIN, name="default", sessions=0)
    requests: list[Request] = [
        lambda work, parts: parts[GroupRequests].put_quota(work, nobody),
        lambda work, parts: parts[JobRequests].cancel(work, ADA, job.id),
    ]
    for request in requests[::-1] if cancelled_first else requests:
        world.plane.ask(request, lambda *_: None)
    world.wake()
    told = [
        each for _, said in world.outgoing if isinstance(said, Commands) for each in said.commands
    ]
    (command,) = (each for each in told if each.kernel == kernel.id)
    assert isinstance(command, Stop)
    assert command.grace_s == 7.0


@pytest.mark.parametrize("memory", ["0", "1MiB"])
def test_heir_of_lower_priority_gives_way_at_once(make_world: MakeWorld, memory: str) -> None:
    order: list[str] = []

    def behaviour(start: Start) -> Run:
        order.append(start.template.command[0])
        return Run(SHORT_S)

    world = make_world(behaviour)
    stream(world)
    order.clear()
    resources = {"memory": memory}
    urgent = {"command": ["urgent"], "tasks": 3, "priority": 90, "resources": resources}
    world.submit(JobSpec.model_validate(urgent))
    world.run(2.0, 0.05)
    assert order[:3] == ["urgent"] * 3, "the room of whatever ends next is for them"
    assert "short" in order[3:]


def test_prefilled_work_stays_where_higher_priority_could_not_use_the_room(
    make_world: MakeWorld,
) -> None:
    world = make_world(short_or_long)
    stream(world)
    held = set(world.agent("a").queued)
    gpus = {"command": ["long"], "priority": 90, "resources": {"gpu": 1}}
    world.submit(JobSpec.model_validate(gpus))
    assert set(world.agent("a").queued) == held


def test_room_that_comes_free_is_not_granted_ahead_of_higher_priority(
    make_world: MakeWorld,
) -> None:
    order: list[str] = []

    def behaviour(start: Start) -> Run:
        order.append(start.template.command[0])
        return Run(SHORT_S)

    world = make_world(behaviour)
    stream(world)
    agent = world.agent("a")
    order.clear()
    world.disconnect(agent)
    world.run(SHORT_S, 0.05)
    world.submit(JobSpec(command=["urgent"], priority=90))
    world.run(0.2, 0.05)
    heirs = len(order)
    world.connect(agent)
    world.run(1.0, 0.05)
    assert order[heirs] == "urgent"
