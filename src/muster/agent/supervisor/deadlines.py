"""The deadlines of kernels that were told to stop, or were recalled while they stood by."""

import heapq
import math
from itertools import count

from muster.agent.supervisor.kernel import OwnKernel, Status

_AWAITED = (Status.STOPPING, Status.STANDBY)


class Deadlines:
    """The stop deadlines of kernels, the earliest first. An entry whose deadline was changed
    afterwards is skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, OwnKernel]] = []
        self._tiebreak = count()

    def add(self, kernel: OwnKernel) -> None:
        """Take the kernel's `stop_deadline_s` into account from now on."""
        heapq.heappush(self._heap, (kernel.stop_deadline_s, next(self._tiebreak), kernel))

    def pop_missed(self, now_s: float) -> OwnKernel | None:
        """A kernel whose deadline has passed; None if there is none."""
        while self._heap and self._heap[0][0] <= now_s:
            kernel = heapq.heappop(self._heap)[2]
            if kernel.status in _AWAITED and kernel.stop_deadline_s <= now_s:
                return kernel
        return None

    def next_s(self) -> float:
        """The earliest deadline."""
        return self._heap[0][0] if self._heap else math.inf
