"""How much one wake does: the part of its bounds that fits into the time for which others may have
to wait (design: Shares)."""

LONGEST_S = 0.04
"""Processor seconds that a wake aims at."""
LONGEST_BESIDE_PEOPLE_S = 0.012
"""The same while people's requests come: each waits for the rest of one wake, and for its own."""
PEOPLE_S = 1.0
"""Seconds after a request for which people count as being there."""
FIRST, LEAST, MOST = 0.1, 0.02, 0.5
"""Parts of the bounds: at first, at least, and at most: inputs and handlers have so much each."""
GROWTH = 1.25


class WakeShare:
    """The part of the bounds on rows, records and reports that the next wake may use. It follows
    from the processor time that wakes took which used all of theirs.

    Args:
        is_measured: whether processor time is known. Where it is not, as in virtual time, a wake
            may use all of its bounds.
    """

    def __init__(self, *, is_measured: bool) -> None:
        self.part = FIRST if is_measured else 1.0
        self._is_measured = is_measured
        self._asked_at = float("-inf")

    def asked(self, now: float) -> None:
        """Note that a request of a person came."""
        self._asked_at = now

    def took(self, cost_s: float, now: float, *, was_full: bool) -> None:
        """Note the processor seconds that a wake took, and whether it left something undone."""
        if not self._is_measured:
            return
        beside_people = now < self._asked_at + PEOPLE_S
        aim_s = LONGEST_BESIDE_PEOPLE_S if beside_people else LONGEST_S
        if cost_s > aim_s:
            self.part = max(LEAST, self.part * max(aim_s / cost_s, 0.25))
        elif was_full and cost_s < aim_s / GROWTH:
            self.part = min(MOST, self.part * GROWTH)

    def of(self, bound: int) -> int:
        """The part of a bound, at least 1 of what is not 0."""
        return min(bound, max(1, round(bound * self.part)))
