"""When handlers wait for the next wake: where the inputs of one fill it, or people wait for its
end."""

from collections.abc import Sequence

from muster.control.engine.coordinator import MAX_CHANGES
from muster.control.engine.inputs import Input
from muster.control.engine.work import Work
from muster.control.inbox import FEW_REQUESTS

MOST_PUT_OFF = 2
"""How many wakes in a row handlers wait. After the first such wake, inputs that came meanwhile are
taken before the handlers run."""


class PutOff:
    """Counts the wakes in a row in which handlers did not run."""

    def __init__(self) -> None:
        self._wakes = 0

    def __bool__(self) -> bool:
        """Whether handlers did not run in this wake."""
        return self._wakes > 0

    @property
    def is_most(self) -> bool:
        """Whether the next wake must be the handlers'."""
        return self._wakes >= MOST_PUT_OFF

    def forget(self) -> None:
        """Begin anew: the inputs of the last wakes are undone."""
        self._wakes = 0

    def decide(self, inputs: Sequence[Input], work: Work, *, much_waits: bool) -> bool:
        """Whether handlers wait for the next wake.

        Args:
            inputs: those that this wake has taken.
            much_waits: whether there is so much else to do that requests are answered first.
        """
        people_wait = _are_of_people(inputs)
        if people_wait:
            work.share.asked(work.now)
        is_full = work.unit.size > work.share.of(MAX_CHANGES)
        answers_first = people_wait and much_waits and not self
        may_wait = not work.must_be_whole and not work.some_end(work.dirty)
        waits = (is_full or answers_first) and may_wait
        self._wakes = self._wakes + 1 if waits else 0
        return waits


def _are_of_people(inputs: Sequence[Input]) -> bool:
    """Whether these are requests, some of people, and so few that each waits for this wake."""
    is_asked = any(item.owner is not None for item in inputs)
    return is_asked and len(inputs) <= FEW_REQUESTS and not any(item.is_kept for item in inputs)
