"""The accounts as which kernels run on this machine: those of their owners if the agent is root,
else the agent's own.

A user of the cluster gets the account to which the operator mapped it; else the machine's account
of the same name, if the operator allowed that; else a uid of its own out of a range. A uid is given
to a user by the directory ``users/UID``, which has the user's name in it. It appears whole or not
at all, once for the whole machine, and while it exists no other user gets that uid.
"""

import grp
import os
import pwd
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from muster.agent.config import AgentConfig
from muster.core.errors import MusterError
from muster.files import NotOwn, check_own

FIRST_PERSON_UID = 1000
"""Lower uids belong to services; no user gets one by its name alone."""

_ROOT = 0
_NOBODY = "nobody"
_DEFAULT_DOMAIN = "default"
_OWNER_FILE = "owner"
_REMEMBERED_S = 60.0
_MOST_REMEMBERED = 10_000
_SUBORDINATE_FILES = (Path("/etc/subuid"), Path("/etc/subgid"))
_DEVICES = ("nvidia*", "dri/renderD*", "kfd")


class NoAccount(MusterError):
    """An owner's kernels cannot run here; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine, and the directories of its kernels.

    ``gains_privileges``: whether set-user-id programs such as sudo work, as they do for a person
    who logs in. They never do for uids of the range, with which nobody logs in.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str
    scratch: str
    gains_privileges: bool


class MachineAccounts:
    """The accounts of owners on this machine.

    Args:
        config: the agent's; its directory exists.
    """

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        status = config.directory.stat()
        # The name is of this agent alone, so that no other agent on this machine takes the
        # directories for old ones.
        self._scratch_name = f"scratch-{status.st_dev:x}-{status.st_ino:x}"
        self._known: dict[tuple[str, str], tuple[float, Account | None]] = {}

    def of(self, owner: str) -> Account | None:
        """The account of "domain/project/user"; None stands for the agent's own user.

        Raises:
            NoAccount: there is no account for it.
        """
        if os.getuid() != _ROOT:
            return None
        domain, _, rest = owner.partition("/")
        user = rest.partition("/")[2]
        if not domain or not user:
            raise NoAccount(f"{owner!r} is no owner")
        known = self._known.get((domain, user))
        if known is not None and known[0] > time.monotonic():
            return known[1]
        try:
            account = self._find(domain, user)
        except OSError as error:
            raise NoAccount(
                f"no place for {user} in {self._config.users_directory}: {error.strerror}"
            ) from None
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[domain, user] = time.monotonic() + _REMEMBERED_S, account
        return account

    def scratch_directories(self) -> list[Path]:
        """The directories with the scratch directories of this agent's kernels that run as other
        users."""
        return list(self._config.users_directory.glob(f"*/{self._scratch_name}"))

    def _find(self, domain: str, user: str) -> Account | None:
        """
        Raises:
            NoAccount, OSError: as they say.
        """
        mapped = self._config.accounts.get(f"{domain}/{user}")
        if mapped is None and domain == _DEFAULT_DOMAIN:
            mapped = self._config.accounts.get(user)
        if mapped is not None:
            entry = _entry(mapped)
            if entry is None:
                raise NoAccount(f"{user} is mapped to {mapped}, an account that is not there")
            return None if entry.pw_uid == _ROOT else self._of_machine(entry)
        if self._config.system_accounts and domain == _DEFAULT_DOMAIN:
            entry = _entry(user)
            if entry is not None and entry.pw_uid >= FIRST_PERSON_UID and user != _NOBODY:
                return self._of_machine(entry)
        return self._of_range(f"{self._config.cluster} {domain}/{user}")

    def _of_machine(self, entry: pwd.struct_passwd) -> Account:
        if entry.pw_name == _NOBODY:
            raise NoAccount(f"no kernel runs as {_NOBODY}, which belongs to everybody")
        users = _open_users(self._config.users_directory)
        try:
            with suppress(FileExistsError):
                os.mkdir(str(entry.pw_uid), 0o711, dir_fd=users)
                os.chmod(str(entry.pw_uid), 0o711, dir_fd=users)  # whatever the umask is
            place = self._place(users, entry.pw_uid, entry.pw_gid)
        finally:
            os.close(users)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        return Account(
            uid=entry.pw_uid,
            gid=entry.pw_gid,
            groups=tuple(group for group in groups if group != _ROOT),
            name=entry.pw_name,
            home=entry.pw_dir,
            scratch=f"{place}/{self._scratch_name}",
            gains_privileges=True,
        )

    def _of_range(self, name: str) -> Account:
        users = _open_users(self._config.users_directory)
        try:
            uid = self._uid_of(users, name)
            place = self._place(users, uid, uid, "home")
        finally:
            os.close(users)
        return Account(
            uid=uid,
            gid=uid,
            groups=_device_groups(),
            name=f"muster-{uid}",
            home=f"{place}/home",
            scratch=f"{place}/{self._scratch_name}",
            gains_privileges=False,
        )

    def _uid_of(self, users: int, name: str) -> int:
        """
        Raises:
            NoAccount: all uids of the range are given, or the user's uid has got another use on the
                machine.
        """
        taken = set()
        subordinate = _subordinate_ids()
        for entry in os.listdir(users):
            if entry.isdigit() and int(entry) in self._config.uids:
                uid = int(entry)
                if _read_owner(users, entry) == name:
                    _must_be_its_own(uid, self._config.users_directory, subordinate)
                    return uid
                taken.add(uid)
        for uid in self._config.uids:
            if uid in taken or _other_use(uid, subordinate) or not _take(users, uid, name):
                continue
            return uid
        raise NoAccount(
            f"all {len(self._config.uids)} uids of this machine's range are given to other users: "
            f"start the agent with a larger --uid-range"
        )

    def _place(self, users: int, uid: int, gid: int, *homes: str) -> Path:
        """The directory of a uid, with its content: homes, which are the user's alone, and the
        place of its scratch directories, in which the user can neither make nor remove entries.

        Raises:
            NoAccount: a directory belongs to another uid.
        """
        place = os.open(str(uid), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=users)
        try:
            if os.fstat(place).st_uid != _ROOT:
                raise NoAccount(f"{self._config.users_directory / str(uid)} is not root's")
            wanted = [(self._scratch_name, _ROOT, _ROOT, 0o711)]
            wanted += [(home, uid, gid, 0o700) for home in homes]
            for name, owner, group, mode in wanted:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=place)
                    os.chmod(name, mode, dir_fd=place)  # whatever the umask is
                status = os.stat(name, dir_fd=place, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (uid, _ROOT):
                    raise NoAccount(f"{self._config.users_directory / str(uid) / name} is not its")
                wrong_mode = owner == _ROOT and stat.S_IMODE(status.st_mode) != mode
                if status.st_uid != owner or wrong_mode:  # a crash came between, or it is old
                    os.chown(name, owner, group, dir_fd=place, follow_symlinks=False)
                    os.chmod(name, mode, dir_fd=place)
        finally:
            os.close(place)
        return self._config.users_directory / str(uid)


def _entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _subordinate_ids() -> list[tuple[range, str]]:
    """Ids that people of this machine may take on in containers of their own, each with the
    person's name.

    A person who may take on an id can read its files and signal its processes.
    """
    ids = []
    for path in _SUBORDINATE_FILES:
        with suppress(FileNotFoundError):
            for line in path.read_text(errors="replace").splitlines():
                owner, first, count = (*line.split(":"), "", "")[:3]
                if first.isdecimal() and count.isdecimal():
                    whose = f"the subordinate ids of {owner} in {path}"
                    ids.append((range(int(first), int(first) + int(count)), whose))
    return ids


def _other_use(uid: int, subordinate: Sequence[tuple[range, str]]) -> str:
    """The other owner that the uid, or the same number as a group id, has on this machine; "" if
    there is none."""
    for look_up in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            return f"the machine's account or group {look_up(uid)[0]}"
    return next((whose for ids, whose in subordinate if uid in ids), "")


def _must_be_its_own(
    uid: int, users_directory: Path, subordinate: Sequence[tuple[range, str]]
) -> None:
    """
    Raises:
        NoAccount: a uid that was given to a user has since been given to somebody else too.
    """
    if other := _other_use(uid, subordinate):
        raise NoAccount(
            f"uid {uid} of this user has become one of {other} too: give that other ids, or remove "
            f"{users_directory / str(uid)} with all files of the uid"
        )


def _device_groups() -> tuple[int, ...]:
    """Groups that may use this machine's accelerators."""
    groups = set()
    for path in chain.from_iterable(map(Path("/dev").glob, _DEVICES)):
        with suppress(OSError):
            status = path.stat()
            if status.st_gid != _ROOT and status.st_mode & stat.S_IWGRP:
                groups.add(status.st_gid)
    return tuple(sorted(groups))


def require_users_directory(directory: Path) -> None:
    """Refuse, for an agent that runs as root, a directory in which no user can have a place.

    Raises:
        NoAccount: no user can have a place, so that every kernel would end with this error.
    """
    if os.getuid() != _ROOT:
        return
    try:
        os.close(_open_users(directory))
    except OSError as error:
        raise NoAccount(f"cannot use {directory} for users: {error.strerror}") from None


def _open_users(directory: Path) -> int:
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


def _read_owner(users: int, uid: str) -> str:
    try:
        owner = os.open(f"{uid}/{_OWNER_FILE}", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=users)
    except OSError:
        return ""
    with os.fdopen(owner) as file:
        return file.read()


def _take(users: int, uid: int, name: str) -> bool:
    """Give a uid to a user, unless another agent was faster.

    Raises:
        OSError: the gift cannot be written down.
    """
    fresh = f".{uid}.{os.getpid()}"
    os.mkdir(fresh, 0o711, dir_fd=users)
    os.chmod(fresh, 0o711, dir_fd=users)  # whatever the umask is
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(f"{fresh}/{_OWNER_FILE}", flags, 0o600, dir_fd=users), "w") as file:
        file.write(name)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.rename(fresh, str(uid), src_dir_fd=users, dst_dir_fd=users)
    except OSError:  # it exists, with an owner in it
        os.unlink(f"{fresh}/{_OWNER_FILE}", dir_fd=users)
        os.rmdir(fresh, dir_fd=users)
        return False
    os.fsync(users)
    return True
