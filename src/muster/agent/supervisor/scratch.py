"""Scratch directories: where a kernel without a workdir runs, and its files.

Making and removing a directory costs 80 us on ext4, a quarter of a whole /bin/true; renaming one
costs 8. So directories that were left empty are kept, a few, and become the next kernel's.
"""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH120, PTH208

import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress

_MAX_SPARE = 16
_MODE = 0o700
_SETTLED_NS = 1_000_000_000  # far above the granularity of a file system's times


class BadFilePath(Exception):
    """A file of a kernel would lie outside of its scratch directory."""


class ScratchDirectories:
    """The directories `<directory>/<name>` of kernels."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        # Empty ones, and in use: path -> modification time, if it is old enough to show by itself
        # that nothing was made in there since; else 0.
        self._spare: dict[str, int] = {}
        self._times_ns: dict[str, int] = {}

    def path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def create(self, name: str) -> str:
        """A directory for this kernel; one that is there already (an earlier try's) is used.

        Raises:
            OSError: it cannot be made.
        """
        path = self.path(name)
        if self._spare:
            spare, time_ns = self._spare.popitem()
            try:
                os.rename(spare, path)
            except OSError:  # it was taken away, or `path` holds files of an earlier try
                with suppress(OSError):
                    os.rmdir(spare)
            else:
                self._times_ns[path] = time_ns
                return path
        with suppress(FileExistsError):
            os.mkdir(path, _MODE)
        return path

    def release(self, path: str) -> None:
        """The kernel is gone: keep the directory if it holds anything, else remove or reuse it."""
        time_ns = self._times_ns.pop(path, 0)
        try:
            status = os.lstat(path)
            if status.st_mtime_ns != time_ns:
                with os.scandir(path) as entries:
                    if next(entries, None) is not None:
                        return
                settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
                time_ns = status.st_mtime_ns if settled else 0
            if stat.S_IMODE(status.st_mode) == _MODE and len(self._spare) < _MAX_SPARE:
                self._spare[path] = time_ns
            else:
                os.rmdir(path)
        except OSError:
            return  # its kernel took it away, or its rights

    def remove_spare(self) -> None:
        """Remove what is kept for reuse, for when nothing runs."""
        while self._spare:
            with suppress(OSError):
                os.rmdir(self._spare.popitem()[0])

    def remove_empty(self) -> None:
        """Remove the empty directories that a dead supervisor left."""
        for name in os.listdir(self._directory):
            with suppress(OSError):
                os.rmdir(self.path(name))


def write_files(scratch: str, files: Mapping[str, str]) -> None:
    """Write `files` (relative path -> text) into a scratch directory, executable by their owner.

    Raises:
        BadFilePath: a path is absolute or leaves the directory; nothing was written.
        OSError: a file cannot be written.
    """
    for name in files:
        parts = name.split("/")
        if "\0" in name or "" in parts or "." in parts or ".." in parts:
            raise BadFilePath(name)
    for name, text in files.items():
        path = f"{scratch}/{name}"
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o700), "w", encoding="utf-8") as file:
            file.write(text)
