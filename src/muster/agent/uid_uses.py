"""Other uses of uids on a machine, beside that by users of the cluster."""

import grp
import pwd
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from muster.agent.account_errors import NoAccount

_SUBORDINATE_FILES = (Path("/etc/subuid"), Path("/etc/subgid"))


def subordinate_ids() -> list[tuple[range, str]]:
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


def other_use(uid: int, subordinate: Sequence[tuple[range, str]]) -> str:
    """The other owner that the uid, or the same number as a group id, has on this machine; "" if
    there is none."""
    for look_up in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            return f"the machine's account or group {look_up(uid)[0]}"
    return next((whose for ids, whose in subordinate if uid in ids), "")


def must_be_its_own(
    uid: int, users_directory: Path, subordinate: Sequence[tuple[range, str]]
) -> None:
    """
    Raises:
        NoAccount: a uid that was given to a user has since been given to somebody else too.
    """
    if other := other_use(uid, subordinate):
        raise NoAccount(
            f"uid {uid} of this user has become one of {other} too: give that other ids, or remove "
            f"{users_directory / str(uid)} with all files of the uid"
        )
