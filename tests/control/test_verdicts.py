"""Every verdict and every transition that a handler declares can be reached, and no other is."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.control.conftest import MakeWorld
from tests.control.scenarios import SCENARIOS, UNLESS, Scenario, Verdict
from tests.control.world import World

from muster.control.engine import steps
from muster.control.engine.declared import SomeHandler
from muster.control.engine.handler import LifecycleHandler, PromotionHandler, TransitionStatus
from muster.control.engine.module import Context, Parts
from muster.control.engine.work import Move, Work
from muster.core.reasons import Reason
from muster.core.results import SchedulingResult
from muster.store.entity import Record


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> set[Verdict]:
    """The verdicts that were carried out."""
    found: set[Verdict] = set()
    apply, promote = steps._Judged._apply, steps._Promotion._move

    def judged(
        self: Any, record: Any, verdict: SchedulingResult, why: Reason | None, work: Work
    ) -> bool:
        found.add((self._handler.name, verdict))
        return apply(self, record, verdict, why, work)

    def promoted(self: Any, record: Any, to: TransitionStatus, move: Move, work: Work) -> bool:
        found.add((move.phase, move.result))
        return promote(self, record, to, move, work)

    monkeypatch.setattr(steps._Judged, "_apply", judged)
    monkeypatch.setattr(steps._Promotion, "_move", promoted)
    return found


def handlers(world: World) -> Iterator[SomeHandler]:
    """The handlers of a cluster."""
    parts = Parts()
    context = Context(world.store, world.clock, parts)
    for module in world.modules:
        has = module.declare(context)
        for part in has.offers:
            parts.add(part)
        yield from has.handlers


def declared(world: World) -> dict[Verdict, TransitionStatus]:
    """The verdicts that the handlers of a cluster declare, and what they lead to."""
    found: dict[Verdict, TransitionStatus] = {}
    for handler in handlers(world):
        match handler:
            case LifecycleHandler():
                every = handler.transitions.declared().items()
                found |= {(handler.name, verdict): to for verdict, to in every}
            case PromotionHandler():
                found[handler.name, SchedulingResult.SUCCESS] = handler.success
    return found


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
    ("verdict", "scenario"), SCENARIOS.items(), ids=lambda each: getattr(each, "__name__", each)
)
def test_declared_verdict_is_reached_and_none_besides(
    group_world: MakeWorld,
    verdict: Verdict,
    scenario: Scenario,
    reached: set[Verdict],
    caplog: pytest.LogCaptureFixture,
) -> None:
    scenario(group_world)
    assert verdict in reached
    assert not [record for record in caplog.records if record.exc_info], "no handler failed"


def test_each_declared_alternative_has_a_scenario(group_world: MakeWorld) -> None:
    assert with_alternatives(declared(group_world({})).values()) == set(UNLESS)


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
