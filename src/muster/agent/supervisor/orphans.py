"""Where there are no cgroups: whose the processes are that a kernel left, by what /proc tells.

The last resort. The supervisor is a child subreaper, so whatever a kernel leaves behind becomes a
child of the supervisor when its parent dies: as long as the list of children holds no stranger, no
dead kernel has left anything. That one read of /proc after a round of reaping is all it costs then.
Whose a stranger is, its session says, or else its environment, which a process may forge: so that
is believed only of the kernel's own user.
"""

# os and not pathlib: see the docstring of the package.

import os
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress

from muster.agent.supervisor.kernel import Kernel
from muster.agent.supervisor.process_tree import (
    Children,
    descendants,
    kernel_tag,
    signal_groups,
    user_of,
)


class Orphans:
    """The children of the supervisor that are nobody's main process."""

    def __init__(self, directory: str, children: Children) -> None:
        self._directory = directory
        self._children = children
        self._known: dict[int, Kernel | None] = {}  # None: a stray
        # Children without a trace of their kernel -> those that may be it. They end with the last.
        self._strays: dict[int, set[Kernel]] = {}

    def forget(self, pid: int) -> None:
        """A child was reaped."""
        kernel = self._known.pop(pid, None)
        if kernel is not None:
            kernel.orphans.discard(pid)
        self._strays.pop(pid, None)

    def adopt(self, own: set[int], mains: Collection[int], kernels: Iterable[Kernel]) -> None:
        """Find out whose the children are that are new here; `own` are known otherwise, and become
        more by those of `mains` whose parent has died."""
        # Those known are all still there, for only we reap them: so a number tells of strangers.
        if self._children.count() == len(own) + len(self._known):
            return
        candidates = list(reversed(list(kernels)))  # the newest, if a pid was used again
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

    def signal(self, kernel: Kernel, number: int) -> None:
        """Signal all processes of a kernel, wherever in its tree and in whatever session."""
        roots = set(kernel.orphans)
        if kernel.wait_status is None and kernel.pid:
            roots.add(kernel.pid)
        signal_groups({pid for root in roots for pid in descendants(root)}, number)

    def end_strays(self, gone: Iterable[Kernel]) -> None:
        """Kill strays that can belong only to kernels that are gone."""
        for pid, suspects in self._strays.items():
            suspects.difference_update(gone)
            if not suspects:
                signal_groups(descendants(pid), signal.SIGKILL)

    def _owner(self, pid: int, candidates: Iterable[Kernel]) -> Kernel | None:
        session = 0
        with suppress(ProcessLookupError):
            session = os.getsid(pid)
        tag = kernel_tag(pid, self._directory)
        for kernel in candidates:
            if kernel.pid == session or (kernel.key == tag and user_of(pid) == kernel.uid):
                return kernel
        return None
