"""Wakes that make more changes than one wake should."""

import pytest
from tests.control.engine.conftest import MakeWorld
from tests.control.engine.toy import DOOR_TABLE, Door, DoorLifecycle, DoorStatus, moved
from tests.databases import ON_BOTH

from muster.control.engine import coordinator
from muster.control.engine.handler import FollowingHandler, Stage, TransitionStatus
from muster.control.engine.work import Move, Work

pytestmark = ON_BOTH


class TakeOutWith(FollowingHandler[Door]):
    """Takes a door out once another one is open."""

    name = "TakeOutWith"
    entity = Door
    statuses = frozenset({DoorStatus.OPEN})

    def __init__(self, other: str) -> None:
        self._other = other

    def follow(self, record: Door, work: Work) -> None:
        to = TransitionStatus(DoorStatus.GONE)
        other = work.live.of(Door)[self._other]
        DoorLifecycle().move(work, [other], DOOR_TABLE.live, to, Move(self.name))


class TouchAll(FollowingHandler[Door]):
    """Changes more records than a wake should."""

    name = "TouchAll"
    stage = Stage.OBSERVE
    entity = Door
    statuses = frozenset(DoorStatus)

    def follow(self, record: Door, work: Work) -> None:
        for door in work.live.of(Door).values():
            work.unit.touch(door)


class LookAtEnds(FollowingHandler[Door]):
    """The last handler of a pass; ``seen`` are the doors that have ended, and are in the mirror."""

    name = "LookAtEnds"
    stage = Stage.TELL
    entity = Door
    statuses = DOOR_TABLE.terminal

    def __init__(self) -> None:
        self.seen: list[str] = []

    def follow(self, record: Door, work: Work) -> None:
        if record.id in work.live.of(Door):
            self.seen.append(record.id)


def test_all_handlers_look_at_a_record_that_ended_before_it_leaves_the_mirror(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = LookAtEnds()
    world = make_world(TouchAll(), TakeOutWith("follower"), last)
    first, leader, _ = world.doors("first", "leader", "follower")
    monkeypatch.setattr(coordinator, "MAX_CHANGES", 0)
    moved(world, first, DoorStatus.GONE)
    assert last.seen == ["first"], "a record that an input ended"
    moved(world, leader, DoorStatus.OPEN)
    world.wake()
    assert last.seen == ["first", "follower"], "a record that a handler ended"
    assert [*world.store.live.of(Door)] == ["leader"]


def test_wake_without_ends_leaves_handlers_to_the_next_one(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(TouchAll(), TakeOutWith("follower"))
    leader, follower = world.doors("leader", "follower")
    monkeypatch.setattr(coordinator, "MAX_CHANGES", 0)
    moved(world, leader, DoorStatus.OPEN)
    before = follower.status
    world.wake()
    assert (before, follower.status) == (DoorStatus.SHUT, DoorStatus.GONE)
