"""The times at which kernels get their limits: those of memory as soon as the supervisor knows that
they run, which may be 5 ms later if a spawner tells it; limits of cpu alone a moment after that.

Many kernels end within milliseconds; limiting their cpu would add a tenth to the cost of a start.
"""

import math
from collections import deque
from collections.abc import Callable

from muster.agent.supervisor import clock
from muster.agent.supervisor.cgroups import LimitTooLow
from muster.agent.supervisor.kernel import EndReason, OwnKernel
from muster.agent.supervisor.starter import Starter

_UNLIMITED_S = 0.005

Stop = Callable[[OwnKernel, float, EndReason, str], None]
"""Stops a kernel with so many seconds of grace, for a reason with a detail."""


class Limiter:
    """Sets the limits of kernels; a kernel whose limits cannot be set is stopped."""

    def __init__(self, starter: Starter, stop: Stop) -> None:
        self._starter = starter
        self._stop = stop
        self._waiting: deque[tuple[float, OwnKernel]] = deque()  # with the times of their limits

    def spawned(self, kernel: OwnKernel) -> None:
        """Have a spawned kernel get its limits, now or in a moment."""
        assert kernel.order is not None
        limits = kernel.order.template.limits
        if limits.memory_bytes:
            self._enforce(kernel)
        elif limits.controllers:
            self._waiting.append((clock.now_s() + _UNLIMITED_S, kernel))

    def enforce_due(self, now_s: float) -> None:
        """Set the limits of the kernels whose time has come."""
        while self._waiting and self._waiting[0][0] <= now_s:
            self._enforce(self._waiting.popleft()[1])

    def next_s(self) -> float:
        """The time at which ``enforce_due`` has something to do next."""
        return self._waiting[0][0] if self._waiting else math.inf

    def _enforce(self, kernel: OwnKernel) -> None:
        """Set the limits of a kernel unless it has ended."""
        if kernel.order is None or kernel.wait_status is not None:
            return
        try:
            self._starter.enforce(kernel, kernel.order.template)
        except LimitTooLow:
            detail = "its first process takes more memory than it asked for"
            self._stop(kernel, 0.0, EndReason.OUT_OF_MEMORY, detail)
        except OSError as error:
            detail = f"its limits cannot be set: {error}"
            self._stop(kernel, 0.0, EndReason.SUPERVISOR_LOST, detail)
