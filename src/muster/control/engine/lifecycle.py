"""An entity's rules for the engine, beside its handlers."""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import ClassVar, Generic

from muster.control.engine.handler import TransitionStatus
from muster.control.engine.retries import RetryPolicy
from muster.control.engine.work import Move, Work
from muster.core.reasons import Reason
from muster.core.reasons.of_sessions import PhaseGaveUp
from muster.store.entity import R, Record, Tried


class Lifecycle(Generic[R]):
    """One entity's declaration to the engine: what happens when its records move."""

    entity: ClassVar[type]

    def move(
        self,
        work: Work,
        records: Iterable[R],
        expected: Collection[str],
        to: TransitionStatus,
        move: Move,
    ) -> None:
        """Give the records that have an ``expected`` status their next one, and lead their
        followers. The others are left alone: somebody was faster.

        Raises:
            IllegalTransition: the entity's table does not allow the change.
        """
        for record in records:
            self.move_one(work, record, expected, to, move)

    def move_one(
        self, work: Work, record: R, expected: Collection[str], to: TransitionStatus, move: Move
    ) -> bool:
        """``move`` of one record; whether it had an ``expected`` status."""
        there = to.of(record)
        if there.status is not None:
            if not work.move(record, expected, there.status, move):
                return False
            if isinstance(record, Tried):
                work.forget_tries(record)  # they belong to the phase
            self.moved(work, record, move)
        if there.followers is not None:
            self.lead(work, record, there.followers, move)
        self.settled(work, record)
        return True

    def moved(self, work: Work, record: R, move: Move) -> None:
        """Called for a record that has just got its new status, before its followers get theirs."""

    def followers(self, record: R) -> Iterable[Record]:
        """The records whose status follows this one's, where a handler declares a status for
        them."""
        return ()

    def followers_among(self, record: R, statuses: Collection[str]) -> tuple[int, int]:
        """How many followers have one of these statuses, and how many there are."""
        followers = [each.status for each in self.followers(record)]
        return sum(status in statuses for status in followers), len(followers)

    def lead(self, work: Work, record: R, to: TransitionStatus, move: Move) -> None:
        """Give the live followers of the record the status that is declared for them."""
        unit, entities, phase = work.unit, work.live.entities, move.phase
        for each in self.followers(record):
            before, status = each.status, to.of(each).status
            if status is None or status is before:
                continue
            if unit.move(each, entities[type(each)].states.live, status, phase):
                self.follower_moved(work, each, before)

    def follower_moved(self, work: Work, follower: Record, before: StrEnum) -> None:
        """Called for a follower that has its new status, with its former one."""

    def settled(self, work: Work, record: R) -> None:
        """Called once the record and its followers have moved."""

    def deadlines(self, record: R, work: Work) -> Iterable[float]:
        """Moments at which handlers have to look at the record again although it has not changed,
        besides the ends of handlers' timeouts. Moments in the past are ignored."""
        return ()

    def retry_policy(self, record: R, work: Work) -> RetryPolicy:
        return RetryPolicy(3, 1.0)

    def final(self, reason: Reason) -> bool:
        """Whether a failure for this reason cannot be cured by another try in place."""
        return False

    def gave_up(self, phase: str, tries: int, reason: Reason) -> Reason:
        """The reason of a GIVE_UP of ``phase`` after so many tries, the last of which failed for
        ``reason``."""
        return PhaseGaveUp(phase=phase, tries=tries, how=reason.sentence())
