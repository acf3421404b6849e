"""Room that comes free as running sessions leave, tried on a copy of the snapshot, many at a time.

A reservation looks for the number of sessions with a known end that must have ended; a preemption
for the number of displaceable sessions that must leave. Both are the same search: for the shortest
beginning of a given order of sessions whose departure makes enough room.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import TypeAlias

import numpy as np

from muster.core.resources import Resources
from muster.core.specs.placement import ClusterMode
from muster.scheduling.cluster.columns import Bulk, Flags, Floats, Ints
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fit_session
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import KernelPlacement, RunningSession, WorkloadClass

Entries: TypeAlias = Ints | Flags | slice


class Occupancy:
    """The holdings of sessions in a snapshot, as arrays: an entry for each kernel, and one for each
    device share.

    Kernels on agents that the snapshot lacks are left out.

    Args:
        of_kernel: the session of each kernel, as an index into ``sessions``, ascending.
        slots: the slot of each kernel.
        kernel_of_share: the kernel's entry to which each share belongs.
    """

    def __init__(self, snapshot: Snapshot, sessions: Sequence[RunningSession]) -> None:
        self.sessions = sessions
        counts = np.array([len(session.kernels) for session in sessions], np.int64)
        kernels = [kernel for session in sessions for kernel in session.kernels]
        whose = np.repeat(np.arange(counts.size), counts)
        requests, codes = _requests(sessions, counts)
        ids = [kernel.agent_id for kernel in kernels]
        slots = snapshot.slots_among(ids)
        if len(slots) < len(ids):
            here = [bool(snapshot.slots_among((id_,))) for id_ in ids]
            kernels, whose, codes = list(compress(kernels, here)), whose[here], codes[here]
        shares = [share for kernel in kernels for share in kernel.shares]
        counts = np.array([len(kernel.shares) for kernel in kernels], np.int64)
        columns = snapshot.columns
        amounts = np.zeros((len(columns.dimensions), len(requests)), np.int64)
        for code, request in enumerate(requests):
            amounts[:, code] = columns.amounts(request)
        self.of_kernel: Ints = whose
        self.slots: Ints = np.array(slots, np.int64)
        self.kernel_of_share: Ints = np.repeat(np.arange(counts.size), counts)
        self._amounts: Ints = amounts[:, codes]
        self._devices: Ints = np.array([share.index for share in shares], np.int64)
        self._milli: Ints = np.array([share.milli for share in shares], np.int64)

    def part(self, kernels: Entries, shares: Entries) -> Bulk:
        """The chosen entries."""
        return Bulk(
            self.slots[kernels],
            self._amounts[:, kernels],
            self.slots[self.kernel_of_share[shares]],
            self._devices[shares],
            self._milli[shares],
        )

    def of(self, sessions: Ints) -> Bulk:
        """All holdings of the sessions with these indexes."""
        kernels = np.isin(self.of_kernel, sessions)
        return self.part(kernels, kernels[self.kernel_of_share])

    def on(self, slots: Ints) -> Ints:
        """The indexes of the sessions that have a kernel in one of ``slots``, ascending."""
        return np.unique(self.of_kernel[np.isin(self.slots, slots)])


def _requests(sessions: Sequence[RunningSession], counts: Ints) -> tuple[list[Resources], Ints]:
    """The distinct requests of the sessions' kernels, and for each kernel the index of its request.

    Args:
        counts: kernels by session.
    """
    codes: dict[Resources, int] = {}
    of_classes: list[int] = []  # codes of the kernels of each class, one class after the other
    starts: dict[int, int] = {}  # by the identity of a class
    for session in sessions:
        if id(session.workload) not in starts:
            starts[id(session.workload)] = len(of_classes)
            of_classes += [codes.setdefault(each, len(codes)) for each in session.workload.kernels]
    start = np.array([starts[id(session.workload)] for session in sessions], np.int64)
    before = np.cumsum(counts) - counts
    index = np.arange(counts.sum()) - np.repeat(before, counts)
    return list(codes), np.array(of_classes, np.int64)[np.repeat(start, counts) + index]


class InOrder:
    """The entries of an Occupancy in the order of their kernels' keys, for reading part by part."""

    def __init__(self, occupancy: Occupancy, keys: Floats) -> None:
        """
        Args:
            keys: one for each kernel.
        """
        self._occupancy = occupancy
        self._kernels = np.argsort(keys, kind="stable")
        self._shares = np.argsort(keys[occupancy.kernel_of_share], kind="stable")
        self._kernel_keys = keys[self._kernels]
        self._share_keys = keys[occupancy.kernel_of_share][self._shares]

    def between(self, after: float, upto: float) -> Bulk:
        """The entries with keys above ``after`` and not above ``upto``."""
        first, last = self._kernel_keys.searchsorted((after, upto), "right")
        first_share, last_share = self._share_keys.searchsorted((after, upto), "right")
        return self._occupancy.part(self._kernels[first:last], self._shares[first_share:last_share])


class Departures:
    """A copy of a snapshot from which sessions leave, group by group.

    Sessions with equal keys are a group; the group with the smallest key leaves first, and sessions
    with an infinite key stay. ``ends`` are the distinct keys, ascending: at ``step`` n, the groups
    with the first n of them have left.
    """

    def __init__(self, snapshot: Snapshot, occupancy: Occupancy, keys: Floats) -> None:
        self.snapshot = snapshot.copy()
        self.ends: Floats = np.unique(keys[np.isfinite(keys)])
        self.step = 0
        self._entries = InOrder(occupancy, keys[occupancy.of_kernel])

    @property
    def end(self) -> float:
        """The key of the group that left last; minus infinity if none has."""
        return float(self.ends[self.step - 1]) if self.step else -np.inf

    def go(self, step: int) -> None:
        """Change the copy so that exactly ``step`` groups have left."""
        before, self.step = self.end, step
        if before != self.end:
            bulk = self._entries.between(*sorted((before, self.end)))
            self.snapshot.columns.move_all(bulk, 1 if self.end > before else -1)

    def first(self, condition: Callable[[Snapshot], bool], low: int, high: int) -> int | None:
        """The first step from ``low`` to ``high`` from which on ``condition`` is true; None if
        ``condition`` is false even at ``high``."""
        self.go(high)
        if low > high or not condition(self.snapshot):
            return None
        while low < high:
            middle = (low + high) // 2
            self.go(middle)
            if condition(self.snapshot):
                high = middle
            else:
                low = middle + 1
        self.go(high)
        return high

    def earliest_fit(
        self, workload: WorkloadClass, selector: AgentSelector, last: int | None = None
    ) -> tuple[KernelPlacement, ...] | None:
        """The places of the class once as few groups as possible have left, at most ``last``; None
        if the class does not fit even then. The copy is left at that step.

        Raises:
            MusterError: the selector answers nonsense.
        """
        last = len(self.ends) if last is None else last
        # Counting is cheap and nearly always right, so that a session is tried only where it fits.
        low = self.first(lambda snapshot: may_fit(snapshot, workload), 0, last)
        if low is None:
            return None
        found = fits(self.snapshot, selector, workload)
        if found is not None or low == last:
            return found
        tried: dict[int, tuple[KernelPlacement, ...] | None] = {}

        def condition(snapshot: Snapshot) -> bool:
            tried[self.step] = fits(snapshot, selector, workload)
            return tried[self.step] is not None

        step = self.first(condition, low + 1, last)
        return None if step is None else tried[step]


def may_fit(snapshot: Snapshot, workload: WorkloadClass) -> bool:
    """Whether there is room for each distinct request by itself; otherwise there is none for all of
    them together."""
    mask, columns, limit = eligible(snapshot, workload), snapshot.columns, workload.placement
    single = limit.mode is ClusterMode.SINGLE_NODE
    for request, indexes in workload.requests:
        slots = columns.fitting(request)
        if mask is not None:
            slots = slots[mask[slots]]
        most = min(len(indexes), limit.max_kernels_per_agent or len(indexes))
        copies = columns.copies(request, slots, most)
        room = copies.max(initial=0) if single else copies.sum()
        if room < len(indexes):
            return False
    return True


def fits(
    snapshot: Snapshot, selector: AgentSelector, workload: WorkloadClass
) -> tuple[KernelPlacement, ...] | None:
    """The places that the class would get; nothing is taken."""
    with Statement(snapshot) as statement:
        return fit_session(statement, selector, workload).kernels
