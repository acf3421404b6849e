"""How many kernels an agent may hold ahead (DESIGN section 11, "Backlog")."""

import math


def backlog_depth(
    window_s: float, mean_duration_s: float | None, running: int, limit: int = 256
) -> int:
    """Kernels of one shape to hold ahead on an agent where ``running`` of it run side by side.

    Enough to keep those slots busy for ``window_s``, and at most ``limit``. None while nothing is
    known of their duration, or when they run longer than the window: then waiting for the
    controller costs little, and a kernel held ahead might have started elsewhere sooner.
    """
    if mean_duration_s is None or running <= 0 or not 0 <= mean_duration_s <= window_s:
        return 0
    if mean_duration_s * limit <= running * window_s:  # also where the mean is 0
        return limit if window_s > 0 else 0
    return math.ceil(running * window_s / mean_duration_s)
