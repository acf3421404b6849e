"""The order in which a pass tries the classes of a queue.

The order is by priority, the sequencer's key (``policy.sequencers``), age and id. ``queue`` has the
classes; ``cluster.order`` is an order of agents, not of work.
"""

import heapq
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from muster.core.owner import Owner
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.policy.plugins import PassContext, SessionSequencer
from muster.scheduling.workload import SessionWorkload

Rank: TypeAlias = tuple[Any, ...]
"""The rank of a session: the smallest goes first, and no two sessions have the same."""


def rank_of(session: SessionWorkload, sequencer: SessionSequencer, context: PassContext) -> Rank:
    """The rank of a session now."""
    key = sequencer.key(session, context)
    return (-session.workload.priority, *key, session.submitted_at, session.id)


_BEFORE_ALL, _AFTER_ALL = "", chr(sys.maxunicode)  # of the ids of one age


def bounds(oldest: Rank, newest: Rank) -> tuple[Rank, Rank]:
    """A lower and an upper bound for the ranks of the sessions of a class: the ranks of its oldest
    and of its newest session."""
    if newest < oldest:  # newest first, but sessions of one age by their ids
        return (*newest[:-1], _BEFORE_ALL), (*oldest[:-1], _AFTER_ALL)
    return oldest, newest


class ClassCursor:
    """A class's place in the order of a pass: that of its first session that is not decided yet."""

    __slots__ = ("_last", "_rest", "members", "rank", "session")

    def __init__(
        self, members: QueueClass, sequencer: SessionSequencer, context: PassContext
    ) -> None:
        self.members = members
        self.session: SessionWorkload | None = members.oldest
        self.rank = self._last = rank_of(members.oldest, sequencer, context)
        self._rest: Iterator[SessionWorkload] = iter(())
        if len(members) > 1:
            first, self._last = bounds(self.rank, rank_of(members.newest, sequencer, context))
            backwards = first < self.rank
            self._rest = members.newest_first() if backwards else iter(members)
            self.session = next(self._rest)
            if backwards:
                self.rank = rank_of(self.session, sequencer, context)

    def is_late(self, sequencer: SessionSequencer, context: PassContext) -> bool:
        """Whether the class ranks later than it did; if so, the cursor has the new rank now."""
        assert self.session is not None
        rank = rank_of(self.session, sequencer, context)
        if rank == self.rank:
            return False
        self.rank = rank
        return True

    def run(
        self, limit: Rank | None, most: int, sequencer: SessionSequencer, context: PassContext
    ) -> list[SessionWorkload]:
        """Take the first session, and the next ones that rank before ``limit``: at most
        ``most``."""
        assert self.session is not None
        run = [self.session]
        if limit is None or self._last < limit:
            run += islice(self._rest, most - 1)
        self.session = next(self._rest, None)
        while self.session is not None:
            self.rank = rank_of(self.session, sequencer, context)
            if len(run) >= most or (limit is not None and self.rank >= limit):
                break
            run.append(self.session)
            self.session = next(self._rest, None)
        return run


class ClassOrder:
    """The classes of a queue in the order of a pass, each as its cursor.

    The key of a ``dynamic`` sequencer may grow as its owner's sessions are placed, and never gets
    smaller in a pass: a cursor that comes up with a grown key goes back to its new place. Where the
    key is the owner's, only the first of an owner's classes at a priority takes part, so that a
    placement moves one cursor and not all of them.
    """

    def __init__(
        self, classes: Iterable[QueueClass], sequencer: SessionSequencer, context: PassContext
    ) -> None:
        self._sequencer = sequencer
        self._context = context
        cursors = [ClassCursor(members, sequencer, context) for members in classes]
        self._behind: dict[_Lane, list[tuple[Rank, ClassCursor]]] | None = None
        if sequencer.by_owner:
            lanes: dict[_Lane, list[tuple[Rank, ClassCursor]]] = {}
            for cursor in cursors:
                lanes.setdefault(_lane(cursor), []).append((_age(cursor), cursor))
            for lane in lanes.values():
                heapq.heapify(lane)
            self._behind = lanes
            cursors = [heapq.heappop(lane)[1] for lane in lanes.values()]
        self._heap = [(cursor.rank, cursor) for cursor in cursors]
        heapq.heapify(self._heap)

    @property
    def next_rank(self) -> Rank | None:
        """The rank of the cursor that ``pop`` would answer; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def pop(self) -> ClassCursor | None:
        """The next cursor; None if none is left."""
        heap, sequencer, context = self._heap, self._sequencer, self._context
        while heap:
            _, cursor = heapq.heappop(heap)
            if not (sequencer.dynamic and cursor.is_late(sequencer, context)):
                return cursor
            heapq.heappush(heap, (cursor.rank, cursor))
        return None

    def put_back(self, cursor: ClassCursor, *, again: bool) -> None:
        """Put back the cursor of a class that was decided about.

        Args:
            again: whether the class has more sessions to try.
        """
        if self._behind is not None:
            lane = self._behind[_lane(cursor)]
            if again:
                heapq.heappush(lane, (_age(cursor), cursor))
            again = bool(lane)
            if again:
                _, cursor = heapq.heappop(lane)
                cursor.is_late(self._sequencer, self._context)
        if again:
            heapq.heappush(self._heap, (cursor.rank, cursor))


_Lane: TypeAlias = tuple[Owner, int]
"""An owner and a priority: the keys of its turns are equal, so they go by age."""


def _lane(cursor: ClassCursor) -> _Lane:
    workload = cursor.members.workload
    return workload.owner, workload.priority


def _age(cursor: ClassCursor) -> Rank:
    return cursor.rank[-2:]
