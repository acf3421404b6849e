"""The clock of a hollow world, and of tests."""


class VirtualClock:
    """Time that moves only when told to."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self._now_s = start_s
        self.suspended_s = 0.0

    def now(self) -> float:
        return self._now_s

    def boot_s(self) -> float:
        return self._now_s + self.suspended_s

    def processor_s(self) -> float | None:
        return None

    def advance(self, seconds: float) -> None:
        """Move time forward.

        Raises:
            ValueError: ``seconds`` is negative; time never steps back.
        """
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._now_s += seconds

    def advance_to(self, moment_s: float) -> None:
        """Move time to ``moment_s``, or leave it where it is if that moment has passed."""
        self._now_s = max(self._now_s, moment_s)
