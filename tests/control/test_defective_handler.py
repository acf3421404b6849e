"""A handler that raises is our defect: it holds work up, and ends none."""

from collections.abc import Sequence

import pytest
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.world import World

from muster.control.engine.handler import HandlerResult
from muster.control.engine.work import Work
from muster.control.job.settle import SettleTasks
from muster.control.session.handlers.start import StartSessions
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState, SessionStatus
from muster.scheduling.passes.group_state import GroupState
from muster.store import schema
from muster.store.records import Session


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    return worlds({"a": Resources(cpu_milli=1000, memory_bytes=2**30)})


def test_handler_that_raises_costs_its_targets_no_try_and_they_go_on_when_it_no_longer_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: StartSessions, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(StartSessions, "execute", broken)
        job = world.submit(JobSpec(command=["x"]))
        world.run(100.0)
        (session,) = world.plane.live.sessions.values()
        assert session.status is SessionStatus.PREPARED
        assert (session.tries, session.reschedules) == (0, 0)
        history = schema.history
        with world.store.engine.connect().execution_options(readonly=True) as connection:
            result = select(history.c.result).where(
                history.c.entity == session.id, history.c.reasons.contains(ReasonCode.HANDLER_ERROR)
            )
            assert {*connection.execute(result).scalars()} == {"SKIPPED"}

    job = world.plane.live.jobs[job.id]
    world.run_until(lambda: job.status in JOB_TABLE.terminal, 65.0)
    assert job.status is JobState.SUCCEEDED


def test_end_that_could_not_be_settled_is_settled_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(SettleTasks, "_settle", broken)
        job_id = world.submit(JobSpec(command=["x"])).id
        world.run(30.0)
        assert world.plane.live.jobs[job_id].status is JobState.RUNNING
    world.connect_again()
    world.run_until(lambda: job_id not in world.plane.live.jobs, 120.0)
    with world.store.engine.connect() as connection:
        assert connection.scalar(select(schema.jobs.c.status)) == JobState.SUCCEEDED
    assert len(world.agent("a").starts) == 1


@pytest.mark.parametrize("coscheduled", [False, True])
def test_task_whose_session_ended_while_the_handler_rested_is_tried_again_after_a_restart(
    world: World, monkeypatch: pytest.MonkeyPatch, coscheduled: bool
) -> None:
    def rests(*_: object) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(SettleTasks, "_settle", rests)
        spec = JobSpec.model_validate(
            {"command": ["x"], "tasks": 2, "coscheduled": coscheduled, "resources": {"cpu": 0.1}}
        )
        job_id = world.submit(spec).id
        world.run(100.0)
    assert not world.plane.live.sessions
    assert world.plane.live.jobs[job_id].status is JobState.RUNNING

    world.restart_controller()
    world.run_until(lambda: job_id not in world.plane.live.jobs, 120.0)
    tasks = schema.tasks
    with world.store.engine.connect() as connection:
        assert connection.scalar(select(schema.jobs.c.status)) == JobState.SUCCEEDED
        charged = select(tasks.c.attempt, tasks.c.failure_count, tasks.c.preemption_count)
        assert [*map(tuple, connection.execute(charged))] == [(2, 0, 0)] * 2


def test_handler_that_fails_after_it_took_room_leaves_none_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placement takes room for a session, and then something raises, once."""
    failures = [ZeroDivisionError()]
    take = GroupState.start

    def takes_badly(group: GroupState, *arguments: object, **more: object) -> object:
        taken = take(group, *arguments, **more)  # type: ignore[arg-type]
        if failures:
            raise failures.pop()
        return taken

    monkeypatch.setattr(GroupState, "start", takes_badly)
    job = world.submit(JobSpec(command=["x"]))
    world.run(120.0)
    with world.store.engine.connect() as connection:
        state = select(schema.jobs.c.status).where(schema.jobs.c.id == job.id)
        assert connection.scalar(state) == JobState.SUCCEEDED
    assert not world.plane.live.ledger
    assert not failures, "it did fail"
