"""How often something is tried, and the waits between the tries (design: Tries)."""

import math
import sys
from dataclasses import dataclass

from muster.core.reasons import Reason
from muster.core.reasons.of_sessions import RetryBackoff
from muster.store.entity import Tried

NO_LIMIT = sys.maxsize
"""The ``max_tries`` of what is never given up."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The tries of a phase, and the wait after each that fails.

    Args:
        max_tries: failed tries after which the phase is given up.
        backoff_s: the first wait, which doubles with each further failure up to
            ``longest_backoff_s``.
        at_once: how many failures are followed by a try without a wait, before the first wait.
    """

    max_tries: int
    backoff_s: float
    longest_backoff_s: float = 60.0
    at_once: int = 0

    def delay_s(self, tries: int) -> float:
        """The wait after so many failed tries, at least one."""
        waits = tries - self.at_once
        if waits <= 0:
            return 0.0
        return min(self.backoff_s * 2.0 ** min(waits - 1, 64), self.longest_backoff_s)


def wait_for_next_try(record: Tried, now: float) -> list[Reason]:
    """The reason that a record tells while its next try is ahead, if one is."""
    if record.retry_at <= now:
        return []
    return [RetryBackoff(seconds=seconds_left(record, now))]


def seconds_left(record: Tried, now: float) -> float:
    """The wait for the next try in tenths of a second, rounded up, so that no try that has not come
    is said to be in 0 s."""
    return math.ceil((record.retry_at - now) * 10) / 10
