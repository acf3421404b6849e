"""Running time is that of the agent's boot clock: a leap of the controller's time ends no work."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import World

from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import KernelStatus, SessionStatus
from muster.store.records import Session
from muster.wire.messages import Start

TIMEOUT_S = 900.0
LEAP_S = 7200.0
CPU = {"cpu": 1}


@pytest.fixture
def world(group_world: MakeWorld) -> World:
    world = group_world({"a": 1}, lambda start: Run(1e9), kernel_lease="1d")
    world.agent("a").reboot()
    world.clock.advance(60)
    world.connect(world.agent("a"))
    return world


def running(world: World) -> Session:
    world.submit(JobSpec(command=["x"], timeout=TIMEOUT_S, grace=0))
    world.run(1)
    session = world.only_session()
    assert session.status is SessionStatus.RUNNING
    return session


def leap(world: World, by_s: float = LEAP_S) -> None:
    """The controller's time is ahead of the agent's clock from now on, by so much more."""
    world.clock.advance(by_s)
    world.agent("a").machine.booted_at += by_s


def leap_while_the_agent_is_away(world: World) -> None:
    world.disconnect(world.agent("a"))
    leap(world)
    world.connect(world.agent("a"))


def timed_out(session: Session) -> bool:
    return session.reason is not None and session.reason.code is ReasonCode.TIMEOUT


def test_leap_that_the_agents_clock_refutes_does_not_count_as_running_time(world: World) -> None:
    session = running(world)
    world.disconnect(world.agent("a"))
    leap(world)
    world.connect(world.agent("a"))
    world.run(TIMEOUT_S - 10)
    assert session.status is SessionStatus.RUNNING
    world.run(20)
    assert timed_out(session)


def test_time_that_the_agents_clock_counts_is_running_time(world: World) -> None:
    session = running(world)
    world.disconnect(world.agent("a"))
    world.clock.advance(LEAP_S)
    world.connect(world.agent("a"))
    world.run(1)
    assert timed_out(session)


def test_what_starts_after_a_leap_has_no_more_time_for_it(world: World) -> None:
    former = running(world)
    world.disconnect(world.agent("a"))
    leap(world)
    world.connect(world.agent("a"))
    world.submit(JobSpec(command=["x"], timeout=10, grace=0))
    world.run(TIMEOUT_S + 5)
    assert timed_out(former)
    later = world.only_session()
    assert later is not former
    world.run(20)
    assert timed_out(later)


def test_each_of_several_leaps_counts_for_what_ran_before_it(group_world: MakeWorld) -> None:
    world = group_world({"a": 3}, lambda start: Run(1e9), kernel_lease="1d")
    world.agent("a").reboot()
    world.clock.advance(60)
    world.connect(world.agent("a"))
    first = running(world)
    leap_while_the_agent_is_away(world)
    world.run(1)
    world.submit(JobSpec(command=["x"], timeout=TIMEOUT_S, grace=0))
    world.run(5)
    second = next(each for each in world.plane.live.sessions.values() if each is not first)
    leap_while_the_agent_is_away(world)
    world.run(1)
    world.submit(JobSpec(command=["x"], timeout=TIMEOUT_S, grace=0))
    world.run(TIMEOUT_S - 20)
    running_ = [each.status for each in world.plane.live.sessions.values()]
    assert running_ == [SessionStatus.RUNNING] * 3
    third = next(each for each in world.plane.live.sessions.values() if each not in (first, second))
    world.run(15)
    assert [timed_out(each) for each in (first, second, third)] == [True, True, False]
    world.run(10)
    assert timed_out(third)


def test_no_time_is_over_before_the_agent_has_said_hello_to_a_new_controller(world: World) -> None:
    agent, session = world.agent("a"), running(world)
    world.disconnect(agent)
    world.restart_controller()
    leap(world)
    world.run(30)
    session = world.only_session()
    assert session.status is SessionStatus.RUNNING
    world.connect(agent)
    world.run(30)
    assert session.status is SessionStatus.RUNNING
    world.run(TIMEOUT_S)
    assert timed_out(session)


def test_timeout_of_a_gang_waits_for_no_machine_of_a_task_that_has_ended(
    group_world: MakeWorld,
) -> None:
    def first_ends(start: Start) -> Run:
        return Run(5.0) if start.env["MUSTER_TASK_INDEX"] == "0" else Run(1e9)

    world = group_world({"a": 1, "b": 1}, first_ends, kernel_lease="60s")
    world.submit(
        JobSpec(command=["x"], tasks=2, coscheduled=True, timeout=TIMEOUT_S, grace=0, resources=CPU)
    )
    world.run(20)
    session = world.only_session()
    ended = session.kernels[0]
    assert (session.status, ended.status) == (SessionStatus.RUNNING, KernelStatus.TERMINATED)
    assert ended.agent_id is not None
    world.disconnect(world.agents[ended.agent_id])
    world.restart_controller()
    world.run(TIMEOUT_S - 30)
    session = world.only_session()
    assert session.status is SessionStatus.RUNNING
    world.run(20)
    assert timed_out(session)
