"""Committed changes, of which waiting requests are told, so that none has to poll."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from muster.api.allowance import Allowance
from muster.control.plane import ControlPlane, Events
from muster.core.owner import Owner

MAX_WAITS = 10_000
MAX_WAITS_OF_ONE = 1_000
MAX_WATCHED = 100_000
MAX_WATCHED_OF_ONE = 10_000
"""Records for which waits look: one wait may look for many."""
MAX_FEEDS = 256
MAX_FEEDS_OF_ONE = 32
MAX_FEED_CHANGES = 10_000
"""Changes that may wait for one slow reader; past them it is told to read the state anew."""


class ChangeFeed:
    """All changes, for one reader; of changes not taken yet the newest of each record is kept.

    ``gap`` says that changes are missing, as at the beginning.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._changes: dict[tuple[str, str], str] = {}
        self._gap = True

    def add(self, events: Events) -> None:
        for kind, id_, status in events:
            self._changes[kind, id_] = status
        if len(self._changes) > MAX_FEED_CHANGES:
            self._changes.clear()
            self._gap = True
        self.changed.set()

    def take(self) -> tuple[bool, Events]:
        """Whether changes are missing before these, and the changes since the last ``take``."""
        gap, changes = self._gap, self._changes
        self._gap, self._changes = False, {}
        self.changed.clear()
        return gap, [(kind, id_, status) for (kind, id_), status in changes.items()]


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    bell: asyncio.Event
    ends_only: bool


class Changes:
    """Follows the plane. ``closing`` is set when the server stops: every wait ends then."""

    def __init__(self, plane: ControlPlane) -> None:
        self.closing = asyncio.Event()
        self._ends = {
            entity.name: entity.states.terminal for entity in plane.live.entities.values()
        }
        self._waits: dict[str, set[_Wait]] = {}
        self._waiting = Allowance("waits for changes", MAX_WAITS_OF_ONE, MAX_WAITS)
        self._watched = Allowance("records waited for", MAX_WATCHED_OF_ONE, MAX_WATCHED)
        self._following = Allowance("streams of events", MAX_FEEDS_OF_ONE, MAX_FEEDS)
        self._feeds: set[ChangeFeed] = set()
        self._unwatch = plane.watch(self._committed)

    def close(self) -> None:
        """End all waits and feeds."""
        self._unwatch()
        self.closing.set()
        for waits in self._waits.values():
            for wait in waits:
                wait.bell.set()
        for feed in self._feeds:
            feed.changed.set()

    @contextmanager
    def bell(self, owner: Owner, *ids: str, ends: Collection[str] = ()) -> Iterator[asyncio.Event]:
        """An event that is set when one of ``ids`` changes, or one of ``ends`` ends; for a wait of
        the owner's.

        The waiter clears the event first and looks at the state then, so that it misses nothing.

        Raises:
            Busy: too many wait already, or for too many records, in all or of this owner's.
        """
        rung = asyncio.Event()
        if self.closing.is_set():
            rung.set()
        change, end = _Wait(rung, ends_only=False), _Wait(rung, ends_only=True)
        waits = [*((id_, change) for id_ in ids), *((id_, end) for id_ in ends)]
        with self._waiting.used(owner), self._watched.used(owner, len(waits)):
            for id_, wait in waits:
                self._waits.setdefault(id_, set()).add(wait)
            try:
                yield rung
            finally:
                for id_, wait in waits:
                    others = self._waits[id_]
                    others.discard(wait)
                    if not others:
                        del self._waits[id_]

    async def wait(self, bell: asyncio.Event, until_s: float) -> bool:
        """Wait until ``bell`` is set, or the event loop's clock shows ``until_s``. The answer is
        False, at once, if that moment is past or the server stops."""
        if self.closing.is_set() or asyncio.get_running_loop().time() >= until_s:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await bell.wait()
        return True

    @contextmanager
    def feed(self, owner: Owner) -> Iterator[ChangeFeed]:
        """All changes from now on, for a reader of the owner's.

        Raises:
            Busy: too many follow already, or too many of this owner's.
        """
        with self._following.used(owner):
            feed = ChangeFeed()
            self._feeds.add(feed)
            try:
                yield feed
            finally:
                self._feeds.discard(feed)

    def _committed(self, events: Events) -> None:
        if self._waits:
            for kind, id_, status in events:
                for wait in self._waits.get(id_, ()):
                    if not wait.ends_only or status in self._ends.get(kind, ()):
                        wait.bell.set()
        for feed in self._feeds:
            feed.add(events)
