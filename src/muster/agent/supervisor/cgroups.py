"""A cgroup for each kernel: it holds the kernel's processes, and limits their number and resources.

Version 1 has a hierarchy a controller, version 2 one for all; here both are directories and texts
that are written into them. Making and removing one costs more than moving a process, so slots are
kept and given to the next kernel that needs the same controllers.

A kernel is born in its cgroups. The process that spawns it enters the slot (`enter`), spawns, and
goes home again, so that no process of a kernel is ever outside. A process that moves itself takes
none of the locks that moving another takes: 4 us a hierarchy. Limits of cpu and memory are set
after that (`Slot.enforce`), because in a full memory cgroup the spawner would be killed, and with
an exhausted quota it would wait.

All processes of a slot are listed in one hierarchy, that of the pids controller. With its limit set
to 0 no process of the slot can fork, so that repeatedly killing the listed processes comes to an
end.
"""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH102, PTH106, PTH112, PTH123

import errno
import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from muster.agent.supervisor.protocol import KernelLimits

_PERIOD_US = 100_000
_MIN_QUOTA_US = 1_000  # the operating system refuses a smaller one
_LEAST = "least"
_LEAST_SHARES, _LEAST_WEIGHT = 2, 1
"""Of all kernels together that asked for no cpu, in version 1 (of 1024) and 2 (of 100)."""
_MAX_SPARE = 64
_EMPTYING_TIMEOUT_S = 5.0
_HOMECOMINGS = 3
_SIGNALLED_TOGETHER = 256  # each process needs a descriptor meanwhile


class LimitsKind(StrEnum):
    NONE = "none"
    V1 = "cgroup-v1"
    V2 = "cgroup-v2"


class LimitTooLow(Exception):
    """A kernel's first processes take more memory than it may have in all."""


@dataclass(slots=True, eq=False)
class Slot:
    """The directories, one in each hierarchy, in which one kernel at a time lives."""

    kind: LimitsKind
    controllers: tuple[str, ...]
    directories: dict[str, str] = field(default_factory=dict)  # controller -> directory
    entry_fds: list[int] = field(default_factory=list)  # a process that writes 0 there is in
    home_fds: list[int] = field(default_factory=list)  # a process that writes 0 there is out again
    population_fd: int = -1  # the file with the number of processes in it, zombies included
    counts_fd: int = -1  # the file with the line `oom_kill N`
    oom_kills_before: int = 0
    pids_max: int = 0  # 0: no limit
    may_fork: bool = True
    restrained: bool = False  # limits of cpu or memory are set
    least_cpu: bool = False

    def enforce(self, limits: KernelLimits) -> None:
        """Set the limits of cpu and memory, after a kernel has been spawned into the slot.

        Raises:
            LimitTooLow: the kernel takes more memory already.
            OSError: the operating system refuses them.
        """
        if not self.controllers:
            return
        self.restrained = True
        if limits.cpu_milli:
            self._set_quota(_quota_us(limits))
        if limits.memory_bytes:
            try:
                self._set_memory(limits.memory_bytes)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                raise LimitTooLow(str(error)) from None

    def reset(self, pids_max: int) -> None:
        """Make the slot ready for the next kernel, without limits of cpu and memory.

        Raises:
            OSError: the operating system refuses it.
        """
        if self.restrained:
            if "cpu" in self.controllers:
                self._set_quota(_PERIOD_US)  # anew in each period; and at once
            if "memory" in self.controllers:
                self._set_memory(-1)
            self.restrained = False
        if pids_max != self.pids_max or not self.may_fork:
            self._limit_pids(str(pids_max) if pids_max else "max")
            self.pids_max, self.may_fork = pids_max, True
        self.oom_kills_before = self._oom_kills()

    @property
    def hierarchies(self) -> tuple[str, ...]:
        """The hierarchies in which a spawning process has to come home, in the order of
        `entry_fds`."""
        if self.kind is LimitsKind.V2:
            return ("pids",)
        return ("pids", *self.controllers, *(("cpu",) if self.least_cpu else ()))

    @property
    def empty(self) -> bool:
        """Whether all processes in the slot are gone, and reaped."""
        try:
            return os.pread(self.population_fd, 32, 0) == b"0\n"
        except OSError:  # somebody removed the cgroup, which is possible only when it is empty
            return True

    def pids(self) -> list[int]:
        """The processes in the slot."""
        return members_of(self.directories["pids"])

    def signal(self, number: int) -> None:
        """Signal all processes in the slot and no others, although a pid may belong to a new
        process by now."""
        pids = self.pids()
        for first in range(0, len(pids), _SIGNALLED_TOGETHER):
            self._signal(pids[first : first + _SIGNALLED_TOGETHER], number)

    def kill(self) -> None:
        """Forbid forking in the slot, and kill all processes. Some may still be dying when this
        returns, and new ones may come if forking could not be forbidden: repeat it until
        `empty`."""
        if self.may_fork:
            self.may_fork = False
            with suppress(OSError):  # somebody removed the cgroup
                self._limit_pids("0")
        self.signal(signal.SIGKILL)

    def oom_kills(self) -> int:
        """How many processes were killed for lack of memory since the kernel began."""
        return self._oom_kills() - self.oom_kills_before

    def remove(self) -> None:
        for fd in (*self.entry_fds, self.population_fd, self.counts_fd):
            if fd >= 0:
                os.close(fd)
        for directory in set(self.directories.values()):
            with suppress(OSError):
                os.rmdir(directory)

    def _signal(self, pids: Iterable[int], number: int) -> None:
        pidfds: dict[int, int] = {}
        try:
            for pid in pids:
                with suppress(OSError):
                    pidfds[pid] = os.pidfd_open(pid)
            for pid in self.pids():  # a pid that is still listed is the process that was opened
                if pid in pidfds:
                    with suppress(OSError):
                        signal.pidfd_send_signal(pidfds[pid], number)
        finally:
            for fd in pidfds.values():
                os.close(fd)

    def _limit_pids(self, text: str) -> None:
        write_file(f"{self.directories['pids']}/pids.max", text)

    def _set_quota(self, quota_us: int) -> None:
        directory = self.directories["cpu"]
        if self.kind is LimitsKind.V2:
            write_file(f"{directory}/cpu.max", f"{quota_us} {_PERIOD_US}")
        else:
            write_file(f"{directory}/cpu.cfs_quota_us", str(quota_us))

    def _set_memory(self, limit_bytes: int) -> None:
        directory = self.directories["memory"]
        if self.kind is LimitsKind.V2:
            write_file(f"{directory}/memory.max", "max" if limit_bytes < 0 else str(limit_bytes))
            with suppress(OSError):  # absent without swap
                write_file(f"{directory}/memory.swap.max", "max" if limit_bytes < 0 else "0")
            return
        # The limit with swap must never be the smaller one; it is absent where swap is not
        # accounted for.
        both = [f"{directory}/memory.limit_in_bytes", f"{directory}/memory.memsw.limit_in_bytes"]
        if limit_bytes < 0:
            with suppress(OSError):
                write_file(both[1], "-1")
        write_file(both[0], str(limit_bytes))
        if limit_bytes >= 0:
            with suppress(OSError):
                write_file(both[1], str(limit_bytes))

    def _oom_kills(self) -> int:
        if self.counts_fd >= 0:
            with suppress(OSError):  # somebody removed the cgroup
                for line in os.pread(self.counts_fd, 4096, 0).splitlines():
                    name, _, value = line.partition(b" ")
                    if name == b"oom_kill":
                        return int(value)
        return 0


class Cgroups:
    """The slots of one supervisor, below a directory a hierarchy named after its own."""

    def __init__(self, kind: LimitsKind, parents: dict[str, str], homes: dict[str, str]) -> None:
        """
        Args:
            parents: of pids, cpu and memory, the directories in which slots are made.
            homes: of the same controllers, the files through which this process goes back to its
                cgroup.

        Raises:
            OSError: one of the homes cannot be opened, or a cgroup not be made.
        """
        self.kind = kind
        self.homes = homes
        self._parents = parents
        self._home_fds = {name: _open(path, os.O_WRONLY) for name, path in homes.items()}
        self._spare: dict[tuple[tuple[str, ...], bool], list[Slot]] = {}
        self._spare_count = 0
        self._last_name = 0
        self._least = self._make_least()

    def acquire(self, limits: KernelLimits) -> Slot:
        """An empty slot; `Slot.enforce` is to follow once a process is in it.

        Raises:
            OSError: the operating system refuses to make one.
        """
        spare = self._spare.get((limits.controllers, limits.least_cpu))
        if spare:
            self._spare_count -= 1
            slot = spare.pop()
        else:
            slot = self._make(limits.controllers, limits.least_cpu)
        try:
            slot.reset(limits.pids)
        except OSError:
            slot.remove()
            raise
        return slot

    def release(self, slot: Slot) -> None:
        """Take back a slot whose kernel is gone."""
        if self._spare_count >= _MAX_SPARE:
            slot.remove()
            return
        self._spare_count += 1
        self._spare.setdefault((slot.controllers, slot.least_cpu), []).append(slot)

    def close(self) -> None:
        """Remove all slots."""
        for parent in set(self._parents.values()):
            remove_tree(parent)

    def _make_least(self) -> str:
        """The cgroup in which all kernels that asked for no cpu share what others leave."""
        least = f"{self._parents['cpu']}/{_LEAST}"
        os.mkdir(least)
        if self.kind is LimitsKind.V2:
            write_file(f"{least}/cgroup.subtree_control", "+cpu +memory +pids")
            write_file(f"{least}/cpu.weight", str(_LEAST_WEIGHT))
        else:
            write_file(f"{least}/cpu.shares", str(_LEAST_SHARES))
        return least

    def _make(self, controllers: tuple[str, ...], least_cpu: bool) -> Slot:
        self._last_name += 1
        hierarchies = ("pids", *controllers)
        entry = "tasks" if self.kind is LimitsKind.V1 else "cgroup.procs"
        slot = Slot(self.kind, controllers, least_cpu=least_cpu)
        slot.home_fds = [self._home_fds[name] for name in slot.hierarchies]
        try:
            for name in hierarchies:
                directory = f"{self._parent(name, least_cpu)}/{self._last_name}"
                if directory not in slot.directories.values():
                    os.mkdir(directory)
                    slot.entry_fds.append(_open(f"{directory}/{entry}", os.O_WRONLY))
                slot.directories[name] = directory
            if self.kind is LimitsKind.V1 and least_cpu:
                slot.entry_fds.append(_open(f"{self._least}/{entry}", os.O_WRONLY))
            pids_directory = slot.directories["pids"]
            slot.population_fd = _open(f"{pids_directory}/pids.current", os.O_RDONLY)
            if "cpu" in controllers:
                if self.kind is LimitsKind.V1:
                    write_file(f"{slot.directories['cpu']}/cpu.cfs_period_us", str(_PERIOD_US))
                slot.restrained = True  # so that it begins with a quota, which is only changed then
            if "memory" in controllers:
                counts = "memory.events" if self.kind is LimitsKind.V2 else "memory.oom_control"
                slot.counts_fd = _open(f"{slot.directories['memory']}/{counts}", os.O_RDONLY)
        except OSError:
            slot.remove()
            raise
        return slot

    def _parent(self, controller: str, least_cpu: bool) -> str:
        is_least = self.kind is LimitsKind.V2 and least_cpu
        return self._least if is_least else self._parents[controller]


def enter(entry_fds: Sequence[int]) -> None:
    """Move this process, which must have one thread, into a slot; its children are born there. It
    has to `go_home` after that, even if this raises.

    Raises:
        OSError: the operating system refuses it.
    """
    for fd in entry_fds:
        os.write(fd, b"0")


def go_home(home_fds: Sequence[int]) -> None:
    """Move this process back.

    Raises:
        OSError: the operating system refuses the move, again and again.
    """
    for fd in home_fds:
        for attempt in range(1, _HOMECOMINGS + 1):
            try:
                os.write(fd, b"0")
                break
            except OSError:
                if attempt == _HOMECOMINGS:
                    raise


def remove_tree(directory: str) -> None:
    """Kill all processes in a cgroup and below, and remove it, if it exists.

    Raises:
        OSError: a process does not die, or the directory may not be removed.
    """
    deadline_s = time.monotonic() + _EMPTYING_TIMEOUT_S
    while os.path.isdir(directory):
        try:
            for path, _, _ in os.walk(directory, topdown=False):
                with suppress(OSError):  # other hierarchies lack this file
                    write_file(f"{path}/pids.max", "0")
                for pid in members_of(path):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                os.rmdir(path)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.005)


def _quota_us(limits: KernelLimits) -> int:
    return max(_MIN_QUOTA_US, limits.cpu_milli * _PERIOD_US // 1000)


def members_of(directory: str) -> list[int]:
    try:
        with open(f"{directory}/cgroup.procs") as lines:
            return [int(line) for line in lines]
    except OSError:  # it was removed, perhaps with the file open
        return []


def write_file(path: str, text: str) -> None:
    fd = _open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC)
