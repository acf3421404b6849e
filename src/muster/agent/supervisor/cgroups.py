"""Limits for kernels through cgroups, where this process may make any.

Version 1 has a hierarchy a controller, version 2 one for all; both are here as directories and what
is written into them. Making and removing one costs more than moving a process, so they are kept and
given to the next kernel with the same limits.

A kernel is moved in just after its spawn: posix_spawn cannot put a child into a cgroup, and the two
ways without that gap are worse. Were the supervisor to go in first, a full memory cgroup could get
it killed; a launcher in between costs a second exec. Nothing escapes through the gap: once the main
process is in, all it forks is in too, and what it forked before is found and moved. Only the pages
it touched in those microseconds stay uncounted.
"""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH102, PTH106, PTH110, PTH112, PTH120, PTH123

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from muster.agent.supervisor.process_tree import descendants

_PERIOD_US = 100_000
_MIN_QUOTA_US = 1_000  # the kernel refuses less
_MAX_SPARE = 32
_EMPTYING_TIMEOUT_S = 5.0
_ROOT = "/sys/fs/cgroup"


class LimitsKind(StrEnum):
    NONE = "none"
    V1 = "cgroup-v1"
    V2 = "cgroup-v2"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one kernel may use; 0 stands for no limit."""

    cpu_milli: int
    memory_bytes: int


@dataclass(slots=True, eq=False)
class Slot:
    """The directories, one a hierarchy, that one kernel at a time lives in."""

    limits: Limits
    directories: list[str] = field(default_factory=list)
    procs_fds: list[int] = field(default_factory=list)
    counts_fd: int = -1  # the file with the line `oom_kill N`
    oom_kills_before: int = 0

    def place(self, pid: int) -> None:
        """Move a process in, with what it forked before it was in.

        Raises:
            OSError: the cgroup does not take it. A process that has ended already is no error.
        """
        for member in descendants(pid):  # children are listed after their parent was moved
            with suppress(ProcessLookupError):
                for fd in self.procs_fds:
                    os.write(fd, b"%d" % member)

    def pids(self) -> list[int]:
        """The processes in it."""
        found: set[int] = set()
        for directory in self.directories:
            found.update(_members(directory))
        return list(found)

    def oom_kills(self) -> int:
        """How many processes were killed for lack of memory since the kernel began."""
        return self._count() - self.oom_kills_before

    def reset(self) -> None:
        """Begin counting for the next kernel."""
        self.oom_kills_before = self._count()

    def remove(self) -> None:
        for fd in (*self.procs_fds, self.counts_fd):
            if fd >= 0:
                os.close(fd)
        for directory in self.directories:
            with suppress(OSError):
                os.rmdir(directory)

    def _count(self) -> int:
        if self.counts_fd >= 0:
            with suppress(OSError):  # somebody removed the cgroup
                for line in os.pread(self.counts_fd, 4096, 0).splitlines():
                    name, _, value = line.partition(b" ")
                    if name == b"oom_kill":
                        return int(value)
        return 0


class Cgroups:
    """The slots of one supervisor, below a directory named after its own."""

    def __init__(self, kind: LimitsKind, cpu_parent: str, memory_parent: str) -> None:
        self.kind = kind
        self._cpu_parent = cpu_parent
        self._memory_parent = memory_parent
        self._spare: dict[Limits, list[Slot]] = {}
        self._spare_count = 0
        self._last_name = 0

    def acquire(self, limits: Limits) -> Slot:
        """An empty slot with these limits.

        Raises:
            OSError: the kernel refuses one.
        """
        spare = self._spare.get(limits)
        if spare:
            self._spare_count -= 1
            slot = spare.pop()
        else:
            slot = self._make(limits)
        slot.reset()
        return slot

    def release(self, slot: Slot) -> None:
        """Take back a slot whose kernel is gone."""
        if self._spare_count >= _MAX_SPARE:
            slot.remove()
            return
        self._spare_count += 1
        self._spare.setdefault(slot.limits, []).append(slot)

    def close(self) -> None:
        """Remove everything."""
        for parent in {self._cpu_parent, self._memory_parent}:
            remove_tree(parent)

    def _make(self, limits: Limits) -> Slot:
        self._last_name += 1
        slot = Slot(limits)
        try:
            if self.kind is LimitsKind.V2:
                self._fill_v2(slot, f"{self._cpu_parent}/{self._last_name}")
            else:
                self._fill_v1(slot, str(self._last_name))
            for directory in slot.directories:
                slot.procs_fds.append(_open(f"{directory}/cgroup.procs", os.O_WRONLY))
        except OSError:
            slot.remove()
            raise
        return slot

    def _fill_v1(self, slot: Slot, name: str) -> None:
        if slot.limits.cpu_milli:
            directory = f"{self._cpu_parent}/{name}"
            os.mkdir(directory)
            slot.directories.append(directory)
            _write(f"{directory}/cpu.cfs_period_us", str(_PERIOD_US))
            _write(f"{directory}/cpu.cfs_quota_us", str(_quota_us(slot.limits)))
        if slot.limits.memory_bytes:
            directory = f"{self._memory_parent}/{name}"
            os.mkdir(directory)
            slot.directories.append(directory)
            _write(f"{directory}/memory.limit_in_bytes", str(slot.limits.memory_bytes))
            with suppress(OSError):  # absent where swap is not accounted for
                _write(f"{directory}/memory.memsw.limit_in_bytes", str(slot.limits.memory_bytes))
            slot.counts_fd = _open(f"{directory}/memory.oom_control", os.O_RDONLY)

    def _fill_v2(self, slot: Slot, directory: str) -> None:
        os.mkdir(directory)
        slot.directories.append(directory)
        if slot.limits.cpu_milli:
            _write(f"{directory}/cpu.max", f"{_quota_us(slot.limits)} {_PERIOD_US}")
        if slot.limits.memory_bytes:
            _write(f"{directory}/memory.max", str(slot.limits.memory_bytes))
            with suppress(OSError):  # absent without swap
                _write(f"{directory}/memory.swap.max", "0")
            slot.counts_fd = _open(f"{directory}/memory.events", os.O_RDONLY)


def find_cgroups(name: str) -> Cgroups | None:
    """Directories called `name` where limits can be set, emptied of what a dead supervisor left.

    None if there is no writable hierarchy with both the cpu and the memory controller. In version 2
    the cgroup above the supervisor's must be delegated, with no process in it (systemd:
    `Delegate=yes` and `DelegateSubgroup=agent`), or be the root.
    """
    own = _own_cgroups()
    if "" in own and (parent := _version_2_parent(own[""], name)) is not None:
        return Cgroups(LimitsKind.V2, parent, parent)
    parents: list[str] = []
    for controller in ("cpu", "memory"):
        mount = f"{_ROOT}/{controller}"
        base = f"{mount}{own.get(controller, '')}"  # not there in a container that sees its own
        parent = f"{base if os.path.isdir(base) else mount}/{name}"
        try:
            remove_tree(parent)
            os.mkdir(parent)
        except OSError:
            for made in parents:
                remove_tree(made)
            return None
        parents.append(parent)
    return Cgroups(LimitsKind.V1, *parents)


def remove_tree(directory: str) -> None:
    """Kill all processes in a cgroup and below, and remove it; nothing if there is none.

    Raises:
        OSError: a process does not die, or the directory may not be removed.
    """
    deadline_s = time.monotonic() + _EMPTYING_TIMEOUT_S
    while os.path.isdir(directory):
        try:
            for path, _, _ in os.walk(directory, topdown=False):
                for pid in _members(path):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                os.rmdir(path)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.005)


def _version_2_parent(own: str, name: str) -> str | None:
    mount = _ROOT if os.path.exists(f"{_ROOT}/cgroup.controllers") else f"{_ROOT}/unified"
    base = f"{mount}{own}".rstrip("/")
    for candidate in (base, os.path.dirname(base)):
        if not candidate.startswith(mount):
            continue
        parent = f"{candidate}/{name}"
        try:
            remove_tree(parent)
            _write(f"{candidate}/cgroup.subtree_control", "+cpu +memory")
            os.mkdir(parent)
            _write(f"{parent}/cgroup.subtree_control", "+cpu +memory")
        except OSError:
            with suppress(OSError):
                os.rmdir(parent)
            continue
        return parent
    return None


def _own_cgroups() -> dict[str, str]:
    """The path of this process's cgroup for each controller of version 1; "" is version 2."""
    own: dict[str, str] = {}
    with suppress(OSError), open("/proc/self/cgroup") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            own.update(dict.fromkeys(controllers.split(","), path.rstrip("/")))
    return own


def _quota_us(limits: Limits) -> int:
    return max(_MIN_QUOTA_US, limits.cpu_milli * _PERIOD_US // 1000)


def _members(directory: str) -> list[int]:
    try:
        with open(f"{directory}/cgroup.procs") as lines:
            return [int(line) for line in lines]
    except OSError:  # it was removed, perhaps with the file open
        return []


def _write(path: str, text: str) -> None:
    fd = _open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC)
