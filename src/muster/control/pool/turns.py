"""Turns of slices with their providers: so few of a pool are asked about at a time that the time
for which an answer is waited for is not spent in a queue."""

from muster.control.engine.work import Work
from muster.control.pool.effects import MAX_CALLS
from muster.control.pool.records import Slice
from muster.core.states.slice import SLICE_TABLE, SliceStatus


class SliceTurns:
    """The slices of each pool about which a call is under way, and those that wait for a turn."""

    def __init__(self) -> None:
        self._asked: dict[str, set[Slice]] = {}
        self._waiting: dict[str, dict[Slice, None]] = {}

    def begin(self, slice_: Slice, work: Work) -> bool:
        """Whether it is the slice's turn; then its next effect leaves with this wake, and it has
        its turn until ``end``. If not, it is looked at again when another turn ends."""
        asked = self._asked.setdefault(slice_.pool, set())
        waiting = self._waiting.setdefault(slice_.pool, {})
        if len(asked) >= MAX_CALLS:
            waiting[slice_] = None
            return False
        asked.add(slice_)
        waiting.pop(slice_, None)
        work.begin_try(slice_)
        slice_.generation += 1
        slice_.handed_at, slice_.outcome = work.now, None
        work.unit.touch(slice_)
        return True

    def end(self, slice_: Slice, work: Work) -> None:
        """End the slice's turn, if it has one, and have the next ones looked at: the first of them
        may have to wait for something else."""
        slice_.handed_at = None
        asked = self._asked.get(slice_.pool, set())
        if slice_ not in asked:
            return
        asked.discard(slice_)
        waiting = self._waiting.get(slice_.pool, {})
        marked = 0
        while waiting and marked < MAX_CALLS:
            first = next(iter(waiting))
            del waiting[first]
            if _is_to_be_asked_about(first):
                work.mark(first)
                marked += 1


def _is_to_be_asked_about(slice_: Slice) -> bool:
    if slice_.status not in SLICE_TABLE.live:
        return False
    return slice_.doomed is not None or slice_.status is SliceStatus.REQUESTING
