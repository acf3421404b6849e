"""The engine. It runs handlers over changed records until nothing changes, judges their results,
and looks at records again when their time is up."""

import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import attrgetter

from muster.control.engine.steps import Batch, Deadlines, HandlerStep, PassOrder
from muster.control.engine.timers import Timers
from muster.control.engine.work import Work
from muster.store.entity import Record, Tried

log = logging.getLogger(__name__)

_status_of = attrgetter("status")

MAX_PASSES = 200
"""Passes of one wake; further ones wait for the next wake, so that no loop can hold the engine. A
job of many tasks uses several: each pass may bring up the next tasks."""

MAX_CHANGES = 4_000
"""Rows that a wake writes before it leaves further work to the next wake: the commit of a large
gang's step takes as long as many wakes of other users, which are served in between."""

MAX_RECORDS = 1_000
"""Records that a wake has handlers look at because of its inputs, before further inputs wait for
the next wake. What inputs change is the smaller part: a session whose kernel ends makes two changes
by the report, and two by handlers, which all see it in one wake because it ends. No more alarms
than that are taken in one wake, either."""

MAX_LATER = 500
"""Records that a wake looks at of those for which handlers asked for a look later on: they come
beside everything else that the wake does."""


class Coordinator:
    """Runs handlers over the records that changed, again and again until none changes (design:
    Level-triggered).

    Args:
        order: all handlers in the order in which a pass runs them: the order of life, so that a
            session can go from PENDING to CREATING in one pass.
    """

    def __init__(self, order: PassOrder) -> None:
        self._steps = order.steps
        self._looking_further = [step for step in order.steps if step.looks_further]
        self._of_lifecycles = order.deadlines
        self._deadlines: dict[tuple[type, StrEnum], Sequence[Deadlines]] = {}  # of handlers, too
        self.timers = Timers()
        self._rest: tuple[Batch, Sequence[HandlerStep]] | None = None  # of a pass that was cut
        self._left: list[Record] = []  # for the next wake
        self._later: deque[Record] = deque()  # for any of the next wakes
        self._large: list[Record] = []  # for a wake without inputs

    def run(self, work: Work) -> bool:
        """Run passes until nothing changes; whether that was reached within MAX_PASSES,
        MAX_CHANGES and MAX_LATER.

        A pass that makes too many changes is cut, and goes on with its next handler in the next
        wake, so that each handler runs however many inputs come. It is not cut while a record has
        ended that some handler has not looked at since: all have to, before it leaves the mirror.
        """
        work.is_alone = self.must_be_alone
        due = () if work.is_alone else self.timers.due(work.now, work.share.of(MAX_RECORDS))
        for record in (*self._large, *self._left, *due):
            work.mark(record)
        self._large.clear()
        self._left.clear()
        seen: dict[Record, None] = {}
        most_changes = work.share.of(MAX_CHANGES)
        is_free = work.unit.size <= most_changes and not work.is_alone
        room = work.share.of(MAX_LATER) if is_free else 0
        work.most_changes = work.unit.size + most_changes
        for _ in range(MAX_PASSES):
            if self._later or work.later:
                room -= self._take_later(work, room)
            batch, steps = self._rest or (work.take_dirty(), self._steps)
            begins = self._rest is None
            if (
                begins
                and not batch
                and not any(step.is_due(work) for step in self._looking_further)
            ):
                break
            self._rest = self._pass(batch, steps, work)
            if self._rest is not None:
                break
            for records in batch.values():
                seen.update(dict.fromkeys(records))
        self._set_alarms(work, seen)
        left = work.dirty or work.later or work.large or self._later
        return not left and self._rest is None

    @property
    def must_be_alone(self) -> bool:
        """Whether the next wake must take no inputs."""
        return bool(self._large)

    def leave(self, work: Work) -> None:
        """Have the next wakes look at the records that a wake left for them."""
        for records in work.dirty.values():
            self._left += records
        self._later += work.later
        self._large += work.large

    def _take_later(self, work: Work, room: int) -> int:
        """Mark some of the records that are to be looked at later, ``room`` of them at most; the
        answer is how many."""
        self._later += work.later
        work.later.clear()
        if work.is_full:
            return 0
        taken = min(room, len(self._later))
        for _ in range(taken):
            record = self._later.popleft()
            if not work.unit.has_left(record):
                work.mark(record)
        return taken

    def _pass(
        self, batch: Batch, steps: Sequence[HandlerStep], work: Work
    ) -> tuple[Batch, Sequence[HandlerStep]] | None:
        """Run handlers over the batch until the wake is full; the answer is the batch and the steps
        that are left, if any."""
        for position, step in enumerate(steps, 1):
            if not _may_have_targets(step, batch.get(step.entity)):
                continue
            ran = step.run(batch, work)
            if not ran or work.unit.size <= work.most_changes:
                continue
            if not work.some_end(batch) and not work.some_end(work.dirty):
                return batch, steps[position:]
        return None

    def _set_alarms(self, work: Work, records: Iterable[Record]) -> None:
        for record in records:
            if type(record) in self._of_lifecycles:
                self.timers.set(record, self._next_look(record, work))

    def _next_look(self, record: Record, work: Work) -> float | None:
        """The next moment at which time alone changes something for the record."""
        moments: list[float] = [record.retry_at] if isinstance(record, Tried) else []
        for deadlines in self._deadlines_of(type(record), record.status):
            try:
                moments += deadlines(record, work)
            except Exception:  # the sweep will look at it
                log.exception("cannot tell when to look at %s", work.live.entities.name_of(record))
        return min((at for at in moments if work.now < at < math.inf), default=None)

    def _deadlines_of(self, kind: type, status: StrEnum) -> Sequence[Deadlines]:
        found = self._deadlines.get((kind, status))
        if found is None:
            timed = (step for step in self._steps if step.entity is kind and step.times(status))
            found = [self._of_lifecycles[kind], *(step.deadlines for step in timed)]
            self._deadlines[kind, status] = found
        return found


def _may_have_targets(step: HandlerStep, records: Sequence[Record] | None) -> bool:
    """Whether a handler may have something to do with these changed records of its entity: most
    handlers have not, in most passes."""
    if step.looks_further:
        return True
    if not records:
        return False
    return step.statuses is None or not step.statuses.isdisjoint(map(_status_of, records))
