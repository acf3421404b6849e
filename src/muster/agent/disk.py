"""Whether the agent's directory can still be written to."""

import os
from pathlib import Path

LEAST_FREE_BYTES = 1 << 20
"""With less free space neither a journal nor a log can be relied on."""


def is_full(directory: Path) -> bool:
    """Whether nothing more can be written to the directory: no room, no inodes, or mounted
    read-only. A quota of the user's is not noticed."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return True
    free = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    no_inodes = found.f_files > 0 and found.f_ffree == 0
    read_only = bool(found.f_flag & os.ST_RDONLY)
    return free * found.f_frsize < LEAST_FREE_BYTES or no_inodes or read_only
