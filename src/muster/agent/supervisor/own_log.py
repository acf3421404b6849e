"""The log of a process is its standard error; if that is a file, its size is bounded."""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH104, PTH115, PTH116

import os
import stat
from contextlib import suppress

MAX_LOG_BYTES = 16 << 20
_ASIDE = ".1"


def rotate_stderr(limit_bytes: int = MAX_LOG_BYTES) -> None:
    """Once standard error is a file of that length, put it aside, in place of the former one, and
    begin another; two files are kept. Standard output follows if it was the same file.

    If that fails the file goes on growing, because a failure of its log must not end a process.
    """
    with suppress(OSError):
        now = os.fstat(2)
        if not stat.S_ISREG(now.st_mode) or now.st_size < limit_bytes:
            return
        # Another process that writes there may have put it aside already.
        path = os.readlink("/proc/self/fd/2").removesuffix(_ASIDE)
        if os.path.samestat(os.stat(path, follow_symlinks=False), now):
            os.rename(path, path + _ASIDE)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fresh = os.open(path, flags, 0o600)
        if os.path.samestat(os.fstat(1), now):
            os.dup2(fresh, 1)
        os.dup2(fresh, 2)
        os.close(fresh)
