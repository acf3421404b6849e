"""Alarms: when to look at a record again, though nothing happens to it."""

import heapq
import math
from collections.abc import Iterator
from itertools import islice

from muster.store.entity import Record

RESOLUTION_S = 0.05


class Timers:
    """Alarms: at most one a record, rounded up to slots of RESOLUTION_S.

    Records are kept in time slots and not in a heap, so that a session that lives for a millisecond
    leaves no alarm behind that is due in two minutes.
    """

    def __init__(self) -> None:
        self._slots: dict[int, dict[Record, None]] = {}
        self._slot_of: dict[Record, int] = {}
        self._order: list[int] = []

    def set(self, record: Record, due: float | None) -> None:
        """Have the record looked at again at ``due``; None clears the alarm."""
        slot = None if due is None else math.ceil(due / RESOLUTION_S)
        old = self._slot_of.get(record)
        if slot == old:
            return
        if old is not None:
            del self._slots[old][record]
            if slot is None:
                del self._slot_of[record]
        if slot is not None:
            if slot not in self._slots:
                self._slots[slot] = {}
                heapq.heappush(self._order, slot)
            self._slots[slot][record] = None
            self._slot_of[record] = slot

    def due(self, now: float, most: int) -> Iterator[Record]:
        """The records whose alarm has passed, ``most`` of them; their alarms are cleared."""
        while most > 0 and self._order and self._order[0] * RESOLUTION_S <= now:
            slot = self._slots[self._order[0]]
            some = [*islice(slot, most)]
            for record in some:
                del slot[record], self._slot_of[record]
            if not slot:
                del self._slots[heapq.heappop(self._order)]
            most -= len(some)
            yield from some

    def next_due(self) -> float | None:
        while self._order and not self._slots[self._order[0]]:
            del self._slots[heapq.heappop(self._order)]
        return self._order[0] * RESOLUTION_S if self._order else None
