"""The tries of a record, as the engine counts them, on a toy entity (design: Tries)."""

import pytest
from tests.control.engine.conftest import MakeWorld
from tests.control.engine.toy import (
    FAILURE,
    Door,
    DoorStatus,
    OpenDoors,
    always,
    history,
)
from tests.databases import ON_BOTH

from muster.control.engine.handler import StatusTransitions, TransitionStatus
from muster.control.engine.retries import NO_LIMIT, RetryPolicy
from muster.core.reasons import Reason
from muster.core.reasons.of_kernels import WorkdirMissing

pytestmark = ON_BOTH


def test_failure_is_tried_again_later_each_time_and_given_up_at_the_limit(
    make_world: MakeWorld,
) -> None:
    tried_at: list[float] = []

    def opens(door: Door) -> Reason | str | None:
        tried_at.append(world.clock.now())
        return FAILURE

    world = make_world(OpenDoors(opens))
    began = world.clock.now()
    door = world.door("d")
    assert (door.tries, door.retry_at) == (1, began + 10.0)
    world.run(60.0)
    assert [round(at - began) for at in tried_at] == [0, 10, 30]
    assert door.status is DoorStatus.STUCK
    assert door.tries == 0, "tries belong to a phase"
    assert history(world, door) == [
        ("SHUT", "SHUT", "NEED_RETRY", 2),
        ("SHUT", "STUCK", "GIVE_UP", 1),
    ]


def test_failure_that_no_other_try_cures_is_given_up_at_once(make_world: MakeWorld) -> None:
    world = make_world(OpenDoors(always(WorkdirMissing(agent="a", detail=""))))
    door = world.door("d")
    assert history(world, door) == [("SHUT", "STUCK", "GIVE_UP", 1)]


def test_failure_that_is_declared_has_its_consequence_at_once_and_charges_no_try(
    make_world: MakeWorld,
) -> None:
    class OpenOnce(OpenDoors):
        transitions = StatusTransitions(failure=TransitionStatus(DoorStatus.STUCK))

    world = make_world(OpenOnce(always(FAILURE)))
    door = world.door("d")
    assert history(world, door) == [("SHUT", "STUCK", "FAILURE", 1)]
    assert door.tries == 0


def test_failure_is_declared_beside_no_tries() -> None:
    stuck = TransitionStatus(DoorStatus.STUCK)
    with pytest.raises(ValueError, match="beside"):
        StatusTransitions(failure=stuck, give_up=stuck)


def test_first_failures_may_be_tried_again_at_once(make_world: MakeWorld) -> None:
    world = make_world()
    door, policy = world.door("d"), RetryPolicy(NO_LIMIT, 1.0, longest_backoff_s=4.0, at_once=1)
    work = world.work()
    waits: list[float] = []
    for _ in range(5):
        assert work.charge_try(door, policy)
        waits.append(door.retry_at - work.now)
    assert waits == [0.0, 1.0, 2.0, 4.0, 4.0]
    assert not work.may_try(door)
    work.begin_try(door)
    assert (work.may_try(door), door.tries) == (True, 5), "they are its phase's"
    work.forget_tries(door)
    assert door.tries == 0


def test_try_that_is_put_off_is_charged_to_nobody(make_world: MakeWorld) -> None:
    world = make_world(handler := OpenDoors(always("waits")))
    door = world.door("d")
    work = world.work()
    work.try_later(door, work.now + 20.0)
    work.mark(door)
    world.wake(work)
    world.run(30.0)
    assert [len(asked) for asked in handler.asked] == [1, 0, 1], "then by itself"
    assert door.tries == 0


def test_tries_are_stored_with_the_record_until_they_are_forgotten(make_world: MakeWorld) -> None:
    world = make_world(OpenDoors(always(FAILURE)))
    door = world.door("d")
    world.store.reload()
    stored = world.store.live.of(Door)["d"]
    assert stored is not door
    assert (stored.tries, stored.retry_at) == (1, door.retry_at)
    work = world.work()
    work.forget_tries(stored)
    world.wake(work)
    world.store.reload()
    assert world.store.live.of(Door)["d"].tries == 0


def test_record_is_not_tried_again_before_its_time_however_often_it_is_looked_at(
    make_world: MakeWorld,
) -> None:
    world = make_world(handler := OpenDoors(always(FAILURE)))
    world.door("d")
    for _ in range(5):
        world.look("d")
    assert [asked for asked in handler.asked if asked] == [["d"]]
