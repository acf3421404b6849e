"""The engine by itself, on a toy entity: what it makes of what handlers return."""

from collections.abc import Sequence
from typing import ClassVar

import pytest
from tests.control.engine.conftest import MakeWorld
from tests.control.engine.toy import (
    FAILURE,
    Door,
    DoorLifecycle,
    DoorStatus,
    Hinge,
    HingeStatus,
    OpenDoors,
    ToyWorld,
    always,
    history,
    moved,
)
from tests.databases import ON_BOTH

from muster.control.engine.defects import LEFT_OUT_S, MAX_IN_A_ROW
from muster.control.engine.handler import (
    DerivationHandler,
    FollowingHandler,
    HandlerResult,
    PromotionHandler,
    Stage,
    StatusTransitions,
    TransitionStatus,
    Unless,
)
from muster.control.engine.races import MAX_IN_A_ROW as MAX_RACES
from muster.control.engine.races import SIT_OUT_S
from muster.control.engine.steps import PassOrder
from muster.control.engine.work import Move, Work
from muster.core.reasons import Reason
from muster.store.entity import Record

pytestmark = ON_BOTH


def test_success_moves_the_record_and_those_who_follow_it(make_world: MakeWorld) -> None:
    world = make_world(OpenDoors(always(None)))
    door = world.door("d", hinges=2)
    assert door.status is DoorStatus.OPEN
    assert [hinge.status for hinge in door.hinges] == [HingeStatus.STRAIGHT] * 2
    assert history(world, door) == [("SHUT", "OPEN", "SUCCESS", 1)]
    world.store.reload()
    stored = world.store.live.of(Door)["d"]
    assert stored.status is DoorStatus.OPEN
    assert {hinge.status for hinge in stored.hinges} == {HingeStatus.STRAIGHT}


def test_record_that_stays_too_long_is_expired(make_world: MakeWorld) -> None:
    world = make_world(OpenDoors(always("waits")))
    door = world.door("d")
    world.run(99.0)
    assert history(world, door) == []
    world.run(2.0)
    assert history(world, door) == [("SHUT", "STUCK", "EXPIRED", 1)]


def test_stale_record_goes_where_its_handler_says_and_leaves_the_mirror(
    make_world: MakeWorld,
) -> None:
    world = make_world(OpenDoors(always("stale")))
    door = world.door("d")
    assert door.status is DoorStatus.GONE
    assert history(world, door) == [("SHUT", "GONE", "STALE", 1)]
    assert not world.store.live.of(Door)


def test_refusals_of_any_record_merge(make_world: MakeWorld) -> None:
    world = make_world(OpenDoors(always("skips")))
    door = world.door("d")
    for _ in range(5):
        world.look("d")
    moved(world, door, DoorStatus.GONE)
    assert history(world, door)[0] == ("SHUT", "SHUT", "SKIPPED", 6)


def test_record_that_somebody_else_moved_is_left_alone(make_world: MakeWorld) -> None:
    world = make_world(OpenDoors(always("waits")))
    door = world.door("d")
    work = world.work()
    to = TransitionStatus(DoorStatus.OPEN)
    assert not DoorLifecycle().move_one(work, door, {DoorStatus.OPEN}, to, Move("Test"))
    assert door.status is DoorStatus.SHUT


def test_record_for_which_another_transition_is_declared_takes_that(make_world: MakeWorld) -> None:
    def is_heavy(door: Record) -> bool:
        assert isinstance(door, Door)
        return len(door.hinges) > 2

    class UnlessHeavy(OpenDoors):
        transitions: ClassVar[StatusTransitions] = StatusTransitions(
            success=TransitionStatus(
                DoorStatus.OPEN,
                TransitionStatus(HingeStatus.STRAIGHT),
                unless=Unless(is_heavy, TransitionStatus(DoorStatus.STUCK)),
            )
        )

    world = make_world(UnlessHeavy(always(None)))
    light, heavy = world.door("light", hinges=2), world.door("heavy", hinges=3)
    assert (light.status, heavy.status) == (DoorStatus.OPEN, DoorStatus.STUCK)
    assert {hinge.status for hinge in heavy.hinges} == {HingeStatus.BENT}, "they follow it alone"


def test_followers_for_which_another_transition_is_declared_take_that(
    make_world: MakeWorld,
) -> None:
    def is_rusty(hinge: Record) -> bool:
        assert isinstance(hinge, Hinge)
        return hinge.id.endswith("1")

    class UnlessRusty(OpenDoors):
        transitions: ClassVar[StatusTransitions] = StatusTransitions(
            success=TransitionStatus(
                DoorStatus.OPEN,
                TransitionStatus(
                    HingeStatus.STRAIGHT,
                    unless=Unless(is_rusty, TransitionStatus(HingeStatus.BROKEN)),
                ),
            )
        )

    world = make_world(UnlessRusty(always(None)))
    door = world.door("d", hinges=3)
    straight, broken = HingeStatus.STRAIGHT, HingeStatus.BROKEN
    assert [hinge.status for hinge in door.hinges] == [straight, broken, straight]
    assert world.lifecycle.followed == [("d-0", "BENT"), ("d-1", "BENT"), ("d-2", "BENT")]


def test_record_with_two_verdicts_gets_the_first(make_world: MakeWorld) -> None:
    class Both(OpenDoors):
        def execute(self, targets: Sequence[Door], work: Work) -> HandlerResult[Door]:
            return HandlerResult(list(targets), dict.fromkeys(targets, FAILURE))

    world = make_world(Both(always(None)))
    door = world.door("d")
    assert (door.status, door.tries) == (DoorStatus.OPEN, 0)


def test_verdict_that_is_not_declared_changes_nothing(make_world: MakeWorld) -> None:
    class Undeclared(OpenDoors):
        transitions: ClassVar[StatusTransitions] = StatusTransitions(
            success=TransitionStatus(DoorStatus.OPEN)
        )

    world = make_world(Undeclared(always(FAILURE)))
    door = world.door("d")
    assert (door.status, door.tries, world.undone) == (DoorStatus.SHUT, 0, 1)
    assert history(world, door) == [("SHUT", "SHUT", "SKIPPED", 1)], "the handler left it alone"


# -- races -----------------------------------------------------------------------------------------


def test_record_that_lost_a_race_sits_out_for_a_while_and_its_history_says_so(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    slow, quick = world.doors("slow", "quick")
    now = world.clock.now()
    assert world.races.lost(["slow"], now)
    work = world.work()
    work.tell_losers()
    assert [work.sits_out_until(each, "any") for each in (slow, quick)] == [now + SIT_OUT_S, None]
    world.wake(work)
    world.races.committed()
    assert history(world, slow) == [("SHUT", "SHUT", "SKIPPED", 1)]
    assert history(world, quick) == []

    world.clock.advance(SIT_OUT_S)
    work = world.work()
    work.tell_losers()
    assert work.sits_out_until(slow, "any") is None
    world.wake(work)
    assert history(world, slow) == [("SHUT", "SHUT", "SKIPPED", 1)], "of each race once"


def test_new_record_sits_out_once_its_wake_lost_a_second_race(make_world: MakeWorld) -> None:
    world = make_world()
    until: list[float | None] = []
    for _ in range(2):
        assert world.races.lost(["of another wake"], world.clock.now())
        work = world.work()
        door = Door(id="new", status=DoorStatus.SHUT, status_changed_at=work.now)
        work.unit.add(door)
        until.append(work.sits_out_until(door, "any"))
        world.store.reload()
    assert until == [None, world.clock.now() + SIT_OUT_S]


def test_wake_that_loses_races_again_and_again_is_not_taken_for_ever(
    make_world: MakeWorld,
) -> None:
    races = make_world().races
    taken_again = [races.lost(["d"], 0.0) for _ in range(2 * MAX_RACES)]
    assert taken_again == [True] * MAX_RACES + [False] * MAX_RACES
    races.committed()
    assert races.lost(["d"], 0.0)


# -- defects of handlers ---------------------------------------------------------------------------


def statuses(world: ToyWorld) -> dict[str, tuple[DoorStatus, set[HingeStatus]]]:
    """The doors and their hinges, as they are stored."""
    world.store.reload()
    doors = world.store.live.of(Door).items()
    return {id_: (door.status, {hinge.status for hinge in door.hinges}) for id_, door in doors}


OPENED = (DoorStatus.OPEN, {HingeStatus.STRAIGHT})
UNTOUCHED = (DoorStatus.SHUT, {HingeStatus.BENT})


def test_handler_that_raises_on_one_record_deals_with_all_others(make_world: MakeWorld) -> None:
    world = make_world(handler := OpenDoors(lambda door: "raises" if door.id == "bad" else None))
    world.doors("a", "bad", "b", hinges=1)
    assert statuses(world) == {"a": OPENED, "bad": UNTOUCHED, "b": OPENED}
    bad = world.store.live.of(Door)["bad"]
    assert bad.tries == 0, "a defect is nobody's try"
    assert history(world, bad) == [("SHUT", "SHUT", "SKIPPED", 1)]
    assert handler.asked[0] == ["a", "bad", "b"]


def test_record_on_which_a_handler_failed_is_tried_again_later(make_world: MakeWorld) -> None:
    broken = ["bad"]
    world = make_world(OpenDoors(lambda door: "raises" if door.id in broken else None))
    world.door("bad", hinges=1)
    broken.clear()
    world.look("bad")
    assert statuses(world) == {"bad": UNTOUCHED}, "not before the next sweep"
    world.clock.advance(LEFT_OUT_S)
    world.look("bad")
    assert statuses(world) == {"bad": OPENED}


class _TakeOut(DerivationHandler[Door]):
    name = "TakeOut"
    entity = Door
    statuses = frozenset({DoorStatus.SHUT})

    def derive(self, record: Door, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        return TransitionStatus(DoorStatus.GONE), None


class _TellEnds(FollowingHandler[Door]):
    name = "TellEnds"
    stage = Stage.TELL
    entity = Door
    statuses = frozenset({DoorStatus.GONE})

    def __init__(self) -> None:
        self.told: list[str] = []
        self.fails_on = "bad"

    def follow(self, record: Door, work: Work) -> None:
        if record.id == self.fails_on:
            raise ZeroDivisionError
        self.told.append(record.id)


def test_end_on_which_a_handler_fails_waits_until_that_handler_has_seen_it(
    make_world: MakeWorld,
) -> None:
    tell = _TellEnds()
    world = make_world(_TakeOut(), tell)
    world.doors("a", "bad", "b")
    assert statuses(world) == {"bad": (DoorStatus.SHUT, set())}
    tell.fails_on = ""
    world.clock.advance(LEFT_OUT_S)
    world.look("bad")
    assert statuses(world) == {}
    assert {*tell.told} == {"a", "b", "bad"}


@pytest.mark.parametrize("where", ["moved", "lead", "settled"])
def test_half_a_move_is_never_committed(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def badly(self: DoorLifecycle, work: Work, record: Door, *more: object) -> None:
        if record.id == "bad":
            raise ZeroDivisionError
        whole(self, work, record, *more)

    whole = getattr(DoorLifecycle, where)
    monkeypatch.setattr(DoorLifecycle, where, badly)
    world = make_world(OpenDoors(always(None)))
    world.doors("bad", "good", hinges=2)
    assert statuses(world) == {"bad": UNTOUCHED, "good": OPENED}


class _Broken(OpenDoors):
    """Raises wherever the engine asks about the door ``bad``."""

    def __init__(self, where: str) -> None:
        super().__init__(always("waits" if where == "timeout_s" else None))
        self._where = where

    def _fail(self, where: str, door: Door | None) -> None:
        """Raise, if it is to be done here, on the door ``bad`` or on none."""
        if where == self._where and (door is None or door.id == "bad"):
            raise ZeroDivisionError(where)

    def timeout_s(self, record: Door, work: Work) -> float | None:
        self._fail("timeout_s", record)
        return 100.0

    def gather(self, candidates: Sequence[Door], work: Work) -> Sequence[Door]:
        for door in candidates:
            self._fail("gather", door)
        return super().gather(candidates, work)

    def is_due(self, targets: Sequence[Door]) -> bool:
        if not targets:
            self._fail("is_due on none", None)
        for door in targets:
            self._fail("is_due", door)
        return bool(targets)

    def succeeded(self, record: Door, work: Work) -> None:
        self._fail("succeeded", record)


@pytest.mark.parametrize("where", ["gather", "is_due", "is_due on none", "timeout_s", "succeeded"])
def test_defect_anywhere_in_a_handler_holds_up_no_other(make_world: MakeWorld, where: str) -> None:
    seen: list[str] = []

    class Following(FollowingHandler[Door]):
        name = "Following"
        entity = Door
        statuses = frozenset(DoorStatus)

        def follow(self, record: Door, work: Work) -> None:
            seen.append(record.id)

    world = make_world(_Broken(where), Following())
    bad, _ = world.doors("bad", "good")
    assert {"bad", "good"} <= set(seen)
    stored = statuses(world)
    assert stored["bad"][0] is DoorStatus.SHUT
    if where in {"gather", "is_due", "succeeded"}:
        assert stored["good"][0] is DoorStatus.OPEN
        assert ("SHUT", "SHUT", "SKIPPED", 1) in history(world, bad)
    if where == "is_due on none":
        assert world.undone <= 4, "it rests soon"


def test_handler_that_fails_on_everything_rests_as_a_whole(make_world: MakeWorld) -> None:
    world = make_world(OpenDoors(always("raises")))
    world.doors(*(f"d{number}" for number in range(100)))
    assert world.undone == MAX_IN_A_ROW + 1
    assert {status for status, _ in statuses(world).values()} == {DoorStatus.SHUT}


# -- the other kinds -------------------------------------------------------------------------------


def test_promotion_derivation_and_following_run_in_the_order_of_their_stages(
    make_world: MakeWorld,
) -> None:
    order: list[str] = []

    class Promote(PromotionHandler[Door]):
        name = "Promote"
        entity = Door
        statuses = frozenset({DoorStatus.SHUT})
        success = TransitionStatus(DoorStatus.OPEN)

        def promotes(self, record: Door) -> bool:
            order.append(self.name)
            return True

    class Derive(DerivationHandler[Door]):
        name = "Derive"
        stage = Stage.DERIVE
        entity = Door
        statuses = frozenset({DoorStatus.OPEN})

        def derive(self, record: Door, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
            order.append(self.name)
            return TransitionStatus(DoorStatus.GONE), None

    world = make_world(Derive(), Promote())
    door = world.door("d")
    assert order == ["Promote", "Derive"]
    assert door.status is DoorStatus.GONE


def test_handler_whose_entity_has_no_lifecycle_is_refused() -> None:
    with pytest.raises(TypeError, match="OpenDoors has no lifecycle"):
        PassOrder.of([], [OpenDoors(always(None))])
