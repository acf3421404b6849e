"""Reaping: which kernels are gone, with everything that ever belonged to them.

A kernel is gone once its main process and every descendant have been reaped. The supervisor is a
child subreaper, so whatever a kernel leaves behind becomes a child of the supervisor when its
parent dies: as long as the list of children holds no stranger, no dead kernel has left anything.
That one read of /proc after a round of reaping is all it costs when nothing was left.
"""

import os
import signal
from contextlib import suppress

from muster.agent.supervisor.kernel import Kernel
from muster.agent.supervisor.process_tree import (
    Children,
    descendants,
    kernel_tag,
    signal_groups,
)
from muster.agent.supervisor.protocol import Key

_REAPS_A_TURN = 16  # each may start an heir, and sockets and pipes must get their turn


class Reaper:
    """All children of the supervisor and the kernels they belong to."""

    def __init__(self, directory: str, children: Children) -> None:
        self._directory = directory
        self._children = children
        self._owners: dict[int, Kernel | None] = {}  # child -> kernel; None: a stray or a helper
        self._kernels: dict[Key, Kernel] = {}  # those not yet gone
        self._leaving: list[Kernel] = []  # main process reaped, others perhaps not
        # Children without a trace of their kernel -> those that may be it. They end with the last.
        self._strays: dict[int, set[Kernel]] = {}
        self.due = False  # the last round stopped at its bound

    @property
    def waiting(self) -> bool:
        """Whether kernels are dying whose last processes are not reaped yet."""
        return bool(self._leaving)

    def add(self, kernel: Kernel) -> None:
        """A kernel's main process was spawned."""
        self._owners[kernel.pid] = self._kernels[kernel.key] = kernel

    def add_helper(self, pid: int) -> None:
        """A process of the supervisor's own was spawned, to be reaped and nothing more."""
        self._owners[pid] = None

    def reap(self) -> list[Kernel]:
        """Reap what has died and kill what it left; returns the kernels that are now gone."""
        self._wait()
        self._adopt()
        if not self._leaving:
            return []
        gone = []
        leaving = []
        for kernel in self._leaving:
            if not kernel.orphans:
                del self._kernels[kernel.key]
                gone.append(kernel)
                continue
            leaving.append(kernel)
            if not kernel.in_grace:
                self.signal(kernel, signal.SIGKILL)
        self._leaving = leaving
        if self._strays and gone:
            self._end_strays(gone)
        return gone

    def signal(self, kernel: Kernel, number: int) -> None:
        """Signal all processes of a kernel, wherever in its tree and in whatever session."""
        self._adopt()
        roots = set(kernel.orphans)
        if kernel.wait_status is None:
            roots.add(kernel.pid)
        members = {pid for root in roots for pid in descendants(root)}
        if kernel.slot is not None:
            members.update(kernel.slot.pids())
        signal_groups(members, number)

    def _wait(self) -> None:
        self.due = False
        for _ in range(_REAPS_A_TURN):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            kernel = self._owners.pop(pid, None)
            if kernel is None:
                self._strays.pop(pid, None)
            elif pid == kernel.pid and kernel.wait_status is None:
                kernel.wait_status = status
                self._leaving.append(kernel)
            else:
                kernel.orphans.discard(pid)
        self.due = True

    def _adopt(self) -> None:
        """Find out whose the children are that are new here."""
        # Those known are all still there, for only we reap them: so a number tells of strangers.
        if self._children.count() == len(self._owners):
            return
        for pid in self._children.pids():
            if pid in self._owners:
                continue
            kernel = self._owners[pid] = self._owner(pid)
            if kernel is None:
                self._strays[pid] = set(self._kernels.values())
                if not self._strays[pid]:
                    signal_groups(descendants(pid), signal.SIGKILL)
                continue
            kernel.orphans.add(pid)
            if kernel.slot is not None:
                with suppress(OSError):  # dying; it is there already unless forked at the start
                    kernel.slot.place(pid)

    def _owner(self, pid: int) -> Kernel | None:
        session = 0
        with suppress(ProcessLookupError):
            session = os.getsid(pid)
        tag = kernel_tag(pid, self._directory)
        for kernel in reversed(self._kernels.values()):  # the newest, if a pid was used again
            if kernel.pid == session or kernel.key == tag:
                return kernel
            if kernel.slot is not None and pid in kernel.slot.pids():
                return kernel
        return None

    def _end_strays(self, gone: list[Kernel]) -> None:
        for pid, suspects in self._strays.items():
            suspects.difference_update(gone)
            if not suspects:
                signal_groups(descendants(pid), signal.SIGKILL)
