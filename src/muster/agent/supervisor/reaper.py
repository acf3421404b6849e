"""Reaping: finds kernels that are gone, with every process that ever belonged to them.

A kernel is gone once its main process was reaped and its cgroup is empty, to the last zombie.
Processes that are left in the cgroup are killed, and reaped by the supervisor, which is a child
subreaper. Without cgroups `Orphans` finds the processes that are left.
"""

import os
import signal

from muster.agent.supervisor.kernel import OwnKernel
from muster.agent.supervisor.orphans import OrphanProcesses
from muster.agent.supervisor.protocol import Key

_MAX_REAPS = 16  # each may start an heir; sockets and pipes must not wait long


class Reaper:
    """All children of the supervisor, and the kernels to which they belong."""

    def __init__(self, orphans: OrphanProcesses | None) -> None:
        """`orphans` is None where each kernel has a cgroup."""
        self._orphans = orphans
        self._mains: dict[int, OwnKernel] = {}  # main processes
        self._children: set[int] = set()  # known children: mains and helpers
        self._kernels: dict[Key, OwnKernel] = {}  # kernels that are not gone yet
        self._leaving: list[OwnKernel] = []  # main process reaped, others perhaps not
        self.due = False  # the last round stopped at its bound

    @property
    def waiting(self) -> bool:
        """Whether kernels are dying whose last processes are not reaped yet."""
        return bool(self._leaving)

    def add(self, kernel: OwnKernel) -> None:
        """Add a kernel whose main process was spawned as a child of this process."""
        self._mains[kernel.pid] = self._kernels[kernel.key] = kernel
        self._children.add(kernel.pid)

    def add_of_another(self, kernel: OwnKernel) -> None:
        """Add a kernel whose main process was spawned as a child of another process."""
        self._mains[kernel.pid] = self._kernels[kernel.key] = kernel

    def main_ended(self, kernel: OwnKernel, wait_status: int) -> None:
        """Note that a main process was reaped, by this process or by its parent."""
        if kernel.wait_status is not None:
            return
        if self._mains.get(kernel.pid) is kernel:  # its pid may have a new owner by now
            del self._mains[kernel.pid]
        kernel.wait_status = wait_status
        self._leaving.append(kernel)

    def lose(self, kernel: OwnKernel) -> None:
        """Give up a kernel whose end will never be reported, and kill all of its processes."""
        self._kernels[kernel.key] = kernel
        self.main_ended(kernel, int(signal.SIGKILL))

    def add_helper(self, pid: int) -> None:
        """Add a process of the supervisor's own, to be reaped and nothing more."""
        self._children.add(pid)

    def reap(self) -> list[OwnKernel]:
        """Reap dead processes and kill those that their kernels left; returns the kernels that are
        now gone."""
        self._wait()
        self._adopt()
        if not self._leaving:
            return []
        gone = []
        leaving = []
        for kernel in self._leaving:
            if kernel.slot.empty if kernel.slot is not None else not kernel.orphans:
                del self._kernels[kernel.key]
                gone.append(kernel)
                continue
            leaving.append(kernel)
            if not kernel.in_grace:
                self.kill(kernel)
        self._leaving = leaving
        if self._orphans is not None and gone:
            self._orphans.end_strays(gone)
        return gone

    def signal(self, kernel: OwnKernel, number: int) -> None:
        """Signal all processes of a kernel, anywhere in its tree and in any session."""
        if kernel.slot is not None:
            kernel.slot.signal(number)
        elif self._orphans is not None:
            self._adopt()
            self._orphans.signal(kernel, number)

    def kill(self, kernel: OwnKernel) -> None:
        """Kill all processes of a kernel, and let it make no more."""
        if kernel.slot is not None:
            kernel.slot.kill()
        else:
            self.signal(kernel, signal.SIGKILL)

    def _wait(self) -> None:
        self.due = False
        for _ in range(_MAX_REAPS):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._children.discard(pid)
            kernel = self._mains.get(pid)
            if kernel is not None:
                self.main_ended(kernel, status)
            elif self._orphans is not None:
                self._orphans.forget(pid)
        self.due = True

    def _adopt(self) -> None:
        if self._orphans is not None:
            self._orphans.adopt(self._children, self._mains, self._kernels.values())
