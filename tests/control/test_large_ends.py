"""Ends of jobs with more sessions than one wake should stop."""

import itertools
import math
from collections import Counter

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.world import ADA, World, state
from tests.databases import ON_BOTH

from muster.control.engine import coordinator
from muster.control.job import derive
from muster.control.job.requests import JobRequests
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JobState, SessionStatus, TaskState
from muster.store.records import Job

pytestmark = ON_BOTH
SPEC = {"command": ["x"], "tasks": 6, "resources": {"cpu": 1}, "grace": 5}
RUNNING, ENDING = SessionStatus.RUNNING, SessionStatus.TERMINATING


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    return worlds(
        {"a": cpus(8)}, behaviour=lambda start: Run(100.0, stubborn=True, outlives_kill_s=math.inf)
    )


def running(world: World, **fields: object) -> Job:
    """A job of six tasks, all of which run."""
    job = world.submit(JobSpec.model_validate({**SPEC, **fields}))
    assert statuses(world) == {RUNNING: 6}
    return job


def statuses(world: World) -> Counter[SessionStatus]:
    return Counter(session.status for session in world.plane.live.sessions.values())


def ending_by_wake(world: World, most: int = 8) -> list[int]:
    """How many sessions are about to end after each wake, until that changes no more."""
    found: list[int] = []
    while len(found) < most:
        world.wake()
        found.append(statuses(world)[ENDING])
        if found[-1] == 6:
            break
    return found


def cancel(world: World, job: Job) -> None:
    world.plane.ask(
        lambda work, parts: parts[JobRequests].cancel(work, ADA, job.id),
        lambda result, error: None,
    )


def test_cancelled_job_ends_at_once_and_its_sessions_some_a_wake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "MAX_LATER", 2)
    job = running(world)
    cancel(world, job)
    assert ending_by_wake(world) == [2, 4, 6]
    assert job.status is JobState.KILLED
    assert {session.reason for session in world.plane.live.sessions.values()} == {job.reason}


def test_tasks_of_a_cancelled_job_end_with_it_in_one_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "MAX_LATER", 1)
    job = running(world)
    cancel(world, job)
    world.wake()
    assert (job.status, +Counter(job.counts)) == (JobState.KILLED, {TaskState.KILLED: 6})


def test_others_are_served_while_a_large_job_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "MAX_LATER", 1)
    cancel(world, running(world))
    world.wake()
    answered: list[int] = []
    for _ in range(3):
        world.plane.ask(
            lambda work, parts: None,
            lambda result, error: answered.append(statuses(world)[ENDING]),
        )
        world.wake()
    assert answered == [2, 3, 4]


def test_sessions_of_an_ended_job_are_stopped_after_a_restart(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(coordinator, "MAX_LATER", 1)
        cancel(world, running(world))
        world.wake()
        assert statuses(world) == {ENDING: 1, RUNNING: 5}
    world.restart_controller()
    assert statuses(world) == {ENDING: 6}
    codes = [each.reason and each.reason.code for each in world.plane.live.sessions.values()]
    assert codes == [ReasonCode.CANCELLED] * 6


def test_what_was_sent_and_has_not_begun_is_stopped_before_what_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "MAX_LATER", 2)
    begun = itertools.count()
    world.behaviour = lambda start: Run(100.0, creating_s=0.0 if next(begun) < 4 else 50.0)
    job = world.submit(JobSpec.model_validate(SPEC))
    sessions = [*world.plane.live.sessions.values()]
    assert [each.status for each in sessions] == [RUNNING] * 4 + [SessionStatus.CREATING] * 2
    cancel(world, job)
    world.wake()
    assert [each.status for each in sessions] == [RUNNING] * 4 + [ENDING] * 2


def test_work_that_waits_leaves_the_queue_with_its_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "MAX_LATER", 1)
    job = world.submit(JobSpec.model_validate({**SPEC, "tasks": 20}))
    assert statuses(world) == {RUNNING: 8, SessionStatus.PENDING: 4}
    cancel(world, job)
    world.wake()
    assert statuses(world) == {RUNNING: 7, ENDING: 1}


def test_sessions_that_time_out_together_are_stopped_some_a_wake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "MAX_RECORDS", 2)
    running(world, timeout=10)
    world.clock.advance(10.1)
    assert ending_by_wake(world) == [2, 4, 6]


def test_sessions_that_are_found_to_have_timed_out_at_a_start_are_stopped_some_a_wake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world, timeout=10)
    world.clock.advance(10.1)
    monkeypatch.setattr(coordinator, "MAX_CHANGES", 3)  # two for each
    monkeypatch.setattr(coordinator, "MAX_LATER", 1)
    world.store.close()
    world._open()
    for agent in world.agents.values():  # their clocks tell how long the sessions have run
        world.connect(agent)
    found = ending_by_wake(world, 12)
    assert found[-1] == 6


def test_job_with_many_live_tasks_that_fails_ends_in_a_wake_without_inputs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wake is as long as one should be; what came in before waits for the next one."""
    monkeypatch.setattr(derive, "LARGE", 4)
    begun = itertools.count()
    world.behaviour = lambda start: Run(100.0 if next(begun) else 1.0, exit_code=1)
    job = running(world)
    world.clock.advance(1.1)
    world.agent("a").tick()
    world._deliver()
    world.wake()
    assert state(job) is JobState.RUNNING, "a task has failed, and this wake had inputs"
    assert not world.plane.is_calm
    answered: list[JobState] = []
    world.plane.ask(lambda work, parts: None, lambda result, error: answered.append(state(job)))
    world.wake()
    assert (state(job), answered) == (JobState.FAILED, [])
    world.wake()
    assert answered == [JobState.FAILED]
