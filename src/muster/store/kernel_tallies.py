"""Counts over the kernels of a session, which units of work keep."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from muster.core.states import KernelStatus

if TYPE_CHECKING:
    from muster.store.records import Kernel

_NONE: "Mapping[Kernel, None]" = MappingProxyType({})


class KernelTally:
    """Counts over the kernels of a session, so that a question about a gang need not visit all of
    its kernels."""

    __slots__ = ("_by_status", "_unjudged", "ended_well", "failed", "grace_s", "ready")

    def __init__(self, kernels: "Sequence[Kernel]") -> None:
        self.ended_well = sum(kernel.ended_well for kernel in kernels)
        """How many kernels exited with 0."""
        self.failed: dict[Kernel, None] = {}
        """The kernels that have a ``failure``."""
        self.ready: dict[Kernel, None] = {}
        """The kernels of a gang that are ready to run, and wait at its barrier."""
        self.grace_s = max((kernel.process.grace for kernel in kernels), default=0.0)
        """The longest grace of any of the kernels, in seconds."""
        self._by_status = Counter([kernel.status for kernel in kernels])
        self._unjudged: list[Kernel] = []

    def moved(self, kernel: "Kernel", before: KernelStatus) -> None:
        """Count a kernel under its status, and no longer under ``before``."""
        self._by_status[before] -= 1
        self._by_status[kernel.status] += 1
        if kernel.ended_well:
            self.ended_well += 1

    def among(self, statuses: Collection[str]) -> int:
        """How many kernels have one of these statuses."""
        return sum(count for status, count in self._by_status.items() if status in statuses)

    def note_failure(self, kernel: "Kernel") -> None:
        """Take note that the kernel has a ``failure`` or, if it is None, has none any more."""
        if kernel.failure is None:
            self.failed.pop(kernel, None)
        else:
            self.failed[kernel] = None
            self._unjudged.append(kernel)

    def take_unjudged(self) -> "Sequence[Kernel]":
        """The kernels whose failure was noted since the last call."""
        unjudged, self._unjudged = self._unjudged, []
        return unjudged

    def note_ready(self, kernel: "Kernel", ready: bool) -> None:
        """Take note that the kernel is ready to run, or no longer ready."""
        if ready:
            self.ready[kernel] = None
        else:
            self.ready.pop(kernel, None)


class LoneTally:
    """The tally of a session of one kernel, read from that kernel: such sessions are many."""

    __slots__ = ("_is_unjudged", "_kernel")

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._is_unjudged = False

    @property
    def ended_well(self) -> int:
        return int(self._kernel.ended_well)

    @property
    def failed(self) -> "Mapping[Kernel, None]":
        return _NONE if self._kernel.failure is None else {self._kernel: None}

    @property
    def ready(self) -> "Mapping[Kernel, None]":
        return _NONE  # a lone kernel waits at no barrier

    @property
    def grace_s(self) -> float:
        return self._kernel.process.grace

    def moved(self, kernel: "Kernel", before: KernelStatus) -> None:
        pass

    def among(self, statuses: Collection[str]) -> int:
        return int(self._kernel.status in statuses)

    def note_failure(self, kernel: "Kernel") -> None:
        self._is_unjudged = kernel.failure is not None

    def take_unjudged(self) -> "Sequence[Kernel]":
        if not self._is_unjudged:
            return ()
        self._is_unjudged = False
        return (self._kernel,)

    def note_ready(self, kernel: "Kernel", ready: bool) -> None:
        pass


def tally_of(kernels: "Sequence[Kernel]") -> KernelTally | LoneTally:
    """The tally of a session with these kernels."""
    return LoneTally(kernels[0]) if len(kernels) == 1 else KernelTally(kernels)


NO_KERNELS = KernelTally(())
