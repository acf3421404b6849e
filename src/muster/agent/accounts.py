"""The accounts as which kernels run on this machine: those of their owners if the agent is root,
else the agent's own.

A user of the cluster gets the account to which the operator mapped it; else the machine's account
of the same name, if the operator allowed that; else the uid that the controller has allotted to it
for the whole cluster, or, where the controller is of a version that tells none, a uid out of a
range of this machine. A uid is given to a user by the directory ``users/UID``, which has the user's
name in it. It appears whole or not at all, once for the whole machine, and while it exists no other
user gets that uid.

What the machine gave to a user before the controller told a uid is handed over (``handover``) once
nothing runs as the former uid. As long as something does, further kernels of the user run as the
former uid too, with the home that they know.
"""

import logging
import os
import pwd
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from muster.agent.account_errors import NoAccount, NoUid, UidClash
from muster.agent.config import AgentConfig
from muster.agent.handover import HOME, hand_over, is_in_use
from muster.agent.uid_uses import must_be_its_own, other_use, subordinate_ids
from muster.agent.users_directory import OWNER_FILE, give_uid, open_users, owners, read_owner
from muster.core.uids import ClusterUid, uids_said
from muster.files import write_whole

log = logging.getLogger(__name__)

FIRST_PERSON_UID = 1000
"""Lower uids belong to services; no user gets one by its name alone."""

_ROOT = 0
_NOBODY = "nobody"
_DEFAULT_DOMAIN = "default"
_REMEMBERED_S = 60.0
_MOST_REMEMBERED = 10_000
_DEVICES = ("nvidia*", "dri/renderD*", "kfd")


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
        self._known: dict[tuple[str, str, ClusterUid | None], tuple[float, Account | None]] = {}
        self._finding = threading.Lock()
        self._told: set[int] = set()  # former uids that are in use still

    def knows(self, owner: str, uid: ClusterUid | None) -> bool:
        """Whether ``of`` answers at once; it may have to hand a home over, which takes a while."""
        domain, _, rest = owner.partition("/")
        known = self._known.get((domain, rest.partition("/")[2], uid))
        return os.getuid() != _ROOT or (known is not None and known[0] > time.monotonic())

    def of(self, owner: str, uid: ClusterUid | None = None) -> Account | None:
        """The account of "domain/project/user"; None stands for the agent's own user.

        Args:
            uid: the one that the cluster allotted to the user; None where the controller tells
                none.

        Raises:
            NoAccount: there is no account for it.
        """
        with self._finding:
            return self._of(owner, uid)

    def _of(self, owner: str, uid: ClusterUid | None) -> Account | None:
        if os.getuid() != _ROOT:
            return None
        domain, _, rest = owner.partition("/")
        user = rest.partition("/")[2]
        if not domain or not user:
            raise NoAccount(f"{owner!r} is no owner")
        known = self._known.get((domain, user, uid))
        if known is not None and known[0] > time.monotonic():
            return known[1]
        try:
            account = self._find(domain, user, uid)
        except OSError as error:
            raise NoAccount(
                f"no place for {user} in {self._config.users_directory}: {error.strerror}"
            ) from None
        if account is not None and account.uid in self._told:
            return account  # until nothing runs as the former uid
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[domain, user, uid] = time.monotonic() + _REMEMBERED_S, account
        return account

    def scratch_directories(self) -> list[Path]:
        """The directories with the scratch directories of this agent's kernels that run as other
        users."""
        return list(self._config.users_directory.glob(f"*/{self._scratch_name}"))

    def _find(self, domain: str, user: str, uid: ClusterUid | None) -> Account | None:
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
        own_name = f"{self._config.cluster} {domain}/{user}"
        if uid is None:
            return self._of_range(own_name)
        return self._of_cluster(uid, f"{uid.cluster} {domain}/{user}", own_name)

    def _of_machine(self, entry: pwd.struct_passwd) -> Account:
        if entry.pw_name == _NOBODY:
            raise NoAccount(f"no kernel runs as {_NOBODY}, which belongs to everybody")
        users = open_users(self._config.users_directory)
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
        """The account of a user with a uid that this machine gives."""
        users = open_users(self._config.users_directory)
        try:
            return self._placed(users, self._uid_of(users, name))
        finally:
            os.close(users)

    def _of_cluster(self, told: ClusterUid, name: str, own_name: str) -> Account:
        """The account of a user with the uid that the cluster allotted.

        Args:
            name: of the user, in the directory of its uid.
            own_name: its name in the directory of a uid that this machine gave it before.

        Raises:
            NoAccount, OSError: as they say.
        """
        uid = told.uid
        if uid is None:
            raise NoUid(
                "the controller has given all uids of its range to others: start it with a larger "
                "--uid-range, or this agent with --map-user"
            )
        subordinate = subordinate_ids()
        self._must_be_allowed(uid, subordinate)
        users = open_users(self._config.users_directory)
        try:
            self._claim(users, uid, name, own_name)
            for former in self._former(users, uid, own_name):
                must_be_its_own(former, self._config.users_directory, subordinate)
                if is_in_use(former):
                    self._say_in_use(former, uid, own_name)
                    return self._placed(users, former)
                self._hand_over(former, uid, own_name)
            return self._placed(users, uid)
        finally:
            os.close(users)

    def _must_be_allowed(self, uid: int, subordinate: Sequence[tuple[range, str]]) -> None:
        """
        Raises:
            UidClash: the operator has not allowed it, or it belongs to somebody of this machine.
        """
        allowed = tuple(dict.fromkeys((self._config.uids, self._config.cluster_uids)))
        if not any(uid in each for each in allowed):
            ranges = " and ".join(map(uids_said, allowed))
            raise UidClash(
                f"uid {uid} is not among those that this machine's operator allows ({ranges}): "
                f"start the agent with a --uid-range that has it"
            )
        if other := other_use(uid, subordinate):
            raise UidClash(f"uid {uid} is one of {other}: give that other ids")

    def _claim(self, users: int, uid: int, name: str, own_name: str) -> None:
        """Have the uid be this user's on the machine.

        Raises:
            UidClash: it was given to another user.
        """
        given = self._config.users_directory / str(uid)
        if not given.exists() and give_uid(users, uid, name):
            return
        owner = read_owner(users, str(uid))
        if owner == own_name:  # the cluster lets the user have what this machine gave it
            write_whole(given / OWNER_FILE, name)
        elif owner != name:
            whose = owner.partition(" ")[2] or "somebody"
            raise UidClash(
                f"uid {uid} was given to {whose} of another cluster or before, as {given} says: "
                f"remove that with all files of the uid"
            )

    def _former(self, users: int, uid: int, own_name: str) -> list[int]:
        """The other uids that this machine gave to the user by itself."""
        given = ((other, owner) for other, owner in owners(users) if owner == own_name)
        return sorted(other for other, _ in given if other != uid)

    def _say_in_use(self, former: int, uid: int, own_name: str) -> None:
        if former not in self._told:
            self._told.add(former)
            log.warning(
                "kernels of %s still run as uid %d, which this machine gave: further ones do so "
                "too, until none is left for a minute; then they run as uid %d of the cluster",
                *(own_name.partition(" ")[2], former, uid),
            )

    def _hand_over(self, former: int, uid: int, own_name: str) -> None:
        directory = self._config.users_directory
        hand_over(directory, former, uid)
        # Kept, so that nobody else gets the uid: files of it may lie elsewhere.
        write_whole(directory / str(former) / OWNER_FILE, f"formerly {own_name}, now uid {uid}")
        self._told.discard(former)
        whose = own_name.partition(" ")[2]
        log.info("the home of %s was handed over from uid %d to uid %d", whose, former, uid)

    def _placed(self, users: int, uid: int) -> Account:
        """The account of a user with a uid of its own, and its places."""
        place = self._place(users, uid, uid, HOME)
        return Account(
            uid=uid,
            gid=uid,
            groups=_device_groups(),
            name=f"muster-{uid}",
            home=f"{place}/{HOME}",
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
        subordinate = subordinate_ids()
        for entry in os.listdir(users):
            if entry.isdigit() and int(entry) in self._config.uids:
                uid = int(entry)
                if read_owner(users, entry) == name:
                    must_be_its_own(uid, self._config.users_directory, subordinate)
                    return uid
                taken.add(uid)
        for uid in self._config.uids:
            if uid in taken or other_use(uid, subordinate) or not give_uid(users, uid, name):
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


def _device_groups() -> tuple[int, ...]:
    """Groups that may use this machine's accelerators."""
    groups = set()
    for path in chain.from_iterable(map(Path("/dev").glob, _DEVICES)):
        with suppress(OSError):
            status = path.stat()
            if status.st_gid != _ROOT and status.st_mode & stat.S_IWGRP:
                groups.add(status.st_gid)
    return tuple(sorted(groups))
