"""Placements tried on a snapshot, to be kept or undone whole (after KAI-Scheduler's statement)."""

from types import TracebackType

from muster.core.resources import Resources
from muster.scheduling.columns import Shares
from muster.scheduling.snapshot import Snapshot


class Statement:
    """What was tried on ``snapshot`` and is not yet decided.

    As a context manager it rolls back whole on leaving, by an exception too, unless ``keep`` was
    called. A part is undone with ``mark`` and ``rollback(to)``: that is how a gang that does not
    fit whole disappears while what was placed before it stays.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._taken: list[tuple[int, Resources, Shares, int]] = []

    def take(self, slot: int, request: Resources, shares: Shares = (), copies: int = 1) -> None:
        """Hold ``request`` ``copies`` times and ``shares`` once, for now.

        Raises:
            OverCapacity: it does not fit; nothing was taken.
        """
        self.snapshot.take_at(slot, request, shares, copies)
        self._taken.append((slot, request, shares, copies))

    def mark(self) -> int:
        """The point to which a later ``rollback`` may return."""
        return len(self._taken)

    def rollback(self, to: int = 0) -> None:
        """Undo all that was taken since the mark ``to``."""
        while len(self._taken) > to:
            self.snapshot.untake_at(*self._taken.pop())

    def keep(self) -> None:
        """What was taken stays taken."""
        self._taken.clear()

    def __enter__(self) -> "Statement":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.rollback()
