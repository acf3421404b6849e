"""Messages of agents wait while nothing can be stored, or while others are heard: no agent is
judged as silent while one of its own waits."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import func, select
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import DrivenAgent
from tests.control.world import World

from muster.control import inbox
from muster.control.session.explaining.machines import silence_by_work
from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import AgentStatus, SessionStatus
from muster.store import schema
from muster.store.store import CommitFailed
from muster.store.unit import Unit
from muster.wire.messages import Disk

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)
SILENCE_S = 5.0
LEASE_S = 30.0
IN_CHARGE_S = 10.0
RUN_S = 5.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A controller that renews no lease while it cannot tell whether it is in charge."""
    group = ScalingGroup(name="default", agent_silence=SILENCE_S, kernel_lease=LEASE_S)
    world = World(
        tmp_path, {"a": ONE_CPU, "b": ONE_CPU}, group=group, behaviour=lambda start: Run(RUN_S)
    )
    world.in_charge_s = IN_CHARGE_S
    world.restart_controller()
    yield world
    world.close()


def full(unit: Unit) -> None:
    raise CommitFailed("database or disk is full")


def let_time_pass(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.clock.advance(1.0)
        for agent in world.agents.values():
            agent.tick()
        world.wake()


def status(world: World, agent: DrivenAgent) -> AgentStatus:
    return world.plane.live.agents[agent.id].status


@pytest.fixture
def outage(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Begins an outage of the database, which ``monkeypatch`` ends."""
    return lambda: monkeypatch.setattr(world.store, "commit", full)


def test_agent_whose_hello_waits_after_an_outage_is_not_lost_and_its_work_has_succeeded(
    world: World, monkeypatch: pytest.MonkeyPatch, outage: Callable[[], None]
) -> None:
    job = world.submit(JobSpec(command=["x"]))
    (agent,) = (each for each in world.agents.values() if each.starts)
    (other,) = (each for each in world.agents.values() if each is not agent)
    world.disconnect(agent)
    world.settle()
    let_time_pass(world, 20)
    assert status(world, agent) is AgentStatus.UNREACHABLE
    outage()
    world.disconnect(other)
    let_time_pass(world, 60)
    agent.online = True
    world.greet(agent)
    world.desk.agent_said(agent.id, agent.all_reports())
    assert world.leases.until(agent.id) < world.clock.now(), "it got no lease"
    monkeypatch.undo()
    world.clock.advance(2.0)  # the plane waits before it goes on
    world.settle()
    world.run(1.0)
    assert status(world, agent) is AgentStatus.ALIVE
    assert job.id not in world.plane.live.jobs
    assert len(agent.starts) == 1
    assert other.starts == []


def test_agent_that_waited_for_the_answer_to_its_hello_was_not_silent(
    world: World, monkeypatch: pytest.MonkeyPatch, outage: Callable[[], None]
) -> None:
    agent = world.agent("a")
    outage()
    let_time_pass(world, int(IN_CHARGE_S))
    world.disconnect(agent)
    agent.online = True
    world.greet(agent)
    let_time_pass(world, int(SILENCE_S) + 1)
    monkeypatch.undo()
    world.clock.advance(2.0)
    world.settle()
    assert status(world, agent) is AgentStatus.ALIVE
    assert agent.id in world.welcome
    assert agent.id not in {id_ for id_, _ in world.closed}
    let_time_pass(world, int(SILENCE_S) - 1)
    assert status(world, agent) is AgentStatus.ALIVE
    let_time_pass(world, 2)
    assert status(world, agent) is AgentStatus.UNREACHABLE, "it is silent since"


def test_lost_work_is_dated_by_when_its_agent_was_heard_and_not_by_when_it_was_answered(
    world: World, monkeypatch: pytest.MonkeyPatch, outage: Callable[[], None]
) -> None:
    world.behaviour = lambda start: Run(math.inf)
    world.submit(JobSpec(command=["x"]))
    (agent,) = (each for each in world.agents.values() if each.starts)
    outage()
    world.disconnect(agent)
    world.greet(agent)  # and no word from now on
    heard_at = world.clock.now()
    let_time_pass(world, 20)
    monkeypatch.undo()
    world.clock.advance(2.0)
    world.settle()
    assert status(world, agent) is AgentStatus.ALIVE
    world.restart_controller()  # to which nothing of this agent is known but what is stored
    world.run_until(lambda: status(world, agent) is AgentStatus.LOST, 120.0)
    with world.store.engine.connect() as connection:
        ended_at = connection.scalar(select(func.min(schema.kernels.c.ended_at)))
    assert ended_at is not None
    assert ended_at <= heard_at


def test_verdict_that_was_put_off_is_given_soon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "INPUTS_A_WAKE", 1)
    agent, other = world.agent("a"), world.agent("b")
    world.clock.advance(SILENCE_S + 0.5)
    for each in other, agent:
        world.desk.agent_said(each.id, Disk(True))
    world.settle()
    assert status(world, other) is AgentStatus.UNREACHABLE
    assert status(world, agent) is AgentStatus.ALIVE
    let_time_pass(world, 2)
    assert status(world, agent) is AgentStatus.UNREACHABLE


def test_phase_does_not_expire_while_the_report_that_ends_it_waits(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "INPUTS_A_WAKE", 1)
    group = ScalingGroup(name="default", create_timeout=10.0, agent_silence=60.0, kernel_lease=60.0)
    slow = Run(RUN_S, creating_s=10.5)
    world = worlds({"a": ONE_CPU, "b": ONE_CPU}, group=group, behaviour=lambda start: slow)
    world.submit(JobSpec(command=["x"]))
    session = world.only_session()
    (agent,) = (each for each in world.agents.values() if each.creating)
    (other,) = (each for each in world.agents.values() if each is not agent)
    world.clock.advance(11.0)
    agent.tick()
    world.desk.agent_said(other.id, Disk(True))
    world.desk.agent_said(agent.id, agent.all_reports())
    world.wake()
    assert session.status is SessionStatus.CREATING
    world.wake()
    assert (session.status, session.reschedules) == (SessionStatus.RUNNING, 0)


def test_phase_expires_soon_after_a_message_that_does_not_end_it(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "INPUTS_A_WAKE", 1)
    group = ScalingGroup(name="default", create_timeout=10.0, agent_silence=60.0, kernel_lease=60.0)
    world = worlds({"a": ONE_CPU}, group=group, behaviour=lambda start: Run(1, creating_s=1e9))
    world.submit(JobSpec(command=["x"]))
    session, agent = world.only_session(), world.agent("a")
    world.clock.advance(11.0)
    for full_ in (True, False):
        world.desk.agent_said(agent.id, Disk(full_))
    world.wake()
    assert session.reschedules == 0
    let_time_pass(world, 2)
    assert session.reschedules == 1


def test_work_on_a_silent_machine_is_known_by_its_ids(world: World) -> None:
    spec = {"command": ["x"], "tasks": 2, "resources": {"cpu": 1, "memory": "1GiB"}}
    job = world.submit(JobSpec.model_validate(spec))
    silent, heard = world.agent("a"), world.agent("b")
    assert not silence_by_work(world.plane.live, world.clock.now())
    world.disconnect(silent)
    world.settle()
    world.clock.advance(2.0)
    found = silence_by_work(world.plane.live, world.clock.now())
    (session,) = (
        session.id
        for session in world.plane.live.sessions.values()
        if session.kernels[0].agent_id == silent.id
    )
    assert found.keys() == {job.id, session}
    assert found[job.id].numbers["agent"] == silent.name != heard.name
