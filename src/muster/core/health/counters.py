"""The counters of a GPU that its agent tells unasked: means over an interval (source: NVML)."""

from dataclasses import dataclass

MOST_BUSY = 100.0
MOST_CLOCK_MHZ = 100_000.0
MOST_POWER_W = 100_000.0
"""Values above these are no GPU's."""


@dataclass(frozen=True, slots=True)
class GpuMeans:
    """The means of one GPU, by its index on its machine; None stands for a counter that its driver
    does not tell.

    ``busy`` is the part of the time, in percent, in which something was executed on it,
    ``clock_mhz`` the clock of its processors, ``power_w`` the power that it drew.
    """

    device: int
    busy: float | None = None
    clock_mhz: float | None = None
    power_w: float | None = None

    @property
    def is_plausible(self) -> bool:
        """Whether a GPU can have such values."""
        limits = (
            (self.busy, MOST_BUSY),
            (self.clock_mhz, MOST_CLOCK_MHZ),
            (self.power_w, MOST_POWER_W),
        )
        return all(value is None or 0.0 <= value <= most for value, most in limits)

    @property
    def is_empty(self) -> bool:
        return self.busy is None and self.clock_mhz is None and self.power_w is None
