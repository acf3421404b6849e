"""The wait before the next try."""

import math
import random
from dataclasses import dataclass

FIRST_S = 0.1
LONGEST_S = 5.0


@dataclass(slots=True)
class Backoff:
    """A wait that doubles from ``first_s`` to ``longest_s``; each time a random part of it is
    waited for, at least half, so that many agents do not come back at once."""

    rng: random.Random
    first_s: float = FIRST_S
    longest_s: float = LONGEST_S
    tries: int = 0

    def next_s(self, at_most_s: float = math.inf) -> float:
        """The next wait, seconds; no longer than ``at_most_s``, or the first one."""
        longest_s = min(self.longest_s, max(at_most_s, self.first_s))
        ceiling_s = min(longest_s, self.first_s * 2.0 ** min(self.tries, 30))
        self.tries += 1
        return ceiling_s * self.rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        self.tries = 0
