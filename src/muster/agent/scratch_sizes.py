"""The sizes of the scratch directories that ended kernels left."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from muster.agent.retention import IsLive, Leftovers
from muster.agent.supervisor.disk_usage import Walk
from muster.wire.messages import KernelKey

LOOK_S = 5.0
"""Seconds of one look in which directories are measured; the rest waits for the next one."""
AGAIN_S = 3600.0
"""Seconds after which a directory is measured again: kernels of its user may still write there."""


class ScratchSize(NamedTuple):
    """A size, and when it was measured, in seconds of the monotonic clock."""

    used_bytes: int
    at_s: float


class ScratchSizes:
    """Remembers sizes, because to measure a large tree takes long."""

    def __init__(self) -> None:
        self._known: dict[KernelKey, ScratchSize] = {}

    def measure(self, leftovers: Leftovers, is_live: IsLive) -> None:
        """Set ``scratch_bytes`` of what kernels left, as far as it is known. Those measured never,
        or longest ago, are measured first, until the time of a look is over."""
        ended = {key for key, each in leftovers.items() if each.scratch and not is_live(key)}
        self._known = {key: known for key, known in self._known.items() if key in ended}
        now_s = time.monotonic()
        until_s = now_s + LOOK_S
        due = [key for key in ended if self._measured_s(key) <= now_s - AGAIN_S]
        for key in sorted(due, key=self._measured_s):
            if now_s >= until_s:
                break
            used_bytes = _used_bytes(leftovers[key].scratch, until_s)
            now_s = time.monotonic()
            self._known[key] = ScratchSize(used_bytes, now_s)
        for key, known in self._known.items():
            leftovers[key].scratch_bytes = known.used_bytes

    def _measured_s(self, key: KernelKey) -> float:
        known = self._known.get(key)
        return -float("inf") if known is None else known.at_s


def _used_bytes(scratch: Iterable[Path], until_s: float) -> int:
    """The space that trees take; of one that cannot be measured in time, what was seen of it."""
    total = 0
    for path in scratch:
        walk = Walk(sys.maxsize, until_s)
        walk.measure(str(path))
        total += walk.used_bytes
    return total
