"""The directory of the users of a machine: ``UID/owner`` names the user to whom a uid is given.

It is root's, and so are the directories of the uids in it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from muster.agent.account_errors import NoAccount
from muster.files import NotOwn, check_own

OWNER_FILE = "owner"
_ROOT = 0


def require_users_directory(directory: Path) -> None:
    """Refuse, for an agent that runs as root, a directory in which no user can have a place.

    Raises:
        NoAccount: no user can have a place, so that every kernel would end with this error.
    """
    if os.getuid() != _ROOT:
        return
    try:
        os.close(open_users(directory))
    except OSError as error:
        raise NoAccount(f"cannot use {directory} for users: {error.strerror}") from None


def open_users(directory: Path) -> int:
    """Open the directory of the users, and make it if it does not exist.

    Raises:
        NoAccount: others could put something into it, or users could not enter it.
    """
    with suppress(FileNotFoundError):
        _require_own(directory)
    for path in reversed((directory, *directory.parents)):
        with suppress(FileExistsError):
            path.mkdir()
            path.chmod(0o711)  # whatever the umask is
    _require_own(directory)
    for path in (directory, *directory.parents):
        mode = stat.S_IMODE(path.stat().st_mode)
        if not mode & stat.S_IXOTH:
            raise NoAccount(
                f"users cannot enter {path} ({mode:o}), so they can have no homes and scratch "
                f"directories below it: chmod 711 {path}, or choose another --users-dir"
            )
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _require_own(directory: Path) -> None:
    """
    Raises:
        NoAccount: others could put something into the directory of the users, or replace it.
        OSError: it cannot be looked at.
    """
    try:
        check_own(directory)
    except NotOwn as error:
        raise NoAccount(
            f"cannot use {directory} for users: {error}, or choose another --users-dir"
        ) from None


def read_owner(users: int, uid: str) -> str:
    try:
        owner = os.open(f"{uid}/{OWNER_FILE}", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=users)
    except OSError:
        return ""
    with os.fdopen(owner) as file:
        return file.read()


def owners(users: int) -> Iterator[tuple[int, str]]:
    """The uids that are given on this machine, and to whom."""
    for entry in os.listdir(users):
        if entry.isdecimal():
            yield int(entry), read_owner(users, entry)


def give_uid(users: int, uid: int, name: str) -> bool:
    """Give a uid to a user, unless another agent was faster.

    Raises:
        OSError: the gift cannot be written down.
    """
    fresh = f".{uid}.{os.getpid()}"
    os.mkdir(fresh, 0o711, dir_fd=users)
    os.chmod(fresh, 0o711, dir_fd=users)  # whatever the umask is
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(f"{fresh}/{OWNER_FILE}", flags, 0o600, dir_fd=users), "w") as file:
        file.write(name)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.rename(fresh, str(uid), src_dir_fd=users, dst_dir_fd=users)
    except OSError:  # it exists, with an owner in it
        os.unlink(f"{fresh}/{OWNER_FILE}", dir_fd=users)
        os.rmdir(fresh, dir_fd=users)
        return False
    os.fsync(users)
    return True


def given_by_machine(users_directory: Path, cluster: str) -> dict[str, int]:
    """The uids that agents of this machine gave to users by themselves, by "domain/user".

    Args:
        cluster: of the agents' settings.

    Raises:
        OSError: the directory cannot be read.
    """
    found = {}
    prefix = f"{cluster} "
    users = os.open(users_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for uid, owner in owners(users):
            if owner.startswith(prefix):
                found[owner.removeprefix(prefix)] = uid
    finally:
        os.close(users)
    return found
