"""Which ports the agents of this machine have reserved: who has port N has locked byte N of a file.

The file can be opened by agents of one user alone: of what everybody may take, such as names of
sockets, any kernel would take all. The locks are those of an open file, which end with the agent
however it ends; there is a file for each network namespace, as there are ports.
"""

import errno
import fcntl
import os
import stat
import struct
import tempfile
from pathlib import Path

_FLOCK = struct.Struct("hhqqi")  # type, from where, start, length, process: 0 for these locks
_SHARED_BY_ROOT = Path("/run/muster")


class PortLocks:
    """The locks of one agent."""

    def __init__(self) -> None:
        self._fd = -1
        self._held: set[int] = set()  # for a lock does not keep out who holds it

    def take(self, port: int) -> bool:
        """Lock a port; false if it is locked already.

        Raises:
            OSError: this user can have no such file.
        """
        if port in self._held:
            return False
        if self._fd < 0:
            self._fd = _open()
        try:
            self._set(port, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        self._held.add(port)
        return True

    def drop(self, port: int) -> None:
        """Give a port back; nothing if it was not locked."""
        if port in self._held:
            self._held.remove(port)
            self._set(port, fcntl.F_UNLCK)

    def close(self) -> None:
        """Give back all."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._held.clear()

    def _set(self, port: int, kind: int) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, port, 1, 0))


def _open() -> int:
    """
    Raises:
        OSError: it cannot be opened, or others could too.
    """
    directory = _directory()
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, f"{directory} must be a directory of this user alone")
    network = Path("/proc/self/ns/net").stat().st_ino
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(directory / f"ports-{network}.lock", flags, 0o600)


def _directory() -> Path:
    if os.geteuid() == 0:
        return _SHARED_BY_ROOT
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "muster"
    return Path(tempfile.gettempdir()) / f"muster-{os.geteuid()}"
