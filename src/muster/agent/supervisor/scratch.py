"""Scratch directories: where a kernel without a workdir runs, and its files.

The supervisor makes and removes them, in directories to which no kernel of another user can write:
so a kernel can neither move its own away from where it is measured, nor put anything in its place.

Making and removing a directory costs 80 us on ext4, a quarter of a whole /bin/true; renaming one
costs 8 us. So a few directories that were left empty are kept for later kernels of the same owner
and user, and for no others.
"""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH102, PTH104, PTH106, PTH208

import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.core.relative_paths import wrong_path

RESULT_FILE = ".muster-result"
"""The file of a scratch directory in which a kernel leaves its result."""

_MAX_SPARE = 64  # of all owners
_MODE = 0o700
_SETTLED_NS = 1_000_000_000  # far above the granularity of a file system's times
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BadFilePath(Exception):
    """A file of a kernel would lie outside of its scratch directory."""


class Tenant(NamedTuple):  # hashed for each kernel, which takes a dataclass 2 us
    """An owner, and the user as which the owner's kernels run: a directory is reused for the same
    tenant only."""

    owner: str
    uid: int
    gid: int


@dataclass(slots=True)
class _Pool:
    """The empty directories of one tenant, and those in use. Each has its modification time if that
    is old enough to show that nothing was made in it since, else 0."""

    spare: dict[str, int] = field(default_factory=dict)
    times_ns: dict[str, int] = field(default_factory=dict)


class ScratchDirectories:
    """The directories of all kernels."""

    def __init__(self) -> None:
        self._pools: dict[Tenant, _Pool] = {}
        self._spare_count = 0
        self._own_uid = os.geteuid()

    def create(self, path: str, tenant: Tenant) -> None:
        """Make the directory of a kernel, or use the existing one of an earlier try.

        Raises:
            OSError: it cannot be made, or something else has its name.
        """
        pool = self._pools.setdefault(tenant, _Pool())
        if pool.spare:
            spare, time_ns = pool.spare.popitem()
            self._spare_count -= 1
            try:
                os.rename(spare, path)
            except OSError:  # the spare was taken away, or `path` holds files of an earlier try
                with suppress(OSError):
                    os.rmdir(spare)
            else:
                pool.times_ns[path] = time_ns
                return
        try:
            os.mkdir(path, _MODE)
        except FileExistsError:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != tenant.uid:
                raise
        else:
            if tenant.uid != self._own_uid:
                os.chown(path, tenant.uid, tenant.gid, follow_symlinks=False)

    def release(self, path: str, tenant: Tenant) -> None:
        """Keep a gone kernel's directory if it holds anything, else remove it or keep it for
        reuse."""
        pool = self._pools.setdefault(tenant, _Pool())
        time_ns = pool.times_ns.pop(path, 0)
        try:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != tenant.uid:
                return
            if status.st_mtime_ns != time_ns:
                with os.scandir(path) as entries:
                    if next(entries, None) is not None:
                        return
                settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
                time_ns = status.st_mtime_ns if settled else 0
            if stat.S_IMODE(status.st_mode) == _MODE and self._spare_count < _MAX_SPARE:
                pool.spare[path] = time_ns
                self._spare_count += 1
            else:
                os.rmdir(path)
        except OSError:
            return  # its kernel removed it, or its rights
        finally:
            if not pool.spare and not pool.times_ns:
                del self._pools[tenant]

    def remove_spare(self) -> None:
        """Remove directories that are kept for reuse, when nothing runs."""
        for pool in self._pools.values():
            for path in pool.spare:
                with suppress(OSError):
                    os.rmdir(path)
            pool.spare.clear()
        self._spare_count = 0


def remove_empty(directory: str) -> None:
    """Remove the empty directories that a dead supervisor left in this one."""
    for name in os.listdir(directory):
        with suppress(OSError):
            os.rmdir(f"{directory}/{name}")


def take_result(scratch: str, uid: int, limit_bytes: int) -> str | None:
    """The beginning of the file that a gone kernel left as its result, which is removed; None if it
    left none, or something else than a plain file of its own user. No link is followed, and a
    second name of somebody else's file is not read."""
    try:
        folder_fd = os.open(scratch, _DIRECTORY)
    except OSError:
        return None
    try:
        file_fd = os.open(RESULT_FILE, _OLD_FILE, dir_fd=folder_fd)
        with os.fdopen(file_fd, "rb", buffering=0) as file:
            status = os.fstat(file_fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
                return None
            text = file.read(limit_bytes).decode(errors="replace")
        os.unlink(RESULT_FILE, dir_fd=folder_fd)
        return text
    except OSError:
        return None
    finally:
        os.close(folder_fd)


def write_files(scratch: str, files: Mapping[str, str]) -> None:
    """Write `files` (relative path -> text) into a scratch directory, executable by their owner.

    No link below `scratch` is followed, whoever made it.

    Raises:
        BadFilePath: a path is wrong; nothing was written.
        OSError: a file cannot be written.
    """
    for name in files:
        if wrong_path(name) is not None:
            raise BadFilePath(name)
    if not files:
        return
    scratch_fd = os.open(scratch, _DIRECTORY)
    try:
        for name, text in files.items():
            _write_file(scratch_fd, name.split("/"), text)
    finally:
        os.close(scratch_fd)


def _write_file(scratch_fd: int, parts: list[str], text: str) -> None:
    folder_fd = os.dup(scratch_fd)
    try:
        for part in parts[:-1]:
            with suppress(FileExistsError):
                os.mkdir(part, _MODE, dir_fd=folder_fd)
            next_fd = os.open(part, _DIRECTORY, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = next_fd
        file_fd = os.open(parts[-1], _NEW_FILE, _MODE, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)
    with os.fdopen(file_fd, "w", encoding="utf-8") as file:
        file.write(text)
