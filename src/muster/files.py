"""Files and directories of Muster's own: each gets its mode whatever the umask is, a file is
written whole or not at all, and what somebody else may have prepared is refused."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PARENT_MODE = 0o755
MOST_LINKS = 40
"""Links that are followed on the way to a directory, as by the kernel (path_resolution(7))."""


class NotOwn(Exception):
    """Somebody else may have prepared a directory, or may replace it; the text says how, and what
    to do."""


def check_own(directory: Path) -> None:
    """Refuse a directory that does not belong to this process's user alone: what it contains counts
    only if nobody else can have put it there. The rules are those of StrictModes in sshd_config(5).

    The directories above it may be anybody's, unless everybody may write there. For root they must
    be root's: whoever owns one of them could put another directory in this one's place.

    Raises:
        NotOwn: others may have put something into the directory, or may replace it.
        FileNotFoundError: it is not there; those above it that are there are as they should be.
        OSError: it cannot be looked at.
    """
    check_way(directory.absolute().parent)
    status = directory.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise NotOwn("it is a symbolic link; name the directory that it leads to")
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    if status.st_uid != os.geteuid():
        raise NotOwn(
            f"it belongs to another user (uid {status.st_uid}); choose one of your own, or run "
            f"this as that user"
        )
    if status.st_mode & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        raise NotOwn(
            f"others may write there ({mode:o}); look at what is in it, then chmod go-w it"
        )


def check_way(directory: Path) -> None:
    """Refuse a directory in whose place others may put another one, or something else in the place
    of an entry of this process's user. It may be one in which everybody keeps entries, as ``/tmp``,
    and links of this user's, or of root's, may lead to it.

    Raises:
        NotOwn, FileNotFoundError, OSError: as for ``check_own``.
    """
    for place, status in _passed(directory.absolute()):
        if (why := _why_replaceable(place, status)) is not None:
            raise NotOwn(why)


def _passed(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The directories and links on the way to a path, itself included, from the root on.

    Raises:
        OSError: one of them cannot be looked at, or links lead in a circle.
    """
    place, left, links = Path("/"), list(reversed(path.parts[1:])), 0
    yield place, place.lstat()
    while left:
        name = left.pop()
        if name == "..":
            place = place.parent
            continue
        entry = place / name
        status = entry.lstat()
        yield entry, status
        if not stat.S_ISLNK(status.st_mode):
            place = entry
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = entry.readlink()
        if target.is_absolute():
            place = Path("/")
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _why_replaceable(place: Path, status: os.stat_result) -> str | None:
    """Why others could put another directory in the place of one below this directory or link;
    None if they cannot."""
    is_root = os.geteuid() == 0
    if is_root and status.st_uid != 0:
        return (
            f"{place} belongs to another user (uid {status.st_uid}), who may put another in its "
            f"place; choose one below directories of root"
        )
    if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX:
        return None
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IWOTH:
        return f"everybody may put another in its place ({place} has mode {mode:o})"
    if is_root and mode & stat.S_IWGRP:
        return f"a group may put another in its place ({place} has mode {mode:o}): chmod g-w it"
    return None


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file of this process's user: a regular one, through no link, without a wait.

    Raises:
        OSError: it cannot be opened, or is a link, no regular file, another user's, or has a second
            name somewhere else; nothing of it was changed.
    """
    assert not flags & os.O_TRUNC, "it would be emptied before it was looked at"
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    status = os.fstat(descriptor)
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    if not is_own or status.st_nlink > 1:
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "it is no file of this user's alone", str(path))
    return descriptor


def make_directory(path: Path, mode: int = 0o700, *, is_set: bool = False) -> None:
    """Make a directory of this mode, unless it is there already. Parents that are missing are made
    so that others may pass through them and write nothing.

    Args:
        is_set: whether one that is there gets the mode too, because it is Muster's own: an earlier
            version may have let others write there.

    Raises:
        OSError: it cannot be made, is no directory, or is another user's and has another mode.
    """
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        if not path.is_dir():
            raise
        if is_set and stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_directory(path.parent, PARENT_MODE)
        path.mkdir(mode=mode, exist_ok=True)  # fails where none can be made, as in /proc
        path.chmod(mode)
    else:
        path.chmod(mode)


def write_whole(
    path: Path, content: str | bytes, mode: int = 0o600, *, is_synced: bool = True
) -> None:
    """Write a file of this mode, in place of a former one.

    Args:
        is_synced: whether its content is on the disk before it takes the former one's place.

    Raises:
        OSError: it cannot be written; the former one is as it was.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    data = content.encode() if isinstance(content, str) else content
    try:
        fresh.unlink(missing_ok=True)  # left by a crash
        with os.fdopen(os.open(fresh, _FRESH, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def write_once(path: Path, content: bytes) -> None:
    """Write a file of this user alone, unless there is one of this name: of several processes that
    do so at a time, the content of one stands.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists():
        return
    import secrets  # with hashes and OpenSSL; commands that only read import this module, too

    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    write_whole(fresh, content)
    try:
        with suppress(FileExistsError):
            path.hardlink_to(fresh)
    finally:
        fresh.unlink()
