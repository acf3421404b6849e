"""The places where a supervisor can make cgroups."""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH102, PTH106, PTH110, PTH112, PTH116, PTH120, PTH123

import os
from contextlib import suppress

from muster.agent.supervisor.cgroups import (
    Cgroups,
    LimitsKind,
    enter,
    go_home,
    remove_tree,
    write_file,
)
from muster.agent.supervisor.protocol import KernelLimits

_ROOT = "/sys/fs/cgroup"


def cgroups_name(directory: str) -> str:
    """The name for the cgroups of the supervisor on `directory`: by device and inode, which is
    short, and no two folders that exist share it."""
    stat = os.stat(directory)
    return f"muster-{stat.st_dev:x}-{stat.st_ino:x}"


def find_cgroups(name: str) -> Cgroups | None:
    """Directories called `name` where cgroups can be made, emptied of a dead supervisor's.

    None if there is no writable hierarchy with the pids, cpu and memory controllers. In version 2
    the cgroup above the supervisor's must be delegated, with no process in it (systemd:
    `Delegate=yes` and `DelegateSubgroup=agent`), or be the root.
    """
    own = _own_cgroups()
    if "" in own and (found := _version_2(own[""], name)) is not None:
        return found
    parents: dict[str, str] = {}
    homes: dict[str, str] = {}
    for controller in ("pids", "cpu", "memory"):
        mount = f"{_ROOT}/{controller}"
        base = f"{mount}{own.get(controller, '')}"  # not there in a container that sees its own
        base = base if os.path.isdir(base) else mount
        parent = f"{base}/{name}"
        try:
            remove_tree(parent)
            os.mkdir(parent)
        except OSError:
            for made in parents.values():
                remove_tree(made)
            return None
        parents[controller] = parent
        homes[controller] = f"{base}/tasks"
    return _if_usable(LimitsKind.V1, parents, homes)


def _version_2(own: str, name: str) -> Cgroups | None:
    mount = _ROOT if os.path.exists(f"{_ROOT}/cgroup.controllers") else f"{_ROOT}/unified"
    base = f"{mount}{own}".rstrip("/")
    for candidate in (base, os.path.dirname(base)):
        if not candidate.startswith(mount):
            continue
        parent = f"{candidate}/{name}"
        try:
            remove_tree(parent)
            write_file(f"{candidate}/cgroup.subtree_control", "+cpu +memory +pids")
            os.mkdir(parent)
            write_file(f"{parent}/cgroup.subtree_control", "+cpu +memory +pids")
        except OSError:
            with suppress(OSError):
                os.rmdir(parent)
            continue
        parents = dict.fromkeys(("pids", "cpu", "memory"), parent)
        return _if_usable(LimitsKind.V2, parents, {"pids": f"{base}/cgroup.procs"})
    return None


def _if_usable(kind: LimitsKind, parents: dict[str, str], homes: dict[str, str]) -> Cgroups | None:
    """The cgroups, if this process can go into one and home again."""
    try:
        cgroups = Cgroups(kind, parents, homes)
        slot = cgroups.acquire(KernelLimits())
        try:
            enter(slot.entry_fds)
        finally:
            go_home(slot.home_fds)
        slot.remove()
    except OSError:
        for parent in set(parents.values()):
            with suppress(OSError):
                remove_tree(parent)
        return None
    return cgroups


def _own_cgroups() -> dict[str, str]:
    """The path of this process's cgroup for each controller of version 1; "" is version 2."""
    own: dict[str, str] = {}
    with suppress(OSError), open("/proc/self/cgroup") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            own.update(dict.fromkeys(controllers.split(","), path.rstrip("/")))
    return own
