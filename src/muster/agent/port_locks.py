"""The ports that the agents of this machine have reserved: an agent that has a port has locked its
byte of a file.

Everybody sees in `/proc/locks` which bytes are locked. So that this tells nobody a port, a port's
byte follows from it and from a secret, which is the file's content.

Only agents of one user can open the file: if everybody could take reservations, as with names of
sockets, any kernel could take them all. The locks belong to an open file and end with the agent,
however it ends. There is a file for each network namespace, because each has ports of its own.
"""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import struct
import tempfile
from pathlib import Path

from muster.files import make_directory, write_once

_FLOCK = struct.Struct("hhqqi")  # type, from where, start, length, process: 0 for these locks
_SECRET_BYTES = 16
_OFFSET_BITS = 62
"""A file has bytes up to 2**63."""
_SHARED_BY_ROOT = Path("/run/muster")


class PortLocks:
    """The locks of one agent."""

    def __init__(self) -> None:
        self._fd = -1
        self._secret = b""
        self._held: set[int] = set()  # the file's lock does not keep out the process that has it

    def take(self, port: int) -> bool:
        """Lock a port; false if it is locked already.

        Raises:
            OSError: this user cannot have such a file.
        """
        if port in self._held:
            return False
        if self._fd < 0:
            self._fd = _open()
            self._secret = os.pread(self._fd, _SECRET_BYTES, 0)
        try:
            self._set(port, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        self._held.add(port)
        return True

    def drop(self, port: int) -> None:
        """Give a port back; nothing happens if it was not locked."""
        if port in self._held:
            self._held.remove(port)
            self._set(port, fcntl.F_UNLCK)

    def close(self) -> None:
        """Give all ports back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._held.clear()

    def _set(self, port: int, kind: int) -> None:
        lock = _FLOCK.pack(kind, os.SEEK_SET, self._byte_of(port), 1, 0)
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, lock)

    def _byte_of(self, port: int) -> int:
        digest = hashlib.blake2b(str(port).encode(), key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest) >> (64 - _OFFSET_BITS)


def _open() -> int:
    """
    Raises:
        OSError: the file cannot be opened, or other users could open it too.
    """
    directory = _directory()
    make_directory(directory)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, f"{directory} must be a directory of this user alone")
    network = Path("/proc/self/ns/net").stat().st_ino
    path = directory / f"ports-{network}.locks"
    write_once(path, secrets.token_bytes(_SECRET_BYTES))
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)


def _directory() -> Path:
    if os.geteuid() == 0:
        return _SHARED_BY_ROOT
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "muster"
    return Path(tempfile.gettempdir()) / f"muster-{os.geteuid()}"
