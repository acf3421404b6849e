"""Finds the kernel of processes that it left behind, by /proc, where there are no cgroups.

This is the last resort. The supervisor is a child subreaper, so a process that a kernel leaves
behind becomes a child of the supervisor when its parent dies. As long as the list of children has
no unknown process, no dead kernel has left any; then one read of /proc after a round of reaping is
the whole cost. An unknown process is matched to its kernel by its session, or else by its
environment. A process can forge its environment, so that is believed only of processes of the
kernel's own user.
"""

# os and not pathlib: see the docstring of the package.

import os
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress

from muster.agent.supervisor.kernel import OwnKernel
from muster.agent.supervisor.process_tree import (
    Children,
    descendants,
    kernel_tag,
    signal_groups,
    user_of,
)


class OrphanProcesses:
    """The children of the supervisor that are no kernel's main process."""

    def __init__(self, directory: str, children: Children) -> None:
        self._directory = directory
        self._children = children
        self._known: dict[int, OwnKernel | None] = {}  # None for a stray
        # Children without a trace of their kernel -> the kernels that it may be. They end with the
        # last of these.
        self._strays: dict[int, set[OwnKernel]] = {}

    def forget(self, pid: int) -> None:
        """Forget a child that was reaped."""
        kernel = self._known.pop(pid, None)
        if kernel is not None:
            kernel.orphans.discard(pid)
        self._strays.pop(pid, None)

    def adopt(self, own: set[int], mains: Collection[int], kernels: Iterable[OwnKernel]) -> None:
        """Find the kernels of new children. `own` are children that are known otherwise, to which
        `mains` whose parent has died are added."""
        # All known children still exist, because only this process reaps them: so a number tells of
        # strangers.
        if self._children.count() == len(own) + len(self._known):
            return
        candidates = list(reversed(list(kernels)))  # the newest first, in case a pid was used again
        for pid in self._children.pids():
            if pid in mains:
                own.add(pid)
            if pid in own or pid in self._known:
                continue
            kernel = self._known[pid] = self._owner(pid, candidates)
            if kernel is not None:
                kernel.orphans.add(pid)
                continue
            uid = user_of(pid)
            suspects = {kernel for kernel in candidates if kernel.uid == uid}
            self._strays[pid] = suspects or set(candidates)  # root's may be anybody by now
            if not candidates:
                signal_groups(descendants(pid), signal.SIGKILL)

    def signal(self, kernel: OwnKernel, number: int) -> None:
        """Signal all processes of a kernel, anywhere in its tree and in any session."""
        roots = set(kernel.orphans)
        if kernel.wait_status is None and kernel.pid:
            roots.add(kernel.pid)
        signal_groups({pid for root in roots for pid in descendants(root)}, number)

    def end_strays(self, gone: Iterable[OwnKernel]) -> None:
        """Kill strays that can belong only to kernels that are gone."""
        for pid, suspects in self._strays.items():
            suspects.difference_update(gone)
            if not suspects:
                signal_groups(descendants(pid), signal.SIGKILL)

    def _owner(self, pid: int, candidates: Iterable[OwnKernel]) -> OwnKernel | None:
        session = 0
        with suppress(ProcessLookupError):
            session = os.getsid(pid)
        tag = kernel_tag(pid, self._directory)
        for kernel in candidates:
            if kernel.pid == session or (kernel.key == tag and user_of(pid) == kernel.uid):
                return kernel
        return None
