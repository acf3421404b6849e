"""Placements tried on a snapshot, to be kept or undone whole (source: KAI-Scheduler), so that a
gang has all of its places or none (design: Gang barrier)."""

from types import TracebackType
from typing import Any, TypeAlias

from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Bulk, Need, Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.workload import SetKey

_Undo: TypeAlias = tuple[Any, ...]
"""The former ``next_slot``, then a function and its arguments that undo a change."""
_NOTHING = Resources()


class Statement:
    """Changes that are tried on ``snapshot``, to be kept or undone.

    As a context manager it rolls back everything on leaving, even by an exception, unless ``keep``
    was called. ``mark`` and ``rollback(to)`` undo a part, such as a gang that does not fit whole,
    while earlier placements stay.

    Args:
        trial: whether the statement will never be kept; until it is left, its snapshot is marked
            ``is_trial``.
    """

    def __init__(self, snapshot: Snapshot, *, trial: bool = False) -> None:
        self.snapshot = snapshot
        self._trial = trial
        self._was_trial = snapshot.is_trial
        self._done: list[_Undo] = []

    def take(self, slot: int, request: Resources, shares: Shares = (), copies: int = 1) -> None:
        """Hold ``request`` ``copies`` times and ``shares`` once, for now.

        Raises:
            OverCapacity: the amounts are not free; nothing was taken.
        """
        snapshot = self.snapshot
        snapshot.take_at(slot, request, shares, copies)
        self._done.append((snapshot.next_slot, snapshot.untake_at, slot, request, shares, copies))
        snapshot.next_slot = slot + 1

    def give_back(self, slot: int, shares: Shares) -> None:
        """Give back devices that are held, for now."""
        snapshot = self.snapshot
        snapshot.untake_at(slot, _NOTHING, shares)
        self._done.append((snapshot.next_slot, snapshot.take_at, slot, _NOTHING, shares))

    def put(self, slot: int, need: Need, shares: Shares = (), copies: int = 1) -> None:
        """``take``, for amounts that are known to fit."""
        snapshot = self.snapshot
        columns = snapshot.columns
        columns.move_requested(slot, need.requested, shares, -copies)
        self._done.append((snapshot.next_slot, columns.move, slot, need.request, shares, copies))
        snapshot.next_slot = slot + 1

    def put_all(self, bulk: Bulk, last: int) -> None:
        """Take all of ``bulk``, which is known to fit; its last entry is in slot ``last``."""
        snapshot = self.snapshot
        snapshot.columns.move_all(bulk, -1)
        self._done.append((snapshot.next_slot, snapshot.columns.move_all, bulk))
        snapshot.next_slot = last + 1

    def join_set(self, slot: int, key: SetKey, kernels: int = 1) -> None:
        """Count ``kernels`` of a set in ``slot``, for now."""
        snapshot = self.snapshot
        snapshot.set_joined_at(slot, key, kernels)
        self._done.append((snapshot.next_slot, snapshot.set_joined_at, slot, key, -kernels))

    def mark(self) -> int:
        """The point to which a later ``rollback`` may return."""
        return len(self._done)

    def rollback(self, to: int = 0) -> None:
        """Undo all changes since the mark ``to``."""
        done = self._done
        while len(done) > to:
            self.snapshot.next_slot, undo, *arguments = done.pop()
            undo(*arguments)

    def keep(self) -> None:
        """Keep all changes."""
        assert not self._trial, "it was only to look"
        self._done.clear()

    def __enter__(self) -> "Statement":
        self.snapshot.is_trial = self._was_trial or self._trial
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.rollback()
        self.snapshot.is_trial = self._was_trial
