"""Every verdict and every transition that a handler declares can be reached, and no other is."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from tests.control.conftest import MakeWorld
from tests.control.fake_agent import FakeAgent, kernel_index
from tests.control.world import ADA, World

from muster.control.engine.handler import (
    Handler,
    LifecycleHandler,
    PromotionHandler,
    TransitionStatus,
)
from muster.control.engine.module import Context, Parts
from muster.control.engine.steps import Reached, Verdict
from muster.control.job.requests import JobRequests
from muster.control.notice.entity import Notice
from muster.control.notice.hollow import Faults
from muster.control.notice.lifecycle import MAX_WAIT_S
from muster.control.notice.turns import MAX_SENDING_OF_ONE
from muster.control.session.lifecycle import AGAIN, STOP
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, SessionSpec
from muster.simulate.hollow.supervisor import Run
from muster.store.entity import Record
from muster.wire.messages import Command, Commands, ControllerMessage, Prepare, Start

CHANNEL = "json://hooks.example/token"
Scenario = Callable[[MakeWorld], World]


def job(world: World, **fields: Any) -> World:
    world.submit(JobSpec.model_validate({"command": ["x"], **fields}))
    return world


def with_ports(world: World) -> World:
    """The world with a session whose kernel has ports, and so needs preparation."""
    kernel = {"command": ["x"], "ports": 1}
    world.submit_session(SessionSpec.model_validate({"kernels": [kernel]}))
    return world


def deaf_to(kind: type[Command], agent: FakeAgent) -> None:
    """The agent never gets commands of that kind."""
    obey = agent.receive

    def receive(message: ControllerMessage) -> None:
        if isinstance(message, Commands):
            left = tuple(each for each in message.commands if not isinstance(each, kind))
            message = Commands(left)
        obey(message)

    agent.receive = receive  # type: ignore[method-assign]


def placed(make: MakeWorld) -> World:
    return job(make({"a": 1}))


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
    world = make({"a": 1}, lambda start: Run(1e9, stubborn=True), terminate_timeout=5)
    job(world, timeout=5, grace=1).run(30.0)
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


SCENARIOS: dict[Reached, Scenario] = {
    ("ScheduleNewSessions", Verdict.SUCCESS): placed,
    ("ScheduleNewSessions", Verdict.EXPIRED): no_room_in_time,
    ("ScheduleNewSessions", Verdict.GIVE_UP): too_often_without_success,
    ("PrepareSessions", Verdict.SUCCESS): placed,
    ("PrepareSessions", Verdict.NEED_RETRY): preparation_fails,
    ("PrepareSessions", Verdict.GIVE_UP): preparation_fails,
    ("PrepareSessions", Verdict.EXPIRED): preparation_takes_too_long,
    ("StartSessions", Verdict.SUCCESS): placed,
    ("StartSessions", Verdict.NEED_RETRY): too_often_without_success,
    ("StartSessions", Verdict.GIVE_UP): too_often_without_success,
    ("StartSessions", Verdict.EXPIRED): creation_takes_too_long,
    ("TerminateSessions", Verdict.EXPIRED): end_takes_too_long,
    ("TakeTurns", Verdict.SUCCESS): channel_that_takes_it,
    ("TakeTurns", Verdict.EXPIRED): more_than_a_day_without_a_turn,
    ("SendNotices", Verdict.SUCCESS): channel_that_takes_it,
    ("SendNotices", Verdict.NEED_RETRY): channel_that_refuses,
    ("SendNotices", Verdict.GIVE_UP): channel_that_refuses,
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


UNLESS: dict[TransitionStatus, Scenario] = {
    AGAIN: gang_fails_once_it_may_run,
    STOP: waiting_job_is_cancelled,
}
"""Transitions in place of which some records take another."""


def handlers(world: World) -> Iterator[Handler[Any]]:
    """The handlers of a cluster."""
    parts = Parts()
    context = Context(world.store, world.clock, parts)
    for module in world.modules:
        has = module.declare(context)
        for part in has.offers:
            parts.add(part)
        yield from has.handlers


def declared(world: World) -> dict[Reached, TransitionStatus]:
    """The verdicts that the handlers of a cluster declare, and what they lead to."""
    return {
        (handler.name, verdict): to
        for handler in handlers(world)
        if isinstance(handler, LifecycleHandler)
        for verdict in Verdict
        if (to := getattr(handler.transitions, verdict)) is not None
    }


def with_alternatives(declared: Iterable[TransitionStatus]) -> set[TransitionStatus]:
    """The transitions that have an alternative, and the alternatives that have one themselves."""
    found: set[TransitionStatus] = set()
    for to in declared:
        if to.unless is not None:
            found |= {to, *with_alternatives([to.unless.to])}
    return found


def test_each_declared_verdict_has_a_scenario(group_world: MakeWorld) -> None:
    assert set(declared(group_world({}))) == set(SCENARIOS)


@pytest.mark.parametrize(
    ("reached", "scenario"), SCENARIOS.items(), ids=lambda each: getattr(each, "__name__", each)
)
def test_declared_verdict_is_reached_and_none_besides(
    group_world: MakeWorld,
    reached: Reached,
    scenario: Scenario,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = scenario(group_world)
    assert world.plane._coordinator.reached[reached]
    assert not [record for record in caplog.records if record.exc_info], "no handler failed"


def test_each_declared_alternative_has_a_scenario(group_world: MakeWorld) -> None:
    world = group_world({})
    promotions = [each.success for each in handlers(world) if isinstance(each, PromotionHandler)]
    assert with_alternatives([*declared(world).values(), *promotions]) == set(UNLESS)


@pytest.mark.parametrize(
    ("to", "scenario"), UNLESS.items(), ids=lambda each: getattr(each, "__name__", "")
)
def test_declared_alternative_is_taken(
    group_world: MakeWorld,
    to: TransitionStatus,
    scenario: Scenario,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = set[TransitionStatus]()

    def of(self: TransitionStatus, record: Record) -> TransitionStatus:
        other = apply(self, record)
        if other is not self:
            taken.add(self)
        return other

    apply = TransitionStatus.of
    monkeypatch.setattr(TransitionStatus, "of", of)
    scenario(group_world)
    assert to in taken
