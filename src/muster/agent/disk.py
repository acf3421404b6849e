"""A check whether the agent's directory can still be written to."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

LEAST_FREE_BYTES = 1 << 20
"""With less free space neither a journal nor a log can be relied on."""
HANGING_S = 5.0
"""Seconds after which a check that has not returned means that the file system hangs, and cannot be
relied on."""
PATIENCE_S = 0.05
"""Seconds for which a caller waits for a new check; most checks take less than a millisecond."""

_PROBE_FILE = "disk-probe"
_PROBE = bytes(4096)


def is_full(directory: Path) -> bool:
    """Whether nothing more can be written to the directory: no room, no inodes, a used-up quota,
    mounted read-only, or defective. The call may take as long as the file system hangs."""
    try:
        found = os.statvfs(directory)
        free = found.f_bfree if os.geteuid() == 0 else found.f_bavail
        if free * found.f_frsize < LEAST_FREE_BYTES:
            return True
        probe = directory / _PROBE_FILE
        try:
            with probe.open("wb", buffering=0) as file:  # only writing shows a quota
                return file.write(_PROBE) < len(_PROBE)
        finally:
            probe.unlink(missing_ok=True)
    except OSError:
        return True


class DiskProbe:
    """Checks a disk in a thread, so that a hanging disk delays nothing, in particular not the
    heartbeats that keep kernels alive.

    Args:
        look: whether the disk is full; may hang.
    """

    def __init__(self, look: Callable[[], bool]) -> None:
        self._look = look
        self._looking: threading.Thread | None = None
        self._began_s = 0.0
        self._full = False

    def is_full(self) -> bool:
        """The result of the newest check; True too if that check hangs."""
        if self._looking is None or not self._looking.is_alive():
            self._began_s = time.monotonic()
            self._looking = threading.Thread(target=self._note, name="disk", daemon=True)
            self._looking.start()
            self._looking.join(PATIENCE_S)
        hangs = self._looking.is_alive() and time.monotonic() > self._began_s + HANGING_S
        return self._full or hangs

    def _note(self) -> None:
        self._full = self._look()
