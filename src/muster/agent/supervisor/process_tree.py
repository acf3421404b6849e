"""The relations of processes, from /proc."""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH123, PTH208

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from muster.agent.supervisor.protocol import Key

# In the environment of each kernel, so that a process that has left its session is still known.
ID_VARIABLE = "MUSTER_KERNEL_ID"
GENERATION_VARIABLE = "MUSTER_GENERATION"
SUPERVISOR_VARIABLE = "MUSTER_SUPERVISOR"  # the directory: another's kernels may have equal ids

_PR_SET_CHILD_SUBREAPER = 36
_PAGE_BYTES = 4096


class Children:
    """This process's children, which orphans of their trees join."""

    def __init__(self) -> None:
        """
        Raises:
            OSError: the operating system lacks child subreapers or /proc/<pid>/task/<tid>/children.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot become a child subreaper")
        self._fd = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)

    def count(self) -> int:
        """The number of children, zombies included."""
        return self._read().count(b" ")

    def pids(self) -> list[int]:
        """The pids of all children. The list is complete, because nobody else reaps them
        meanwhile."""
        return [int(pid) for pid in self._read().split()]

    def _read(self) -> bytes:
        data = os.pread(self._fd, _PAGE_BYTES, 0)
        if len(data) > _PAGE_BYTES // 2:  # a shorter answer is whole: /proc fills pages
            while more := os.pread(self._fd, _PAGE_BYTES, len(data)):
                data += more
        return data


def descendants(pid: int) -> Iterator[int]:
    """The process and all of its descendants, parents first; some may be missed while they fork."""
    stack = [pid]
    while stack:
        parent = stack.pop()
        yield parent
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as children:
                    stack.extend(int(child) for child in children.read().split())


def signal_groups(pids: Iterable[int], number: int) -> None:
    """Signal the process groups of `pids`, each once.

    Signals are sent to groups because that reaches all members at once, even processes that are
    just being forked. The groups of a kernel hold no other process: its main process began a
    session, and a group lies within one.
    """
    groups = set()
    for pid in pids:
        with suppress(ProcessLookupError):
            groups.add(os.getpgid(pid))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def kernel_tag(pid: int, directory: str) -> Key | None:
    """The kernel to which a process belongs by its environment; None if it is no kernel of this
    supervisor."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            entries = environ.read().split(b"\0")
    except OSError:
        return None
    if f"{SUPERVISOR_VARIABLE}={directory}".encode() not in entries:
        return None
    id_prefix, generation_prefix = f"{ID_VARIABLE}=".encode(), f"{GENERATION_VARIABLE}=".encode()
    kernel_id = generation = None
    for entry in entries:
        if entry.startswith(id_prefix):
            kernel_id = entry[len(id_prefix) :].decode(errors="replace")
        elif entry.startswith(generation_prefix) and entry[len(generation_prefix) :].isdigit():
            generation = int(entry[len(generation_prefix) :])
    return None if kernel_id is None or generation is None else (kernel_id, generation)


def user_of(pid: int) -> int | None:
    """The user as which a process runs; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"Uid:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/<pid>/stat that say who a process is."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int


def read_stat(pid: int) -> ProcessStat | None:
    """The fields for a process; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            data = stat.read()
    except OSError:
        return None
    fields = data[data.rindex(b")") + 2 :].split()  # the name in front may hold anything
    return ProcessStat(
        pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
    )


def all_processes() -> list[ProcessStat]:
    """The ProcessStat of each process of the machine."""
    stats = (read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [stat for stat in stats if stat is not None]
