"""Somebody else wrote to the database: who lost a race sits out a wake, everybody else goes on."""

import json
from dataclasses import replace
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import insert, select, update
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, World
from tests.databases import ON_BOTH

from muster.control import inbox, put_off
from muster.control.agent.requests import AgentRequests
from muster.control.engine import races
from muster.control.job.requests import JobRequests
from muster.control.session.requests import SessionRequests
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import AgentBar, JobState, SessionStatus
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes import group_state
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.plugins import PassContext
from muster.store import schema
from muster.store.records import Session
from muster.store.store import LostRace
from muster.store.unit import Unit

pytestmark = ON_BOTH


def one(name: str, cpu: int = 1, **more: object) -> JobSpec:
    spec = {"name": name, "command": [name], "resources": {"cpu": cpu}, **more}
    return JobSpec.model_validate(spec)


def write_behind(world: World, statement: Any) -> None:
    """Write as another process would, or an operator with a shell."""
    with world.store.engine.begin() as connection:
        connection.execute(statement)


def lost_races(world: World, entity: str) -> int:
    """How often history says that the entity lost one."""
    columns = schema.history.c
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        rows = connection.execute(
            select(columns.reasons, columns.result).where(columns.entity == entity)
        ).all()
    return sum(
        row.result == "SKIPPED" and json.loads(row.reasons or "[]") == [[ReasonCode.LOST_RACE, {}]]
        for row in rows
    )


def held(world: World, agent: str, cpu: int) -> dict[str, Any]:
    """A row of the ledger of a kernel that this controller has never heard of."""
    return {
        "kernel_id": "ker-stranger",
        "generation": 0,
        "agent_id": world.agent(agent).id,
        "charged": True,
        "cpu_milli": cpu * 1000,
        "memory_bytes": 0,
        "disk_bytes": 0,
        "gpu_milli": 0,
        "extra": "{}",
        "devices": "[]",
        "boot_id": "boot-1",
        "since": world.clock.now(),
    }


def test_race_that_is_lost_again_and_again_is_given_up_also_after_a_full_wake(
    group_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = group_world({"a": 4}, lambda start: Run(50))
    commits: list[Unit] = []

    def lose(unit: Unit) -> None:
        if not unit.empty:
            commits.append(unit)
            raise LostRace("somebody else writes all the time", frozenset())

    for module in (inbox, put_off):
        monkeypatch.setattr(module, "MAX_CHANGES", 0)  # handlers come in a wake of their own
    monkeypatch.setattr(world.store, "commit", lose)
    answers: list[Exception | None] = []
    world.plane.ask(
        lambda work, parts: parts[JobRequests].submit(work, ADA, one("x")),
        lambda _, error: answers.append(error),
    )
    for _ in range(10 * races.MAX_IN_A_ROW):
        world.plane.step()
    assert [type(error) for error in answers] == [inbox.NotStored]
    assert len(commits) == 1 + races.MAX_IN_A_ROW


def test_record_that_another_process_changed_fails_only_itself(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(50))
    world.submit(one("first"))
    waiting = world.submit_session(
        SessionSpec.model_validate({"kernels": [{"command": ["x"], "resources": {"cpu": 9}}]})
    )
    agent = world.agent("a").id
    changed = schema.agents.c.id == agent
    write_behind(world, update(schema.agents).where(changed).values(status="UNREACHABLE"))
    answers = world.ask_together(
        lambda work, parts: parts[JobRequests].submit(work, ADA, one("second")),
        lambda work, parts: parts[AgentRequests].bar(work, ADA, agent, AgentBar.CORDONED),
        lambda work, parts: parts[AgentRequests].bar(work, ADA, agent, None),
        lambda work, parts: parts[SessionRequests].cancel(work, ADA, waiting.id),
    )
    assert [isinstance(each, Exception) for each in answers] == [False] * 4
    assert answers[3].status is SessionStatus.CANCELLED
    assert lost_races(world, agent) == 1
    world.connect_again()
    second = world.plane.live.jobs[answers[0].id]
    world.run_until(lambda: second.status is JobState.RUNNING, 5.0)
    assert len(world.agent("a").running) == 2


def test_task_that_another_process_changed_is_told_with_its_job(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(5))
    job = world.submit(one("first"))
    other = world.submit(one("other"))
    changed = schema.tasks.c.job_id == job.id
    write_behind(world, update(schema.tasks).where(changed).values(exit_code=1, status="KILLED"))
    world.run(6.0)
    world.connect_again()
    world.run_until(lambda: other.id not in world.plane.live.jobs, 5.0)
    assert lost_races(world, job.id) == 1
    assert lost_races(world, other.id) == 0


def test_room_that_another_process_took_is_seen_at_commit_and_others_are_placed(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 2, "b": 4}, lambda start: Run(50))
    write_behind(world, insert(schema.allocations).values(held(world, "a", 1)))
    on = {"placement": {"agents": ["a"], "agents_only": True}}
    large, small = world.ask_together(
        lambda work, parts: parts[JobRequests].submit(work, ADA, one("large", 2, **on)),
        lambda work, parts: parts[JobRequests].submit(work, ADA, one("small", 4)),
    )
    assert world.plane.live.jobs[small.id].status is JobState.RUNNING
    world.run(3.0)
    assert world.plane.live.jobs[small.id].status is JobState.RUNNING
    assert world.plane.live.jobs[large.id].status is JobState.PENDING
    assert charged_cpus(world, "a") == 1


def test_session_that_waited_and_whose_room_another_process_took_says_that_it_lost_a_race(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 2}, lambda start: Run(2))
    first = world.submit(one("first", 2))
    world.submit(one("second", 2))
    (waiting,) = (s for s in world.plane.live.sessions.values() if s.status == "PENDING")
    world.run(1.0)
    write_behind(world, insert(schema.allocations).values(held(world, "a", 1)))
    world.run(3.0)
    assert first.id not in world.plane.live.jobs
    assert lost_races(world, waiting.id) == 1
    world.connect_again()  # where the agent says that it holds no such kernel
    world.run(15.0)
    assert len(world.agent("a").starts) == 2


def charged_cpus(world: World, agent: str) -> float:
    columns = schema.allocations.c
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        rows = connection.execute(
            select(columns.cpu_milli).where(
                columns.agent_id == world.agent(agent).id, columns.charged
            )
        )
        amounts: list[int] = list(rows.scalars())
        return sum(amounts) / 1000


def place_as_if_nothing_ran(
    queue: Queue, snapshot: Snapshot, policy: Policy, context: PassContext
) -> Any:
    empty = snapshot.emptied().copy()  # in which the room stays taken
    return place(queue, empty, policy, replace(context, snapshot=empty))


@pytest.mark.parametrize("gpus", [0, 1])
def test_placement_that_gives_room_twice_never_passes_a_commit(
    group_world: MakeWorld,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    gpus: int,
) -> None:
    world = group_world({"b": 1}, lambda start: Run(50), backlog_window=0)
    world.add_agent("a", world.agent("b").offer.capacity, gpus=2)
    monkeypatch.setattr(group_state, "place", place_as_if_nothing_ran)
    wanted = {"cpu": 0.5 if gpus else 1, "gpu": gpus}
    jobs = [
        world.submit(JobSpec.model_validate({"command": ["x"], "resources": wanted}))
        for _ in range(4)
    ]
    for _ in range(30):
        world.connect_again()
        world.run(1.0)
        assert charged_cpus(world, "a") <= 1
        assert charged_cpus(world, "b") <= 1
        devices = [
            share.index
            for row in world.plane.live.allocations_on.get(world.agent("a").id, {}).values()
            for share in row.shares
        ]
        assert len(devices) == len(set(devices))
    running = [job for job in jobs if world.plane.live.jobs[job.id].status is JobState.RUNNING]
    assert running, "somebody is placed all the same"
    assert "the wake is taken again" in caplog.text


def test_agent_that_has_less_than_it_holds_takes_what_asks_for_none_of_that(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 4}, lambda start: Run(50))
    world.submit(one("first", 4))
    agent = world.agent("a")
    smaller = replace(agent.offer.capacity, cpu_milli=2000)
    agent.offer = replace(agent.offer, capacity=smaller)
    world.connect(agent)
    other = world.submit(one("second", 0))
    world.run(1.0)
    assert not world.closed
    session: Session = next(s for s in world.plane.live.sessions.values() if s.job is other)
    assert lost_races(world, session.id) == 0
