"""Scratch directories: where a kernel without a workdir runs, and its files.

Making and removing a directory costs 80 us on ext4, a quarter of a whole /bin/true; renaming one
costs 7. So directories that were left empty are kept, a few, and become the next kernel's.
"""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH120, PTH208

import os
import stat
from collections.abc import Mapping
from contextlib import suppress

_MAX_SPARE = 16


class BadFilePath(Exception):
    """A file of a kernel would lie outside of its scratch directory."""


class ScratchDirectories:
    """The directories `<directory>/<name>` of kernels."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._spare: list[str] = []

    def path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def create(self, name: str) -> str:
        """A directory for this kernel; one that is there already (an earlier try's) is used.

        Raises:
            OSError: it cannot be made.
        """
        path = self.path(name)
        if self._spare:
            with suppress(OSError):  # taken away, or `path` holds files of an earlier try
                os.rename(self._spare.pop(), path)
                return path
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        return path

    def release(self, path: str) -> None:
        """The kernel is gone: keep the directory if it holds anything, else remove or reuse it."""
        with suppress(OSError):
            if len(self._spare) >= _MAX_SPARE or not _is_as_new(path):
                os.rmdir(path)  # fails, as it should, on one with files in it
            else:
                self._spare.append(path)

    def remove_spare(self) -> None:
        """Remove what is kept for reuse, for when nothing runs."""
        while self._spare:
            with suppress(OSError):
                os.rmdir(self._spare.pop())

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


def _is_as_new(path: str) -> bool:
    """Whether a directory is empty and has the access rights it was made with."""
    if stat.S_IMODE(os.lstat(path).st_mode) != 0o700:
        return False
    with os.scandir(path) as entries:
        return next(entries, None) is None
