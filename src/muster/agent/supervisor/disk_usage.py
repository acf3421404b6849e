"""The size of kernels' scratch directories, measured by a process of its own.

A kernel may make its tree large, deep and changing: so the walk goes by descriptors, follows no
link, stays on its file system, and ends when it has seen enough.
"""

# os and not pathlib: see the docstring of the package.

import os
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

MAX_FILES = 1_000_000
MAX_DEPTH = 400

_BLOCK_BYTES = 512  # the unit of st_blocks
_TIME_S = 120.0  # for all trees of one measurement
_NICE = 19
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SeenEnough(Exception):
    """Raised to end the walk; the text says which limit was exceeded."""


@dataclass(slots=True)
class Walk:
    """One tree, walked until it is known to be too large."""

    limit_bytes: int
    deadline_s: float
    used_bytes: int = 0
    files: int = 0
    device: int = -1
    linked: set[int] = field(default_factory=set)  # inodes with several names, counted once

    def measure(self, path: str) -> str:
        """The fault of the tree at `path`; "" if there is none, or none was found in time."""
        try:
            folder = os.open(path, _DIRECTORY)
        except OSError:
            return ""  # the path is gone, or no directory any more
        try:
            self.device = os.fstat(folder).st_dev
            self._enter(folder, 0)
        except SeenEnough as found:
            return str(found)
        except OSError:  # out of time, or a file system that fails: others are still to be measured
            return ""
        finally:
            os.close(folder)
        return ""

    def _enter(self, folder: int, depth: int) -> None:
        """
        Raises:
            SeenEnough, TimeoutError: as they say.
        """
        if depth > MAX_DEPTH:
            raise SeenEnough(f"directories more than {MAX_DEPTH} deep")
        inner = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):  # the entry has just gone
                    if self._count(entry.stat(follow_symlinks=False)):
                        inner.append(entry.name)
        for name in inner:
            try:
                inside = os.open(name, _DIRECTORY, dir_fd=folder)
            except OSError:
                continue
            try:
                if os.fstat(inside).st_dev == self.device:
                    self._enter(inside, depth + 1)
            finally:
                os.close(inside)

    def _count(self, status: os.stat_result) -> bool:
        """Count one entry; whether it is a directory to enter."""
        directory = stat.S_ISDIR(status.st_mode)
        if status.st_nlink > 1 and not directory:
            if status.st_ino in self.linked:
                return False
            self.linked.add(status.st_ino)
        self.files += 1
        self.used_bytes += status.st_blocks * _BLOCK_BYTES
        if self.used_bytes > self.limit_bytes:
            mib = f"{self.limit_bytes / 2**20:,.1f}".removesuffix(".0")
            raise SeenEnough(f"more than {mib} MiB")
        if self.files > MAX_FILES:
            raise SeenEnough(f"more than {MAX_FILES} files")
        if self.files % 1000 == 0 and time.monotonic() > self.deadline_s:
            raise TimeoutError
        return directory


def main(arguments: Sequence[str]) -> None:
    """`LIMIT_BYTES PATH …`: print a line for each tree, empty or with its fault. Trees for which no
    time is left get no line, and are to be the first of the next measurement."""
    os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    sys.setrecursionlimit(10 * MAX_DEPTH)
    deadline_s = time.monotonic() + _TIME_S
    pairs = iter(arguments)
    for limit_bytes, path in zip(pairs, pairs, strict=True):
        if time.monotonic() > deadline_s:
            return
        found = Walk(int(limit_bytes), deadline_s).measure(path)
        os.write(1, f"{found}\n".encode())
