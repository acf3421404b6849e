"""Reasons that waiting work tells: those that hold, and none that held before."""

import math

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.scenarios import deaf_to
from tests.control.test_unfit_agents import MISSING
from tests.control.world import ADA, World

from muster.control.job.requests import JobRequests
from muster.control.session.explaining.explanation import explain_session
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JobState, SessionStatus
from muster.store.records import Job, Session
from muster.wire.messages import Stop


def ask(cpus: int, **more: object) -> JobSpec:
    return JobSpec.model_validate({"command": ["x"], "resources": {"cpu": cpus}, **more})


def told(world: World, session: Session) -> list[str]:
    """The codes of the answer of `muster why`."""
    why = explain_session(world.plane.live, world.cluster, session.id, world.clock.now())
    return [each.code for each in why.reasons]


def session_of(world: World, job: Job) -> Session:
    (session,) = (each for each in world.plane.live.sessions.values() if each.job is job)
    return session


@pytest.mark.parametrize("queue", ["strict", "backfill"])
def test_work_starts_once_the_session_before_it_is_cancelled(
    group_world: MakeWorld, queue: str
) -> None:
    world = group_world({"a": 2}, lambda start: Run(600.0), queue=queue)
    world.submit(ask(1, timeout=300))
    first, second = world.submit(ask(2)), world.submit(ask(1))
    behind = {"strict": "STRICT_ORDER", "backfill": "BEHIND_RESERVATION"}[queue]
    assert told(world, session_of(world, second)) == [behind]
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, first.id))
    assert second.status is JobState.RUNNING, "at once, and not with the next sweep"


def test_session_that_has_its_place_tells_nothing_of_its_last_one(group_world: MakeWorld) -> None:
    world = group_world({"a": 2, "b": 1}, retry_backoff=60, max_tries=3)
    world.agent("a").behaviour = lambda start: MISSING
    world.agent("b").behaviour = lambda start: Run(create_failure=ReasonCode.NO_PROCESSES)
    session = session_of(
        world, world.submit(ask(1, placement={"agents": ["a"], "agents_only": False}))
    )
    world.run(5)
    assert (session.status, session.reschedules) == (SessionStatus.CREATING, 1)
    assert sorted(told(world, session)) == ["NO_PROCESSES", "RETRY_BACKOFF"]


def test_next_try_that_is_ahead_is_never_said_to_be_in_no_time(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, retry_backoff=60)
    world.agent("a").behaviour = lambda start: Run(create_failure=ReasonCode.NO_PROCESSES)
    session = session_of(world, world.submit(ask(1)))
    world.clock.advance(session.retry_at - world.clock.now() - 0.01)
    why = explain_session(world.plane.live, world.cluster, session.id, world.clock.now())
    waits = (each.sentence for each in why.reasons if each.code == ReasonCode.RETRY_BACKOFF)
    assert next(waits) == "the next try is in 0.1 s"


def test_agent_is_not_to_blame_for_the_kernels_that_have_ended_on_it(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1, "b": 1})
    world.agent("a").behaviour = lambda start: Run(1.0, exit_code=1)
    world.agent("b").behaviour = lambda start: Run(600.0, stubborn=True, outlives_kill_s=math.inf)
    job = world.submit(ask(1, tasks=2, coscheduled=True, grace=60))
    session = session_of(world, job)
    world.run_until(lambda: session.status is SessionStatus.TERMINATING)
    world.disconnect(world.agent("a"))
    world.settle()
    assert told(world, session) == ["KERNEL_ENDED"]


def test_agent_without_room_on_its_disk_is_not_waited_for_while_it_is_away(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1})
    agent = world.agent("a")
    agent.disk_full = True
    world.connect(agent)
    session = session_of(world, world.submit(ask(1)))
    world.disconnect(agent)
    world.run(1)
    assert told(world, session) == ["NO_ALIVE_AGENTS"]


def test_session_that_waits_until_its_processes_are_gone_is_not_said_to_start(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1, "b": 1}, lambda start: Run(creating_s=1000.0), create_timeout=5)
    world.submit(JobSpec(command=["x"]))
    session = world.only_session()
    (kernel,) = session.kernels
    assert kernel.agent_id is not None
    deaf_to(Stop, world.agents[kernel.agent_id])
    world.run_until(lambda: session.status is SessionStatus.PENDING, 60.0)
    now = world.clock.now()
    why = explain_session(world.plane.live, world.cluster, session.id, now)
    assert [each.code for each in why.reasons][:1] == [ReasonCode.CLEANING_UP]
    assert why.placement is not None
    assert (why.placement.starts, why.placement.placement) == (False, ())
    assert [each.code for each in why.placement.reasons] == [ReasonCode.CLEANING_UP]
