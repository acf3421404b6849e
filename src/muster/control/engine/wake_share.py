"""How much one wake does: the part of its bounds that fits into the time for which others may have
to wait (design: Shares)."""

from collections.abc import Callable

LONGEST_S = 0.1
"""Processor seconds that a wake aims at."""
LONGEST_BESIDE_PEOPLE_S = 0.04
"""The same while people's requests come one by one: each waits for the rest of one wake."""
PEOPLE_S = 1.0
"""Seconds after a request for which people count as being there."""
FIRST, LEAST, MOST = 0.1, 0.02, 0.5
"""Parts of the bounds: at first, at least, and at most: inputs and handlers have so much each."""
GROWTH = 1.25


class WakeShare:
    """The part of the bounds on rows, records and reports that the next wake may use. It follows
    from the processor time that wakes took which used all of theirs.

    Args:
        processor_s: processor seconds of this thread so far; None where they are not known, as in
            virtual time: then a wake may use all of its bounds.
    """

    def __init__(self, processor_s: Callable[[], float | None] = lambda: None) -> None:
        self._processor_s = processor_s
        self._began_s = processor_s()
        self.part = 1.0 if self._began_s is None else FIRST
        self._asked_at = float("-inf")

    def begin(self) -> None:
        """Note that a wake begins."""
        self._began_s = self._processor_s()

    def asked(self, now: float) -> None:
        """Note that a request of a person came."""
        self._asked_at = now

    def is_beside_people(self, now: float) -> bool:
        """Whether people are taken to wait for wakes."""
        return now < self._asked_at + PEOPLE_S

    def end(self, now: float, *, was_full: bool) -> None:
        """Note that the wake has ended, and whether it left something undone."""
        ended_s = self._processor_s()
        if self._began_s is None or ended_s is None:
            return
        cost_s = ended_s - self._began_s
        aim_s = LONGEST_BESIDE_PEOPLE_S if self.is_beside_people(now) else LONGEST_S
        if cost_s > aim_s:
            self.part = max(LEAST, self.part * max(aim_s / cost_s, 0.25))
        elif was_full and cost_s < aim_s / GROWTH:
            self.part = min(MOST, self.part * GROWTH)

    def of(self, bound: int) -> int:
        """The part of a bound, at least 1 of what is not 0."""
        return min(bound, max(1, round(bound * self.part)))
