"""Bindings: reserved room is taken out of the snapshot of a pass while sessions that may not use
that room are placed."""

from collections.abc import Container, Iterable, Iterator, Sequence

import numpy as np

from muster.core.ids import SessionId
from muster.scheduling.cluster.columns import Bulk
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.making_room.reservation import Reservation
from muster.scheduling.workload import KernelPlacement, WorkloadClass


class Binding:
    """The room of one reservation, which is taken out of the snapshot while sessions that the
    reservation binds are placed.

    A session that the reservation does not bind may be placed in reserved room, because it ends in
    time. Room that was lent to such a session is not reserved any more, and other free room of the
    agent need not be reserved in its place.
    """

    def __init__(self, reservation: Reservation, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._bound = False
        columns, reserved = snapshot.columns, reservation.reserved
        slots = [snapshot.slot(room.agent_id) for room in reserved]
        shares = [
            (slot, share.index, share.milli)
            for slot, room in zip(slots, reserved, strict=True)
            for share in room.shares
        ]
        amounts = [columns.amounts(room.resources) for room in reserved]
        table = np.array(amounts, np.int64).reshape(len(reserved), len(columns.dimensions)).T
        where, devices, milli = np.array(shares, np.int64).reshape(-1, 3).T
        # Room that was taken since the last pass kept it cannot be reserved.
        free = np.maximum(columns.free[slots].T, 0) if slots else table
        free_milli = np.maximum(columns.device_free[where, devices], 0)
        self._bulk = Bulk(
            np.array(slots, np.int64),
            np.minimum(table, free),
            where,
            devices,
            np.minimum(milli, free_milli),
        )
        self._entry = {slot: entry for entry, slot in enumerate(slots)}
        self._share = {(slot, index): entry for entry, (slot, index, _) in enumerate(shares)}

    def bind(self) -> None:
        """Take the reserved room; nothing happens if it is taken."""
        if not self._bound:
            self._snapshot.columns.move_all(self._bulk, -1)
        self._bound = True

    def lift(self) -> None:
        """Give the reserved room back; nothing happens if it is not taken."""
        if self._bound:
            self._snapshot.columns.move_all(self._bulk)
        self._bound = False

    def lend(self, workload: WorkloadClass, kernels: Sequence[KernelPlacement]) -> None:
        """Lend reserved room to a session that ends in time, and took these places while the
        reserved room was given back."""
        assert not self._bound, "it chose its place beside the reserved room"
        columns, bulk = self._snapshot.columns, self._bulk
        for request, kernel in zip(workload.kernels, kernels, strict=True):
            slot = self._snapshot.slot(kernel.agent_id)
            entry = self._entry.get(slot)
            if entry is not None:
                left = bulk.amounts[:, entry] - columns.amounts(request)
                bulk.amounts[:, entry] = np.maximum(left, 0)
            for share in kernel.shares:
                entry = self._share.get((slot, share.index))
                if entry is not None:
                    bulk.device_milli[entry] = max(0, bulk.device_milli[entry] - share.milli)


class Bindings:
    """The reservations of a pass in the order of the queue, each with its Binding.

    Args:
        runs_from: when a session that the pass places will run at the latest.
    """

    def __init__(self, snapshot: Snapshot, runs_from: float) -> None:
        self._snapshot = snapshot
        self._runs_from = runs_from
        self._all: list[tuple[Reservation, Binding]] = []

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Reservation]:
        return (reservation for reservation, _ in self._all)

    def add(self, reservation: Reservation) -> None:
        """Keep the room of one more reservation."""
        self._all.append((reservation, Binding(reservation, self._snapshot)))

    def of(self, workload: WorkloadClass) -> list[Reservation]:
        """The reservations that bind sessions of the class."""
        return [each for each, _ in self._all if not each.admits(workload, self._runs_from)]

    def bind_for(self, workload: WorkloadClass, spared: Container[SessionId] = ()) -> None:
        """Take reserved room from the snapshot, except room on which sessions of the class may
        stand, and room kept for ``spared`` sessions."""
        for reservation, binding in self._all:
            if reservation.session in spared or reservation.admits(workload, self._runs_from):
                binding.lift()
            else:
                binding.bind()

    def lift(self) -> None:
        """Give all reserved room back."""
        for _, binding in self._all:
            binding.lift()

    def lift_one_by_one(self, workload: WorkloadClass) -> Iterator[Reservation]:
        """The reservations that bind sessions of the class, each after its room was given back."""
        for reservation, binding in self._all:
            if not reservation.admits(workload, self._runs_from):
                binding.lift()
                yield reservation

    def lend(self, workload: WorkloadClass, places: Iterable[Sequence[KernelPlacement]]) -> None:
        """Lend reserved room to sessions of the class that took these places, where they end in
        time for that."""
        for reservation, binding in self._all:
            if reservation.admits(workload, self._runs_from) and not reservation.is_of(workload):
                for kernels in places:
                    binding.lend(workload, kernels)

    def use(self, workload: WorkloadClass, places: Iterable[Sequence[KernelPlacement]]) -> None:
        """Keep one room less for each session of the class that took these places, of those that
        are kept for the whole class: that which the session took, if it took one."""
        rooms = [each for each, _ in self._all if each.is_of(workload)]
        used = set[SessionId]()
        for kernels in places:
            if not rooms:
                break
            room = min(rooms, key=lambda each: _distance(each.kernels, kernels))
            rooms.remove(room)
            used.add(room.session)
        if used:
            self._all = [each for each in self._all if each[0].session not in used]


def _distance(kept: Sequence[KernelPlacement], taken: Sequence[KernelPlacement]) -> int:
    """0 between equal places, 1 between others on the same agents, else 2."""
    if tuple(kept) == tuple(taken):
        return 0
    on = [each.agent_id for each in kept]
    return 1 if on == [each.agent_id for each in taken] else 2
