"""Situations in a small world, by which tests reach all that handlers declare; those of an entity
may stand in a module of its own, ``*_scenarios.py``."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from proving.hollow.performers.notices import Faults
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import DrivenAgent, kernel_index
from tests.control.world import ADA, World

from muster.control import put_off
from muster.control.agent.requests import AgentRequests
from muster.control.engine import coordinator
from muster.control.engine.handler import TransitionStatus
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.job.requests import JobRequests
from muster.control.job.settle import SettleTasks
from muster.control.notice import ends
from muster.control.notice.entity import Notice
from muster.control.notice.lifecycle import MAX_WAIT_S
from muster.control.notice.turns import MAX_SENDING_OF_ONE
from muster.control.session.lifecycle import AGAIN, STOP, STOP_KERNEL
from muster.control.session.requests import SessionRequests
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_health import HealthFaultSeen
from muster.core.results import SchedulingResult
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import AgentBar, SessionStatus
from muster.store.records import Job, Session
from muster.wire.messages import Command, Commands, ControllerMessage, Prepare, Start

OPERATOR = Principal(Owner("default", "default", "root"), Role.ADMIN)
CHANNEL = "json://hooks.example/token"
Scenario = Callable[[MakeWorld], World]
Verdict = tuple[str, SchedulingResult]
"""A handler's name, and a verdict on one of its targets."""


@contextmanager
def a_step_a_wake() -> Iterator[None]:
    """Each wake ends with its first change, and the next one goes on with the next handler."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (coordinator, put_off):
            patch.setattr(module, "MAX_CHANGES", 0)
        yield


def job(world: World, **fields: Any) -> World:
    world.submit(JobSpec.model_validate({"command": ["x"], **fields}))
    return world


def with_ports(world: World) -> World:
    """The world with a session whose kernel has ports, and so needs preparation."""
    kernel = {"command": ["x"], "ports": 1}
    world.submit_session(SessionSpec.model_validate({"kernels": [kernel]}))
    return world


def deaf_to(kind: type[Command], agent: DrivenAgent) -> None:
    """The agent never gets commands of that kind."""
    obey = agent.hear

    def receive(message: ControllerMessage) -> None:
        if isinstance(message, Commands):
            left = tuple(each for each in message.commands if not isinstance(each, kind))
            message = Commands(left)
        obey(message)

    agent.hear = receive  # type: ignore[method-assign]


def placed(make: MakeWorld) -> World:
    return job(make({"a": 1}))


def placed_and_run(make: MakeWorld) -> World:
    world = placed(make)
    world.run(30.0)
    return world


def no_room_in_time(make: MakeWorld) -> World:
    world = job(make({"a": 1}), resources={"cpu": 4}, scheduling_timeout=5)
    world.run(10.0)
    return world


def too_often_without_success(make: MakeWorld) -> World:
    world = make({"a": 1}, lambda start: Run(create_failure=ReasonCode.DISK_FULL))
    job(world).run(600.0)
    return world


def preparation_fails(make: MakeWorld) -> World:
    world = make({"a": 1})
    world.agent("a").prepare_failures += [ReasonCode.NO_PORTS] * 5
    with_ports(world).run(60.0)
    return world


def preparation_takes_too_long(make: MakeWorld) -> World:
    world = make({"a": 1}, prepare_timeout=5)
    deaf_to(Prepare, world.agent("a"))
    with_ports(world).run(10.0)
    return world


def creation_takes_too_long(make: MakeWorld) -> World:
    world = job(make({"a": 1}, lambda start: Run(1, creating_s=1e9), create_timeout=5))
    world.run(10.0)
    return world


def end_takes_too_long(make: MakeWorld) -> World:
    world = make(
        {"a": 1},
        lambda start: Run(1e9, stubborn=True, outlives_kill_s=math.inf),
        terminate_timeout=7,
    )
    job(world, timeout=5, grace=1).run(30.0)
    return world


def kill_that_is_never_confirmed(make: MakeWorld) -> World:
    world = make(
        {"a": 1},
        lambda start: Run(1e9, stubborn=True, outlives_kill_s=math.inf),
        terminate_timeout=10,
    )
    lasting = world.submit(JobSpec(command=["x"], grace=300))
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, lasting.id, force=True))
    world.run(60.0)
    return world


def cancelled_when_its_machine_is_proven_gone(make: MakeWorld) -> World:
    world = make({"a": 1})
    agent = world.agent("a")
    deaf_to(Prepare, agent)
    with_ports(world)
    session = world.only_session()
    world.disconnect(agent)
    world.run(60.0)

    def remove_and_cancel(work: Work, parts: Parts) -> None:
        parts[AgentRequests].remove(work, OPERATOR, agent.id, lost=True)
        parts[SessionRequests].cancel(work, ADA, session.id)

    world.ask(remove_and_cancel)
    return world


def channel_that_takes_it(make: MakeWorld) -> World:
    world = job(make({"a": 1}), notify=CHANNEL)
    world.run(5.0)
    return world


def channel_that_refuses(make: MakeWorld) -> World:
    world = make({"a": 1})
    world.channels.faults = Faults(refused=1.0)
    job(world, notify=CHANNEL).run(600.0)
    return world


def more_than_a_day_without_a_turn(make: MakeWorld) -> World:
    world = make({"a": 1})
    world.channels.faults = Faults(late_s=1e9)
    job(world, notify=[CHANNEL] * MAX_SENDING_OF_ONE)
    job(world, notify=CHANNEL).run(5.0)
    (late,) = [each for each in world.plane.live.of(Notice).values() if each.status == "PENDING"]
    late.status_changed_at -= MAX_WAIT_S
    world.run(120.0)
    return world


def machine_under_suspicion(make: MakeWorld) -> World:
    world = make({"a": 1})
    agent = world.plane.live.agents[world.agent("a").id]
    why = HealthFaultSeen(what="it hums")
    world.ask(lambda work, parts: parts[IncidentLifecycle].suspect(work, agent, "Test", why))
    world.run(5.0)
    return world


SCENARIOS: dict[Verdict, Scenario] = {
    ("ScheduleNewSessions", SchedulingResult.SUCCESS): placed,
    ("ScheduleNewSessions", SchedulingResult.EXPIRED): no_room_in_time,
    ("ScheduleNewSessions", SchedulingResult.GIVE_UP): too_often_without_success,
    ("PrepareSessions", SchedulingResult.SUCCESS): placed,
    ("PrepareSessions", SchedulingResult.NEED_RETRY): preparation_fails,
    ("PrepareSessions", SchedulingResult.GIVE_UP): preparation_fails,
    ("PrepareSessions", SchedulingResult.EXPIRED): preparation_takes_too_long,
    ("StartSessions", SchedulingResult.SUCCESS): placed,
    ("StartSessions", SchedulingResult.NEED_RETRY): too_often_without_success,
    ("StartSessions", SchedulingResult.GIVE_UP): too_often_without_success,
    ("StartSessions", SchedulingResult.EXPIRED): creation_takes_too_long,
    ("TerminateSessions", SchedulingResult.SUCCESS): cancelled_when_its_machine_is_proven_gone,
    ("TerminateSessions", SchedulingResult.NEED_RETRY): kill_that_is_never_confirmed,
    ("TerminateSessions", SchedulingResult.EXPIRED): end_takes_too_long,
    ("TerminateSessions", SchedulingResult.GIVE_UP): kill_that_is_never_confirmed,
    ("TakeTurns", SchedulingResult.SUCCESS): channel_that_takes_it,
    ("TakeTurns", SchedulingResult.EXPIRED): more_than_a_day_without_a_turn,
    ("SendNotices", SchedulingResult.SUCCESS): channel_that_takes_it,
    ("SendNotices", SchedulingResult.NEED_RETRY): channel_that_refuses,
    ("SendNotices", SchedulingResult.GIVE_UP): channel_that_refuses,
    ("CheckMachines", SchedulingResult.SUCCESS): machine_under_suspicion,
    ("PromoteToPrepared", SchedulingResult.SUCCESS): placed,
    ("PromoteToRunning", SchedulingResult.SUCCESS): placed,
    ("DetectTermination", SchedulingResult.SUCCESS): placed_and_run,
    ("PromoteToTerminated", SchedulingResult.SUCCESS): placed_and_run,
}


def gang_fails_once_it_may_run(make: MakeWorld) -> World:
    def behaviour(start: Start) -> Run:
        fails = ReasonCode.DISK_FULL if kernel_index(start) else None
        return Run(1e9, create_failure=fails, fails_at_go=True)

    world = job(make({"a": 1, "b": 1}, behaviour), tasks=2, coscheduled=True)
    world.run(600.0)
    return world


def waiting_job_is_cancelled(make: MakeWorld) -> World:
    world = make({"a": 1})
    waiting = world.submit(JobSpec.model_validate({"command": ["x"], "resources": {"cpu": 4}}))
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, waiting.id))
    return world


def cancelled_before_any_agent_has_heard_of_it(make: MakeWorld) -> World:
    world = make({"a": 1})
    with a_step_a_wake():
        spec = JobSpec(command=["x"])
        world.plane.ask(lambda work, parts: parts[JobRequests].submit(work, ADA, spec), told)
        for _ in range(10):
            if any(has_room(session) for session in world.plane.live.sessions.values()):
                break
            world.plane.step()
        (placed,) = world.plane.live.jobs
        world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, placed))
    return world


def has_room(session: Session) -> bool:
    return session.status is SessionStatus.SCHEDULED


def told(job: Job | None, error: Exception | None) -> None:
    assert job is not None, error


UNLESS: dict[TransitionStatus, Scenario] = {
    AGAIN: gang_fails_once_it_may_run,
    STOP: waiting_job_is_cancelled,
    STOP_KERNEL: cancelled_before_any_agent_has_heard_of_it,
}
"""Transitions in place of which some records take another."""


def task_that_is_placed_started_and_ended_between_two_looks_at_it(make: MakeWorld) -> World:
    world = make({"a": 1}, lambda start: Run(0.0))
    with a_step_a_wake():
        spec = JobSpec(command=["x"])
        world.plane.ask(lambda work, parts: parts[JobRequests].submit(work, ADA, spec), told)
        for _ in range(20):
            world.wake()
            world.agent("a").tick()
            world._deliver()
    return world


def task_that_runs_once_it_is_looked_at(make: MakeWorld) -> World:
    with a_step_a_wake():
        world = job(make({"a": 1}, lambda start: Run(50.0)))
    return world


def task_whose_attempt_nobody_settled(make: MakeWorld) -> World:
    world = make({"a": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SettleTasks, "_settle", lambda *_: None)
        job(world).run(100.0)
    world.restart_controller()
    world.run(1.0)
    return world


def running_job_is_cancelled(make: MakeWorld) -> World:
    world = make({"a": 1}, lambda start: Run(50.0))
    running = world.submit(JobSpec(command=["x"], tasks=2))
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, running.id))
    world.run(5.0)
    return world


def session_that_is_being_prepared_leaves_its_agent(make: MakeWorld) -> World:
    world = make({"a": 1})
    agent = world.agent("a")
    agent.online = False
    world.submit(JobSpec(command=["x"], ports=1))
    drain = partial(AgentRequests.bar, bar=AgentBar.DRAINING, leave_within_s=0.0)
    world.ask(lambda work, parts: drain(parts[AgentRequests], work, ADA, agent.id))
    world.run(1)
    return world


def drained_agent_returns_and_is_removed(make: MakeWorld) -> World:
    world = job(make({"a": 1}, lambda start: Run(creating_s=1e9), agent_silence=5))
    agent = world.agent("a")
    drain = partial(AgentRequests.bar, bar=AgentBar.DRAINING, leave_within_s=0.0)
    world.ask(lambda work, parts: drain(parts[AgentRequests], work, ADA, agent.id))
    agent.online = False
    world.run(6.0)
    world.connect(agent)
    world.run(1.0)
    world.ask(lambda work, parts: parts[AgentRequests].remove(work, ADA, agent.id))
    return world


def too_many_notices_wait(make: MakeWorld) -> World:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ends, "MAX_WAITING_OF_ONE", 0)
        world = job(make({"a": 1}), notify=CHANNEL)
        world.run(5.0)
    return world


def tasks_that_wait_and_are_to_come_are_stopped(make: MakeWorld) -> World:
    world = make({"a": 1}, lambda start: Run(2.0))
    found = world.submit(JobSpec(command=["x"], tasks=30))
    for index in (max(found.tasks), 29):

        def stop(work: Work, parts: Parts, index: int = index) -> Job:
            return parts[JobRequests].stop_task(work, ADA, found.id, index)

        world.ask(stop)
    world.run(90.0)
    return world


MOVING: list[Scenario] = [
    task_that_is_placed_started_and_ended_between_two_looks_at_it,
    task_that_runs_once_it_is_looked_at,
    task_whose_attempt_nobody_settled,
    running_job_is_cancelled,
    tasks_that_wait_and_are_to_come_are_stopped,
    drained_agent_returns_and_is_removed,
    session_that_is_being_prepared_leaves_its_agent,
    too_many_notices_wait,
]
"""Further ways for records to move."""

for path in sorted(Path(__file__).parent.glob("*_scenarios.py")):  # those of an entity
    of_entity = import_module(f"tests.control.{path.stem}")
    SCENARIOS |= getattr(of_entity, "SCENARIOS", {})
    UNLESS |= getattr(of_entity, "UNLESS", {})
    MOVING += getattr(of_entity, "MOVING", ())
