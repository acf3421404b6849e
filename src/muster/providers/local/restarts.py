"""The waits before agents of local machines are started again."""

from dataclasses import dataclass
from pathlib import Path

FIRST_S, LONGEST_S = 5.0, 300.0
LIVED_S = 60.0
"""An agent that lived so long is started again at once."""


@dataclass(slots=True)
class _Restart:
    started_at: float
    ended_at: float | None = None
    wait_s: float = 0.0
    waited_s: float = 0.0  # for the last start


class Restarts:
    """The memory of starts: an agent that ends soon after its start waits for the next one, from
    FIRST_S doubled up to LONGEST_S. All times are seconds of one clock that never goes back."""

    def __init__(self) -> None:
        self._of: dict[Path, _Restart] = {}

    def is_due(self, machine: Path, now: float, *, is_ended: bool) -> bool:
        """Whether the agent of a machine that was looked at is to be started again."""
        known = self._of.get(machine)
        if not is_ended:
            if known is not None and known.ended_at is not None:  # another has started it
                known.started_at, known.ended_at = now, None
            return False
        if known is None:
            return True
        if known.ended_at is None:
            known.ended_at = now
            lived_s = now - known.started_at
            longer_s = min(max(FIRST_S, 2 * known.wait_s), LONGEST_S)
            known.wait_s = 0.0 if lived_s >= LIVED_S else longer_s
        return now >= known.ended_at + known.wait_s

    def start(self, machine: Path, now: float) -> tuple[float, bool]:
        """Note that a start is tried now. How long the agent waited for it, in seconds, and whether
        that is longer than for the former one."""
        known = self._of.setdefault(machine, _Restart(now))
        is_longer = known.wait_s > known.waited_s
        known.started_at, known.ended_at, known.waited_s = now, None, known.wait_s
        return known.wait_s, is_longer

    def forget_gone(self) -> None:
        """Forget the machines whose directories are gone."""
        for machine in [each for each in self._of if not each.exists()]:
            del self._of[machine]
