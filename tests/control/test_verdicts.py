"""Every verdict and every transition that a handler declares can be reached, and no other is."""

from collections.abc import Iterable, Iterator

import pytest
from tests.control.conftest import MakeWorld
from tests.control.scenarios import SCENARIOS, UNLESS, Scenario
from tests.control.world import World

from muster.control.engine.declared import SomeHandler
from muster.control.engine.handler import LifecycleHandler, PromotionHandler, TransitionStatus
from muster.control.engine.module import Context, Parts
from muster.control.engine.steps import Reached
from muster.store.entity import Record


def handlers(world: World) -> Iterator[SomeHandler]:
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
        for verdict, to in handler.transitions.declared().items()
    }


def with_alternatives(declared: Iterable[TransitionStatus]) -> set[TransitionStatus]:
    """The transitions that have an alternative, among these, the alternatives themselves, and
    those of followers."""
    found: set[TransitionStatus] = set()
    for to in declared:
        if to.followers is not None:
            found |= with_alternatives([to.followers])
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
