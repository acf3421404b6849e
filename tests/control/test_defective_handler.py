"""A handler that raises is our defect: it holds work up, and ends none."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.world import World

from muster.control.engine.handler import HandlerResult
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.job.expand import ExpandJobs
from muster.control.job.settle import SettleTasks
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers import schedule
from muster.control.session.handlers.start import StartSessions
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import JOB_TABLE, JobState, SessionStatus
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import Placed
from muster.store import schema
from muster.store.records import Session

LARGE = Resources(cpu_milli=8000, memory_bytes=2**33)


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    world = worlds({"a": Resources(cpu_milli=1000, memory_bytes=2**30)})
    world.expect_defects()
    return world


def test_handler_that_raises_costs_its_targets_no_try_and_they_go_on_when_it_no_longer_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: StartSessions, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(StartSessions, "execute", broken)
        job = world.submit(JobSpec(command=["x"]))
        world.run(100.0)
        session = world.only_session()
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


@pytest.fixture
def placing(worlds: MakeWorld) -> World:
    """A world with two groups, in which there is room for much."""
    world = worlds({"a": LARGE}, behaviour=lambda start: Run(1.0))
    world.expect_defects()
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, ScalingGroup(name="second")))
    world.add_agent("b", LARGE, group="second")
    return world


def job_named(world: World, name: str, group: str = "default", cpu: int = 1) -> None:
    spec = {"command": ["x"], "name": name, "group": group, "resources": {"cpu": cpu}}
    world.submit(JobSpec.model_validate(spec))


def stored_states(world: World) -> dict[str, str]:
    jobs = schema.jobs.c
    with world.store.engine.connect() as connection:
        return {row.name: row.status for row in connection.execute(select(jobs.name, jobs.status))}


@pytest.mark.parametrize("after", [False, True], ids=["before room is taken", "with room taken"])
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one wake"])
def test_session_whose_start_fails_waits_and_all_others_are_placed(
    placing: World, monkeypatch: pytest.MonkeyPatch, after: bool, together: bool
) -> None:
    def start(self: ClusterState, placed: Placed, now: float) -> Session:
        session = self._live.sessions[placed.session.id]
        assert session.job is not None
        fails = session.job.name == "bad"
        if fails and not after:
            raise ZeroDivisionError
        right(self, placed, now)
        if fails:
            raise ZeroDivisionError
        return session

    right = ClusterState.start
    with monkeypatch.context() as patch:
        patch.setattr(ClusterState, "start", start)
        for name, group in [("bad", "default"), ("first", "default"), ("other", "second")]:
            job_named(placing, name, group)
            if not together:
                placing.run(1.0)
        placing.run(3.0)
        placing.connect_again()
        job_named(placing, "later", cpu=8)  # all room there is
        placing.run(5.0)
        states = stored_states(placing)
        assert states.pop("bad") == JobState.PENDING
        assert {*states.values()} == {JobState.SUCCEEDED}
        assert not placing.plane.live.ledger
    placing.run(120.0)
    assert stored_states(placing)["bad"] == JobState.SUCCEEDED


def test_group_whose_placement_fails_rests_and_the_others_go_on(
    placing: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def granted(group: GroupState, work: Work, cluster: ClusterState) -> None:
        calls.append(group.snapshot.group)
        if group.snapshot.group == "default":
            raise ZeroDivisionError

    calls: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(schedule, "grant_prefilled", granted)
        job_named(placing, "waits")
        job_named(placing, "other", "second")
        placing.run(30.0)
        assert stored_states(placing) == {"waits": JobState.PENDING, "other": JobState.SUCCEEDED}
        assert calls.count("default") == 1
    placing.connect_again()
    placing.run(120.0)
    assert {*stored_states(placing).values()} == {JobState.SUCCEEDED}


def test_job_on_which_a_handler_failed_has_one_row_about_it_for_as_long_as_it_is_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ExpandJobs, "follow", broken)
    job = world.submit(JobSpec(command=["x"]))
    world.run(40.0)
    history = schema.history.c
    with world.store.engine.connect() as connection:
        told = select(history.result).where(
            history.entity == job.id, history.reasons.contains(ReasonCode.HANDLER_ERROR)
        )
        assert connection.scalars(told).all() == ["SKIPPED"]


def test_world_in_which_a_handler_failed_unexpectedly_fails_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(SettleTasks, "_settle", broken)
    world = World(tmp_path, {"a": LARGE})
    world.submit(JobSpec(command=["x"]))
    world.run(5.0)
    with pytest.raises(AssertionError, match="SettleTasks failed on ses-"):
        world.close()
