"""How fast this machine is at a moment, beside one of usual speed."""

import time

STEPS, USUAL_S = 100_000, 0.004
"""Steps of a loop, and the processor seconds that they take on a machine of usual speed."""
SLOWEST = 8.0
"""The times by which a machine may be slower, so that a limit says something there, too."""


def times_slower() -> float:
    """By how many times this machine is slower than usual now: from 1 to ``SLOWEST``."""
    began_s, total = time.process_time(), 0
    for step in range(STEPS):
        total += step
    slower = (time.process_time() - began_s) / USUAL_S
    return min(max(slower, 1.0), SLOWEST)
