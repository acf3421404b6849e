"""The identity of a supervisor's process, so that a controller on the same machine can tell when it
is gone.

A lease without an end lasts as long as the supervisor lives: a controller that sees that it has
ended, and that it left no kernel behind, need not wait for anything.
"""

import os
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from pathlib import Path

from muster.agent.supervisor.process_tree import ID_VARIABLE, all_processes, read_stat, user_of

_PID_NAMESPACE = Path("/proc/self/ns/pid")


def identify(pid: int) -> str:
    """A text that distinguishes the process from all others of this boot; empty if it has ended."""
    stat, user = read_stat(pid), user_of(pid)
    if stat is None or user is None:
        return ""
    return f"{_PID_NAMESPACE.stat().st_ino}:{user}:{pid}:{stat.start_ticks}"


def is_gone(supervisor: str, kernels: Collection[str]) -> bool:
    """Whether the process that ``identify`` described has ended, and no process of these kernels is
    left. False where that cannot be seen: in another container, or as another user.

    Raises:
        OSError: /proc cannot be read.
    """
    try:
        namespace, user, pid, start_ticks = map(int, supervisor.split(":"))
    except ValueError:
        return False
    if _PID_NAMESPACE.stat().st_ino != namespace or os.geteuid() not in (0, user):
        return False
    stat = read_stat(pid)
    if stat is not None and stat.start_ticks == start_ticks and stat.state not in ("Z", "X"):
        return False
    tags = {f"{ID_VARIABLE}={kernel}".encode() for kernel in kernels}
    later = (each for each in all_processes() if each.start_ticks >= start_ticks)
    return not any(_may_have(tags, each.pid) for each in later)


def _may_have(tags: AbstractSet[bytes], pid: int) -> bool:
    """Whether one of the tags may be in the environment of the process."""
    try:
        return not tags.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except PermissionError:
        return os.geteuid() == 0  # else the process is another user's, and kernels are of one's own
    except (FileNotFoundError, ProcessLookupError):
        return False
