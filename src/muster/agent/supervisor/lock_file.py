"""Lock files: one process has the lock of a file until it ends, however it ends.

The file tells the process's id, which counts for nothing by itself: it may be that of a former
holder, whose number the system has given to another process since, or of a process in another
container. A process is taken for the holder only if it has this very file open.
"""

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.files import open_own


class Taken(Exception):
    """Another process holds the lock: ``holder``, as the file tells it, None if it does not."""

    def __init__(self, holder: int | None) -> None:
        super().__init__(f"process {holder or 'unknown'} holds the lock")
        self.holder = holder


def take(path: Path) -> int:
    """Take the lock on a file, which is made where there is none, and write this process's id into
    it. The lock lasts until the returned descriptor is closed.

    Raises:
        Taken: another process holds it.
        OSError: the file cannot be opened or written, or is not this user's alone.
    """
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        _lock(descriptor)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_held(path: Path) -> bool:
    """Whether a process holds the lock on a file, as far as this user may look."""
    return _taken(path) is not None


def holder_of(path: Path) -> int | None:
    """The process that holds the lock on a file; None where none does, or none of which this user
    can see that it does."""
    with _proven(path) as proven:
        return None if proven is None else proven[0]


def signal_holder(path: Path, signum: int, only: int | None = None) -> bool:
    """Send a signal to the process that holds the lock on a file; whether there is such a process
    that this user can see.

    Args:
        only: the process that it must be.
    """
    with _proven(path) as proven:
        if proven is None or only not in (None, proven[0]):
            return False
        with suppress(ProcessLookupError):  # it has ended just now
            signal.pidfd_send_signal(proven[1], signum)
        return True


@contextmanager
def _proven(path: Path) -> Iterator[tuple[int, int] | None]:
    """The process that holds the lock on a file, with a descriptor of it; None where there is none,
    or none of which it can be proven."""
    taken = _taken(path)
    if taken is None or taken.holder is None:
        yield None
        return
    try:
        process = os.pidfd_open(taken.holder)
    except OSError:
        yield None
        return
    try:
        # Looked at once the descriptor is open: it is of this process, and of no later one.
        yield (taken.holder, process) if _has_open(taken.holder, path) else None
    finally:
        os.close(process)


def _has_open(process: int, path: Path) -> bool:
    """Whether a process has a file open, as far as this user may look."""
    try:
        file = path.stat(follow_symlinks=False)
        descriptors = os.listdir(f"/proc/{process}/fd")  # noqa: PTH208
    except OSError:
        return False
    for descriptor in descriptors:
        with suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{process}/fd/{descriptor}"), file):  # noqa: PTH116
                return True
    return False


def _taken(path: Path) -> Taken | None:
    try:
        descriptor = open_own(path, os.O_RDWR)
    except OSError:
        return None
    try:
        _lock(descriptor)
    except Taken as taken:
        return taken
    finally:
        os.close(descriptor)
    return None


def _lock(descriptor: int) -> None:
    """
    Raises:
        Taken: another process holds the lock.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        said = os.read(descriptor, 32)
        raise Taken(int(said) if said.isdigit() else None) from None
