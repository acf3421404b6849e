"""Time for deadlines: seconds since boot, including time asleep.

Leases must run out even while the machine is suspended, because the controller's clock goes on; the
monotonic clock stops then. /proc tells the start times of processes by the same clock.
"""

import os
import time

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def now_s() -> float:
    """Seconds since boot, including time asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def ticks(boot_s: float) -> int:
    """A moment in the unit of the start times in /proc/<pid>/stat."""
    return int(boot_s * _TICKS_PER_S)
