"""A commit that failed: what only the mirror knew is told again by the agents."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import text
from tests.control.world import ADA, World
from tests.databases import ONLY_SQLITE

from muster.control import plane
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.inbox import NotStored
from muster.control.job.requests import JobRequests
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.store.database import sqlite
from muster.store.store import CommitFailed
from muster.store.unit import Unit
from muster.wire.messages import Start

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
RUN_S = 5.0


@pytest.fixture
def failures() -> list[ReasonCode]:
    """Why the next attempts to start a kernel fail."""
    return []


@pytest.fixture
def world(tmp_path: Path, failures: list[ReasonCode]) -> Iterator[World]:
    def behaviour(start: Start) -> Run:
        return Run(create_failure=failures.pop()) if failures else Run(RUN_S)

    world = World(tmp_path, {"a": ONE_CPU}, behaviour=behaviour)
    yield world
    world.close()


def full(unit: Unit) -> None:
    raise CommitFailed("database or disk is full")


def break_a_commit(world: World) -> None:
    def change(work: Work, _: Parts) -> None:
        work.unit.also(text("UPDATE cluster SET value = value"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "commit", full)
        with pytest.raises(NotStored):
            world.ask(change)


def test_failed_start_that_a_failed_commit_forgot_is_tried_again_before_long(
    world: World, failures: list[ReasonCode]
) -> None:
    failures.append(ReasonCode.DISK_FULL)
    job_id = world.submit(JobSpec(command=["x"])).id
    (kernel,) = world.plane.live.kernels.values()
    assert kernel.failure is not None
    break_a_commit(world)
    world.run(1.5)  # the plane waits before it goes on

    assert world.closed == [(world.agent("a").id, "say hello again")]
    world.connect_again()
    job = world.plane.live.jobs[job_id]
    session = world.only_session()
    world.run_until(lambda: job.status in JOB_TABLE.terminal, RUN_S + 5.0)
    assert job.status is JobState.SUCCEEDED
    assert (session.reschedules, session.failed_agents) == (0, ())
    assert len(world.agent("a").starts) == 1


def test_agents_that_are_not_connected_are_not_told(world: World) -> None:
    agent = world.agent("a")
    world.disconnect(agent)
    world.settle()
    break_a_commit(world)
    world.run(1.5)

    assert not world.closed
    assert world.ask(
        lambda work, parts: parts[JobRequests].submit(work, ADA, JobSpec(command=["x"]))
    )


def test_agent_whose_hello_is_heard_in_the_first_wake_afterwards_is_not_told_to_say_it_again(
    world: World,
) -> None:
    agent = world.agent("a")
    break_a_commit(world)
    world.clock.advance(1.5)  # the plane waits before it goes on
    world.connect(agent)  # the end of its last stream is not heard of
    assert not world.closed
    assert agent.id in world.welcome


def trouble(world: World) -> str | None:
    return world.plane.trouble


def test_log_tells_once_that_nothing_can_be_stored_and_once_that_it_can_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[Exception | None] = []

    def change(work: Work, _: Parts) -> None:
        work.unit.also(text("UPDATE cluster SET value = value"))

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "commit", full)
        for _ in range(3):
            world.plane.ask(change, lambda _, error: refused.append(error))
            world.plane.step()
            world.clock.advance(5.0)
    assert len([each for each in refused if isinstance(each, NotStored)]) == 3
    world.ask(change)
    told = [each.getMessage() for each in caplog.records if each.name == plane.__name__]
    assert told == [
        "nothing was committed, trying again in 1.0 s: the change could not be stored: database or "
        "disk is full",
        "changes are stored again",
    ]


def test_leases_are_renewed_and_no_agent_is_cut_off_while_nothing_can_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.agent("a")

    world.submit(JobSpec(command=["x"]))
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "commit", full)
        with pytest.raises(NotStored):
            world.submit(JobSpec(command=["y"]))
        for _ in range(120):  # for twice the lease
            world.clock.advance(5.0)
            world.plane.step()
            world.beat(agent)
            agent.tick()
        assert "full" in (trouble(world) or "")
        assert agent.supervisor.lease_end_s > agent.machine.boot_s
        assert world.closed == []
    world.clock.advance(2.0)  # the plane waits before it goes on
    world.settle()
    assert not trouble(world)
    assert world.closed == [(agent.id, "say hello again")]
    world.connect_again()
    assert [job.status for job in world.plane.live.jobs.values()] == []
    assert len(agent.starts) == 1


def test_wake_that_read_the_state_again_is_of_the_moment_when_it_took_its_inputs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_a_commit(world)
    reload = world.store.reload

    def slowly() -> None:
        reload()
        world.clock.advance(3.0)

    monkeypatch.setattr(world.store, "reload", slowly)
    world.clock.advance(2.0)
    job = world.submit(JobSpec(command=["x"]))
    assert job.submitted_at == world.clock.now()


@ONLY_SQLITE
def test_nothing_is_read_again_before_something_can_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.0)
    world = World(tmp_path, {"a": ONE_CPU})
    try:
        before = world.store.live
        with closing(sqlite3.connect(world.store.engine.url.database or "")) as other:
            other.execute("BEGIN IMMEDIATE")  # writers wait, readers do not
            with pytest.raises(NotStored):
                world.submit(JobSpec(command=["x"]))
            for _ in range(10):
                world.clock.advance(2.0)
                world.plane.step()
            assert "locked" in (trouble(world) or "")
            assert world.store.live is before
        world.clock.advance(2.0)
        world.plane.step()
        assert not trouble(world)
        assert world.store.live is not before
        world.submit(JobSpec(command=["x"]))  # it is taken
    finally:
        world.close()
