"""The engine. It runs handlers over changed records until nothing changes, judges their results,
and looks at records again when their time is up."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from muster.control.engine.steps import Batch, Deadlines, Order, Step
from muster.control.engine.timers import Timers
from muster.control.engine.work import Work
from muster.store.entity import Record, Tried

log = logging.getLogger(__name__)

MAX_PASSES = 200
"""Passes of one wake; further ones wait for the next wake, so that no loop can hold the engine. A
job of many tasks uses several: each pass may bring up the next tasks."""

MAX_CHANGES = 4_000
"""Rows that a wake writes before it leaves further work to the next wake: the commit of a large
gang's step takes as long as many wakes of other users, which are served in between."""

MAX_RECORDS = 1_000
"""Records that a wake has handlers look at because of its inputs, before further inputs wait for
the next wake. What inputs change is the smaller part: a session whose kernel ends makes two changes
by the report, and two by handlers, which all see it in one wake because it ends."""


class Coordinator:
    """Runs handlers over the records that changed, again and again until none changes (design:
    Level-triggered).

    Args:
        order: all handlers in the order in which a pass runs them: the order of life, so that a
            session can go from PENDING to CREATING in one pass.
    """

    def __init__(self, order: Order) -> None:
        self._steps = order.steps
        self._of_lifecycles = order.deadlines
        self._deadlines: dict[tuple[type, StrEnum], Sequence[Deadlines]] = {}  # of handlers, too
        self.timers = Timers()
        self._rest: tuple[Batch, Sequence[Step]] | None = None  # of a pass that was cut
        self._left: list[Record] = []  # for the next wake

    def run(self, work: Work) -> bool:
        """Run passes until nothing changes; whether that was reached within MAX_PASSES and
        MAX_CHANGES.

        A pass that makes too many changes is cut, and goes on with its next handler in the next
        wake, so that each handler runs however many inputs come. It is not cut while a record has
        ended that some handler has not looked at since: all have to, before it leaves the mirror.
        """
        for record in (*self._left, *self.timers.due(work.now)):
            work.mark(record)
        self._left.clear()
        seen: dict[Record, None] = {}
        enough = work.unit.size + MAX_CHANGES
        for _ in range(MAX_PASSES):
            batch, steps = self._rest or (work.take_dirty(), self._steps)
            begins = self._rest is None
            if begins and not batch and not any(step.is_due(work) for step in steps):
                break
            self._rest = self._pass(batch, steps, work, enough)
            if self._rest is not None:
                break
            for records in batch.values():
                seen.update(dict.fromkeys(records))
        self._set_alarms(work, seen)
        return not work.dirty and self._rest is None

    def leave(self, dirty: Mapping[type, Iterable[Record]]) -> None:
        """Have the next wake look at the records that a wake left for it, by their class."""
        for records in dirty.values():
            self._left += records

    def _pass(
        self, batch: Batch, steps: Sequence[Step], work: Work, enough: int
    ) -> tuple[Batch, Sequence[Step]] | None:
        """Run handlers over the batch until the unit has ``enough`` changes; the answer is the
        batch and the steps that are left, if any."""
        for position, step in enumerate(steps, 1):
            if step.entity not in batch and not step.looks_further:
                continue
            ran = step.run(batch, work)
            if not ran or work.unit.size <= enough:
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
