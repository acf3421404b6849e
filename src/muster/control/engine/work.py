"""One wake's work: the unit that will be committed, and the effects that are performed
afterwards."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar, cast

from muster.control.engine.defects import Defects
from muster.control.engine.effects import ORDERS
from muster.control.engine.races import Races
from muster.control.engine.retries import RetryPolicy
from muster.control.engine.wake_share import WakeShare
from muster.core.ids import IdFactory
from muster.core.owner import Principal
from muster.core.reasons import Reason
from muster.core.reasons.of_sessions import RoomTakenMeanwhile
from muster.core.results import SchedulingResult
from muster.store.entity import Record, Tried
from muster.store.unit import Unit

T = TypeVar("T")

COMMIT_PHASE = "Commit"
"""The phase in history of a record that was not as the commit expected."""


class Move(NamedTuple):
    """Why records move: the phase that moves them, its result, and the reason."""

    phase: str
    result: SchedulingResult = SchedulingResult.SUCCESS
    reason: Reason | None = None


class Work:
    """The wake as handlers see and fill it.

    ``dirty`` are the records that the next pass looks at, in the order in which they were marked;
    ``effects`` are performed once the unit is committed, never before (design: Commit before
    effect). ``asker`` is who asked for the change that is being made, None for the controller
    itself. ``must_be_whole`` says that all handlers have to run before the commit, however many
    changes there are already. ``races`` are the races that records lost of late, and ``defects``
    the handlers that failed. ``share`` is the part of its bounds that the wake may use. ``later``
    are records that handlers look at some at a time, in this
    wake and in further ones (``look_later``), and ``large`` those that they look at in a wake
    without inputs, which ``is_alone`` (``look_alone``).
    """

    def __init__(
        self,
        unit: Unit,
        ids: IdFactory,
        races: Races | None = None,
        defects: Defects | None = None,
        share: WakeShare | None = None,
    ) -> None:
        self.unit = unit
        self.live = unit.live
        self.ids = ids
        self.races = races or Races()
        self.defects = defects or Defects()
        self.share = share or WakeShare()
        self.now = unit.now
        self.effects: dict[type, list[object]] = {}
        self.asker: Principal | None = None
        self.must_be_whole = False
        self.later: list[Record] = []
        self.large: list[Record] = []
        self.is_alone = False
        self.most_changes: float = math.inf
        self.dirty: defaultdict[type, dict[Record, None]] = defaultdict(dict)
        self._wholes = unit.live.entities.wholes
        self._once: dict[Callable[[], object], object] = {}

    def once(self, make: Callable[[], T]) -> T:
        """The result of ``make``, which is called once a wake, for things that many records
        share."""
        if make not in self._once:
            self._once[make] = make()
        return cast(T, self._once[make])

    def mark(self, record: Record) -> None:
        """Have the next pass look at the record and at the record of which it is a part, unless the
        latter has left the mirror, after handlers have seen its end."""
        marked = self.dirty[type(record)]
        if record in marked:
            return  # as is the record of which it is a part
        marked[record] = None
        whole_of = self._wholes.get(type(record))
        whole = None if whole_of is None else whole_of(record)
        if whole is not None and not self.unit.has_left(whole):
            self.dirty[type(whole)][whole] = None

    def look_later(self, records: Iterable[Record]) -> None:
        """Have handlers look at the records soon, a bounded number a wake: there may be so many
        that to change all of them at once would delay everybody. The control plane forgets them
        when it reads its mirror again, so what is to be done with them must follow from their
        state: then handlers look at every record."""
        self.later += records

    def look_alone(self, record: Record) -> None:
        """Have handlers look at the record in the next wake, which takes no inputs and does nothing
        else: what follows is as much as one wake should do."""
        self.large.append(record)

    @property
    def is_full(self) -> bool:
        """Whether so many changes were made that the wake should end (see ``Coordinator.run``)."""
        return self.unit.size > self.most_changes

    @property
    def marked(self) -> int:
        """The number of records that the next pass looks at."""
        return sum(map(len, self.dirty.values()))

    def some_sit_out(self, handler: str) -> bool:
        """Whether ``sits_out_until`` may name a moment for some record."""
        return self.races.any(self.now) or self.defects.leaves_some_out(handler, self.now)

    def sits_out_until(self, record: Record, handler: str) -> float | None:
        """The moment until which the handler leaves the record alone, because the record lost a
        race at a commit, or the handler failed on it; None if it does not."""
        name, is_new = self.live.entities.name_of(record), self.unit.is_new(record)
        raced = self.races.until(name, self.now, is_new=is_new)
        failed = self.defects.until(handler, name, self.now, is_new=is_new)
        return max((until for until in (raced, failed) if until is not None), default=None)

    def chain(self, record: Record) -> list[tuple[str, bool]]:
        """The name of the record and whether this wake made it; then the same of the record that it
        is part of, and so on."""
        found: list[tuple[str, bool]] = []
        next_: Record | None = record
        while next_ is not None:
            found.append((self.live.entities.name_of(next_), self.unit.is_new(next_)))
            whole_of = self._wholes.get(type(next_))
            next_ = None if whole_of is None else whole_of(next_)
        return found

    def tell_losers(self) -> None:
        """If the last wake lost a race, note that in the history of the records that sit out."""
        why = RoomTakenMeanwhile()
        for name in self.races.to_tell():
            record = self.live.find(name)
            if record is not None:
                self.unit.note(record, COMMIT_PHASE, SchedulingResult.SKIPPED, why)
                self.mark(record)

    def some_end(self, records: Mapping[type, Iterable[Record]]) -> bool:
        """Whether some of the records have ended, and leave the mirror with the commit. Handlers
        that follow such a record have to run before, because nobody finds it afterwards.

        Args:
            records: by their class.
        """
        return any(
            record.status in entity.states.terminal
            for kind, some in records.items()
            if not (entity := self.live.entities[kind]).goes_with
            for record in some
        )

    def take_dirty(self) -> dict[type, list[Record]]:
        dirty, self.dirty = self.dirty, defaultdict(dict)
        return {kind: list(records) for kind, records in dirty.items()}

    def move(self, record: Record, expected: Collection[str], to: StrEnum, move: Move) -> bool:
        """Have the record move, see ``Unit.move``, and mark it; whether it moved. An entity's
        lifecycle, if it has one, is asked instead."""
        moved = self.unit.move(record, expected, to, move.phase, move.result, move.reason)
        if moved:
            self.mark(record)
        return moved

    # -- tries (design: Tries) -----------------------------------------------------------------

    def charge_try(self, record: Tried, policy: RetryPolicy) -> bool:
        """Charge the record a failed try of its phase. The answer is whether the policy grants
        another, which may begin after the policy's wait."""
        record.tries += 1
        self.unit.touch(record)
        if record.tries >= policy.max_tries:
            return False
        record.retry_at = self.now + policy.delay_s(record.tries)
        return True

    def try_later(self, record: Tried, at: float) -> None:
        """Have the next try of the record begin at this moment; no try is charged."""
        if record.retry_at != at:
            record.retry_at = at
            self.unit.touch(record)

    def may_try(self, record: Tried) -> bool:
        """Whether the time of the record's next try has come, or none is set."""
        return record.retry_at <= self.now

    def begin_try(self, record: Tried) -> None:
        """Take note that the record's next try begins; no time is set for another."""
        self.try_later(record, 0.0)

    def forget_tries(self, record: Tried) -> None:
        """Have the record's tries begin at zero, because its phase is over."""
        if record.tries or record.retry_at:
            record.tries, record.retry_at = 0, 0.0
            self.unit.touch(record)

    def emit(self, effect: object) -> None:
        """Add an effect, to be performed after the commit: see ``engine.effects``."""
        self.effects.setdefault(type(effect), []).append(effect)
        if type(effect) in ORDERS:
            self.unit.is_ordered = True

    def effects_of(self, kind: type[T]) -> Sequence[T]:
        """The effects of this class, in the order in which they were emitted."""
        return cast(Sequence[T], self.effects.get(kind, ()))
