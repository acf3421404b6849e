"""Commits are told to the requests that wait for changes: bounded, and none is missed."""

import asyncio
from collections.abc import Callable

import pytest

from muster.api import changes
from muster.api.allowance import Allowance
from muster.api.changes import Changes
from muster.control.plane import Events
from muster.core.errors import Busy
from muster.core.owner import Owner
from muster.store.entities import ENTITIES
from muster.store.live import Live

ADA = Owner("default", "default", "ada")
BOB = Owner("default", "default", "bob")


class Plane:
    """The one thing of the control plane that is looked at."""

    live = Live(ENTITIES)

    def __init__(self) -> None:
        self.watchers: list[Callable[[Events], None]] = []

    def watch(self, callback: Callable[[Events], None]) -> Callable[[], None]:
        self.watchers.append(callback)
        return lambda: self.watchers.remove(callback)

    def commit(self, *events: tuple[str, str, str]) -> None:
        for watcher in self.watchers:
            watcher(list(events))


@pytest.fixture
def plane() -> Plane:
    return Plane()


@pytest.fixture
def followed(plane: Plane) -> Changes:
    return Changes(plane)  # type: ignore[arg-type]


async def test_bell_rings_for_its_own_only(plane: Plane, followed: Changes) -> None:
    with followed.bell(ADA, "job-1") as mine, followed.bell(ADA, "job-2") as other:
        plane.commit(("job", "job-1", "RUNNING"), ("session", "ses-1", "RUNNING"))
        assert mine.is_set()
        assert not other.is_set()


async def test_bell_for_an_end_rings_at_the_end_only(plane: Plane, followed: Changes) -> None:
    with followed.bell(ADA, "job-1/0", ends=["job-1"]) as bell:
        plane.commit(("job", "job-1", "RUNNING"), ("task", "job-1/1", "FAILED"))
        assert not bell.is_set()
        plane.commit(("job", "job-1", "KILLED"))
        assert bell.is_set()
        bell.clear()
        plane.commit(("task", "job-1/0", "ASSIGNED"))
        assert bell.is_set()


async def test_everybody_who_waits_for_the_same_is_told(plane: Plane, followed: Changes) -> None:
    with followed.bell(ADA, "job-1") as first:
        with followed.bell(ADA, "job-1") as second:
            pass
        plane.commit(("job", "job-1", "RUNNING"))
        assert first.is_set()
        assert not second.is_set(), "it no longer waits"


async def test_closing_ends_waits_and_feeds_now_and_later(plane: Plane, followed: Changes) -> None:
    with followed.bell(ADA, "job-1") as bell, followed.feed(ADA) as feed:
        feed.take()
        followed.close()
        assert bell.is_set()
        assert feed.changed.is_set()
    with followed.bell(ADA, "job-1") as late:
        assert late.is_set()
    assert plane.watchers == []


async def test_feed_begins_with_a_gap_and_keeps_the_last_of_each(
    plane: Plane, followed: Changes
) -> None:
    with followed.feed(ADA) as feed:
        assert feed.take() == (True, [])
        plane.commit(("job", "job-1", "PENDING"))
        plane.commit(("job", "job-1", "RUNNING"), ("agent", "agt-1", "LOST"))
        assert feed.take() == (False, [("job", "job-1", "RUNNING"), ("agent", "agt-1", "LOST")])
        assert feed.take() == (False, [])


async def test_feed_of_a_slow_reader_has_a_gap_instead_of_growing(
    plane: Plane, followed: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_FEED_CHANGES", 3)
    with followed.feed(ADA) as feed:
        feed.take()
        for number in range(4):
            plane.commit(("job", f"job-{number}", "RUNNING"))
        gap, kept = feed.take()
        assert gap
        assert len(kept) <= 3


async def test_too_many_waits_and_feeds_are_refused(followed: Changes) -> None:
    followed._watched = Allowance("records waited for", 3, 3)
    with followed.bell(ADA, "job-1", "job-2"):
        with pytest.raises(Busy), followed.bell(ADA, "job-3", ends=["job-4"]):
            pass
        with followed.bell(ADA, "job-3"):
            pass
    followed._waiting = Allowance("waits", 1, 1)
    followed._following = Allowance("feeds", 1, 1)
    with followed.bell(ADA, "job-1"), followed.feed(ADA):
        with pytest.raises(Busy), followed.bell(ADA, "job-2"):
            pass
        with pytest.raises(Busy), followed.feed(ADA):
            pass
    with followed.bell(ADA, "job-2"), followed.feed(ADA):
        pass


async def test_one_owner_does_not_take_all_feeds(followed: Changes) -> None:
    followed._following = Allowance("feeds", 1, 2)
    with followed.feed(ADA), followed.feed(BOB), pytest.raises(Busy), followed.feed(ADA):
        pass
    with followed.feed(ADA):
        pass


async def test_waiter_sees_a_change_that_comes_between_its_look_and_its_wait(
    plane: Plane, followed: Changes
) -> None:
    with followed.bell(ADA, "job-1") as bell:
        bell.clear()
        plane.commit(("job", "job-1", "RUNNING"))
        async with asyncio.timeout(1):
            await bell.wait()
