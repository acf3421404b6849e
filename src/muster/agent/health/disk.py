"""The check of a disk: whether it is defective, full, or slow.

Programs can fill a disk and keep it busy, so neither is a fault of the machine. An agent whose disk
is full takes no work, and takes some again once there is room (``agent/disk.py``).
"""

import errno
import os
import tempfile
import time
from pathlib import Path

from muster.agent.health.check import CheckedMachine, PythonCheck
from muster.core.health.verdict import Finding, Severity, Verdict, verdict_of
from muster.core.text import duration

LEAST_FREE = 0.02
"""The share of a disk that has to be free, setting ``disk_free``."""
LONGEST_SYNC_S = 5.0
"""Seconds that it may take until a small file is on the disk, setting ``disk_sync_s``."""
TRIES = 3
"""Files that are written; the fastest counts, so that a moment's load is no fault."""

_BYTES = bytes(4096)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DEFECTIVE = frozenset({errno.EROFS, errno.EIO})


class DiskCheck(PythonCheck):
    """The disk under the agent's directory."""

    name = "disk"

    def look(self, machine: CheckedMachine) -> Verdict:
        directory = Path(machine.directory)
        least, longest_s = (
            machine.setting("disk_free", LEAST_FREE),
            machine.setting("disk_sync_s", LONGEST_SYNC_S),
        )
        try:
            free = _free_share(directory)
            sync_s = min(_sync_s(directory) for _ in range(TRIES))
        except OSError as error:
            what = f"nothing can be written to {directory}: {error.strerror}"
            return verdict_of(self.name, [Finding(self.name, _severity(error), what)])
        findings = []
        if free < least:
            what = f"{free:.1%} of the disk of {directory} is free, less than {least:.1%}"
            findings.append(Finding(self.name, Severity.WARNING, what, test="full"))
        if sync_s > longest_s:
            what = (
                f"a small file in {directory} is on the disk after {duration(sync_s)}, later than "
                f"{duration(longest_s)}"
            )
            severity = Severity.WARNING if machine.is_shared else Severity.UNKNOWN
            findings.append(Finding(self.name, severity, what, test="slow"))
        return verdict_of(self.name, findings)


def _severity(error: OSError) -> Severity:
    if error.errno in _FULL:
        return Severity.WARNING
    return Severity.FAULT if error.errno in _DEFECTIVE else Severity.UNKNOWN


def _free_share(directory: Path) -> float:
    found = os.statvfs(directory)
    return found.f_bavail / found.f_blocks if found.f_blocks else 1.0


def _sync_s(directory: Path) -> float:
    """Seconds until a small file is on the disk."""
    with tempfile.TemporaryFile(dir=directory, prefix="muster-check-", buffering=0) as file:
        began_s = time.monotonic()
        file.write(_BYTES)
        os.fsync(file.fileno())
        return time.monotonic() - began_s
