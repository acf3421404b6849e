"""Handing the home of a user over from the uid that a machine gave it by itself to the one that the
controller has allotted since.

Nothing of the former uid may run meanwhile: its programs would lose their home, and could put other
files in the places of those whose owner changes.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from muster.agent.supervisor.process_tree import user_of

HOME = "home"


def is_in_use(uid: int) -> bool:
    """Whether a process of this machine runs as the uid."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return any(user_of(pid) == uid for pid in pids)


def hand_over(users: Path, former: int, uid: int) -> None:
    """Move the home in ``users/FORMER`` to ``users/UID``, and make the user its owner, and that of
    the files in it. Where there is a home already, it becomes ``home-FORMER`` beside that. After a
    crash it is called again.

    Raises:
        OSError: something could not be moved or given.
    """
    place = users / str(uid)
    home, beside = place / HOME, place / f"{HOME}-{former}"
    with suppress(FileNotFoundError):
        (users / str(former) / HOME).rename(beside if home.exists() else home)
    for each in (home, beside):
        for name, folder in _tree(each):
            _give(name, folder, former, uid)


def _tree(top: Path) -> Iterator[tuple[str, int | None]]:
    """All that is in a directory, and itself, as names with descriptors of their directories.

    Raises:
        OSError: it cannot be read, or is nested too deeply.
    """
    if not top.exists():
        return
    try:
        for _, directories, files, folder in os.fwalk(top, onerror=_raise):
            for name in (*directories, *files):
                yield name, folder
    except RecursionError:
        raise OSError(errno.ELOOP, f"directories in {top} are nested too deeply") from None
    yield str(top), None


def _raise(error: OSError) -> None:
    raise error


def _give(name: str, folder: int | None, former: int, uid: int) -> None:
    with suppress(FileNotFoundError):  # another agent of this machine hands it over too
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status.st_uid == former:
            group = uid if status.st_gid == former else -1
            os.chown(name, uid, group, dir_fd=folder, follow_symlinks=False)
