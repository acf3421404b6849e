"""Users of the operating system's that kernels run as."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agent.supervisor.driver import Driver

from muster.agent.supervisor.process_tree import descendants, user_of

_FIRST = 210_000 + 2 * (os.getpid() % 20_000)  # tests run beside others, which see its processes
ADA, BOB = _FIRST, _FIRST + 1


@dataclass(frozen=True)
class Users:
    """Accounts with directories of their own, below one that all of them can enter."""

    place: Path

    def account(self, uid: int, **fields: Any) -> dict[str, Any]:
        home, scratch = self.place / str(uid), self.place / f"{uid}-scratch"
        if not home.exists():
            home.mkdir(mode=0o700)
            os.chown(home, uid, uid)
            scratch.mkdir()
            scratch.chmod(0o711)
        return {
            "uid": uid,
            "gid": uid,
            "groups": [],
            "name": f"u{uid}",
            "home": str(home),
            "scratch": str(scratch),
            **fields,
        }


def spawner_of(driver: Driver, uid: int) -> int:
    (found,) = spawners_of(driver, uid)
    return found


def spawners_of(driver: Driver, uid: int) -> list[int]:
    """The processes that spawn a user's kernels: several while groups of the user change."""
    return [pid for pid in descendants(driver.pid) if user_of(pid) == uid and _is_spawner(pid)]


def _is_spawner(pid: int) -> bool:
    try:
        return b"--spawner" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return False
