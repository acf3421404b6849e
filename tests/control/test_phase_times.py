"""Times of phases and of waiting: what they count, and what does not begin them anew."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select, text
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import attempt, task_index
from tests.control.world import World

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.core.errors import MusterError
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.store import schema
from muster.store.records import Job
from muster.wire.messages import Go, KernelReport, ReportKind, Reports, Start


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"command": ["x"], **fields})


def leave(world: World, name: str) -> None:
    world.disconnect(world.agent(name))
    world.settle()


def began_at(text: float) -> str:
    return datetime.fromtimestamp(text, UTC).isoformat()


def ended_after(world: World, job: Job, limit_s: float = 200.0) -> float:
    """How long it takes from now until the job has ended."""
    began = world.clock.now()
    world.run_until(lambda: job.status in JOB_TABLE.terminal, limit_s)
    return world.clock.now() - began


def test_agent_that_comes_and_goes_does_not_keep_a_phase_for_ever(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(1, creating_s=1e9), create_timeout=60.0)
    world.submit(spec())
    session = world.only_session()
    for _ in range(8):  # each time for 20 s, which is a third of what creation may take
        world.run(20.0)
        leave(world, "a")
        world.run(5.0)
        world.connect(world.agent("a"))
        if session.reschedules:
            break
    assert session.reschedules == 1
    assert world.clock.now() - session.created_at < 120.0


def read_again(world: World) -> None:
    """A commit fails, so that the controller reads its state again; agents come back to it."""

    def nonsense(work: Work, _: Parts) -> None:
        work.unit.also(text("UPDATE nonsense SET x = 1"))

    with pytest.raises(MusterError):
        world.ask(nonsense)
    world.run(1.5)
    world.connect_again()


@pytest.mark.parametrize("reload", [False, True])
def test_time_in_which_an_agent_could_not_be_heard_counts_for_no_phase(
    group_world: MakeWorld, reload: bool
) -> None:
    world = group_world({"a": 1}, lambda start: Run(1, creating_s=50.0), create_timeout=45.0)
    job = world.submit(spec())
    world.run(20.0)
    leave(world, "a")
    world.run(14.0)
    world.connect(world.agent("a"))
    if reload:
        read_again(world)
        job = world.plane.live.jobs[job.id]
    world.run(10.0)
    assert job.status is JobState.RUNNING
    session = world.only_session()
    world.run_until(lambda: job.status in JOB_TABLE.terminal, 60.0)
    assert session.reschedules == 0


def test_time_in_which_an_agent_could_not_be_heard_counts_for_no_gang_that_was_told_to_run(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 2}, lambda start: Run(1, creating_s=10.0), create_timeout=30.0)
    agent = world.agent("a")
    job = world.submit(spec(tasks=2, coscheduled=True))
    session = world.only_session()
    world.run(5.0)
    agent.loses = (Go,)  # it gets them ready, and does not hear that they may run
    world.run_until(lambda: session.barrier_opened_at is not None)
    world.run(15.0)
    leave(world, "a")
    world.run(14.0)
    world.connect(agent)
    world.run(10.0)  # of the thirty seconds since the barrier opened it could be heard in 25
    agent.loses = ()
    leave(world, "a")
    world.connect(agent)
    world.run_until(lambda: job.status in JOB_TABLE.terminal, 60.0)
    assert (job.status, session.reschedules) == (JobState.SUCCEEDED, 0)
    assert len(agent.starts) == 2


def test_scheduling_timeout_counts_for_the_job_as_a_whole_and_not_for_each_candidate(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, lambda start: Run(4))
    job = world.submit(spec(tasks=100, scheduling_timeout=10))
    assert 10.0 <= ended_after(world, job) <= 11.0
    assert job.status is JobState.UNSCHEDULABLE


def test_scheduling_timeout_does_not_begin_anew_with_a_retry(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(6, exit_code=1))
    job = world.submit(spec(scheduling_timeout=10, max_retries_failure=5))
    world.run(1.0)
    world.submit(spec(command=["y"], priority=90, tasks=20))  # takes the room, time after time
    assert 8.0 <= ended_after(world, job) <= 10.0
    assert job.status is JobState.UNSCHEDULABLE


@pytest.mark.parametrize("restart", [False, True])
def test_scheduling_timeout_stands_still_while_the_start_time_lies_ahead(
    group_world: MakeWorld, restart: bool
) -> None:
    world = group_world({"a": 1}, lambda start: Run(1000))
    world.submit(spec(command=["y"]))
    text = began_at(world.clock.now() + 60.0)
    id_ = world.submit(spec(scheduling_timeout=10, not_before=text)).id
    if restart:
        world.restart_controller()
    assert 69.0 <= ended_after(world, world.plane.live.jobs[id_]) <= 71.0


@pytest.mark.parametrize("restart", [False, True])
def test_scheduling_timeout_counts_from_when_what_it_waits_for_has_come_so_far(
    group_world: MakeWorld, restart: bool
) -> None:
    world = group_world({"a": 1}, lambda start: Run(30 if start.template.command[0] == "f" else 99))
    world.submit(spec(name="first", command=["f"]))
    world.submit(spec(command=["y"], priority=90, tasks=9))
    id_ = world.submit(spec(scheduling_timeout=10, after=["first"])).id
    if restart:
        world.run(20.0)
        world.restart_controller()
    began = world.clock.now()
    ended_after(world, world.plane.live.jobs[id_])
    passed = world.clock.now() - began + (20.0 if restart else 0.0)
    assert 40.0 <= passed <= 41.5


def test_job_does_not_go_back_to_pending_while_its_only_task_is_to_be_tried_again(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, lambda start: Run(2, exit_code=attempt(start) % 3))
    job = world.submit(spec(max_retries_failure=5))
    world.run(1.0)
    world.submit(spec(command=["y"], priority=90, tasks=2))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    history = schema.history.c
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        passed = connection.scalars(
            select(history.to_status).where(history.entity == job.id).order_by(history.seq)
        ).all()
    assert passed == ["RUNNING", "SUCCEEDED"]


def rows_of(world: World, entity: str, result: str) -> list[int]:
    """How often each row of that result was told."""
    history = schema.history.c
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        return list(
            connection.scalars(
                select(history.times).where(history.entity == entity, history.result == result)
            )
        )


@pytest.fixture
def broken(group_world: MakeWorld) -> Callable[..., World]:
    """A world whose agent's disk is full."""

    def make(**policy: object) -> World:
        return group_world(
            {"a": 1}, lambda start: Run(create_failure=ReasonCode.DISK_FULL), **policy
        )

    return make


def test_retries_of_a_phase_merge_in_history_and_survive_a_kill(
    broken: Callable[..., World],
) -> None:
    world = broken(max_tries=9, retry_backoff=0.5)
    world.submit(spec())
    session = world.only_session()
    world.run_until(lambda: session.tries == 5)
    assert rows_of(world, session.id, "NEED_RETRY") == [5]


def test_count_of_a_merged_refusal_is_on_disk_before_long(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(1e9))
    world.submit(spec())
    world.submit(spec(command=["y"]))
    (waiting,) = (s for s in world.plane.live.sessions.values() if s.status == "PENDING")
    world.run(700.0, step_s=5.0)
    (times,) = rows_of(world, waiting.id, "SKIPPED")
    assert times >= 8, "it was looked at each minute; what is stored is five minutes old at most"


@pytest.mark.parametrize("restart", [False, True])
def test_failed_try_that_is_told_again_is_charged_once(
    broken: Callable[..., World], restart: bool
) -> None:
    world = broken(max_tries=3, retry_backoff=5.0)
    world.submit(spec())
    kernel = world.only_session().kernels[0]
    world.run(0.5)
    failed_at = kernel.failed_at
    assert failed_at is not None
    assert kernel.session.tries == 1
    agent = world.agent("a")
    agent.behaviour = lambda start: Run(50, creating_s=20.0)
    if restart:
        world.restart_controller()
        kernel = world.only_session().kernels[0]
    world.run(6.0)
    again = KernelReport(
        kernel.id,
        kernel.generation,
        ReportKind.CREATE_FAILED,
        failed_at,
        reason=ReasonCode.DISK_FULL,
    )
    for _ in range(5):
        world.desk.agent_said(agent.id, Reports(agent.acknowledged, (again,)))
        world.settle()
    assert (kernel.session.tries, kernel.session.reschedules) == (1, 0)
    world.run(20.0)
    assert kernel.status == "RUNNING"


def test_failed_tries_are_charged_though_the_agents_clock_is_set_back(
    broken: Callable[..., World],
) -> None:
    world = broken(max_tries=9, retry_backoff=5.0)
    world.submit(spec())
    session = world.only_session()
    world.run(0.5)
    assert session.tries == 1
    world.agent("a").machine.clock_ahead_s = -90.0
    world.run(5.0)
    assert session.tries == 2, "and the next one is not before its time"


def test_retry_that_finds_room_at_once_needs_no_time_to_wait(group_world: MakeWorld) -> None:
    def behaviour(start: Start) -> Run:
        return Run(1, exit_code=int(task_index(start) == 0 and attempt(start) == 1))

    world = group_world({"a": 4}, behaviour)
    job = world.submit(spec(tasks=3, max_retries_failure=1, scheduling_timeout=5))
    ended_after(world, job)
    assert job.status is JobState.SUCCEEDED
