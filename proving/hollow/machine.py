"""A machine: its clocks and its boots."""

from proving.hollow.virtual_clock import VirtualClock


class Machine:
    """A machine under an agent.

    Attributes:
        boot_id: of its present boot.
        booted_at: the controller's time at which that began.
        clock_ahead_s: by how much its time of day is ahead of the controller's.
    """

    def __init__(self, name: str, clock: VirtualClock) -> None:
        self.name = name
        self.clock_ahead_s = 0.0
        self._clock = clock
        self._boots = 0
        self.reboot()

    @property
    def time_s(self) -> float:
        """Its time of day, in seconds since the epoch."""
        return self._clock.now() + self.clock_ahead_s

    @property
    def boot_s(self) -> float:
        """Its boot clock, which runs while the machine is suspended."""
        return self._clock.now() - self.booted_at

    def now(self) -> float:
        """The controller's time."""
        return self._clock.now()

    def moment_of(self, boot_s: float) -> float:
        """The controller's time at a moment of the boot clock."""
        return self.booted_at + boot_s

    def reboot(self) -> None:
        """It begins to boot now."""
        self._boots += 1
        self.boot_id = f"{self.name}-boot-{self._boots}"
        self.booted_at = self._clock.now()
