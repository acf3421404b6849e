"""Lock files: one process has the lock of a file until it ends, however it ends."""

import fcntl
import os
from pathlib import Path


class Taken(Exception):
    """Another process holds the lock: ``holder``, None if it has not written its id yet."""

    def __init__(self, holder: int | None) -> None:
        super().__init__(f"process {holder or 'unknown'} holds the lock")
        self.holder = holder


def take(path: Path) -> int:
    """Take the lock on a file, which is made where there is none, and write this process's id into
    it. The lock lasts until the returned descriptor is closed.

    Raises:
        Taken: another process holds it.
        OSError: the file cannot be opened or written.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """The process that holds the lock on a file; None where none is known."""
    taken = _taken(path)
    return None if taken is None else taken.holder


def _taken(path: Path) -> Taken | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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
