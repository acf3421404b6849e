"""Room that is kept for sessions whose other machines are coming (design: Autoscaling).

A gang that was routed to several slices gets its machines one slice after the other. What is there
of its room is kept for it meanwhile, so that no session behind it in the queue takes it; sessions
before it may. Room that only some sessions can use, while those before them have room coming
elsewhere, is kept from these too, for the one pass in which they get that room.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from muster.core.ids import AgentId, SessionId
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.making_room.reservation import Reservation, promised_room
from muster.scheduling.workload import KernelPlacement, WorkloadClass

Promised = Mapping[SessionId, tuple[WorkloadClass, tuple[KernelPlacement, ...]]]
"""The class of each session, and the places of its kernels by index."""


class Promises:
    """The room that is promised to sessions of a group: on agents that are there, and on machines
    that are coming, which have other names."""

    def __init__(self) -> None:
        self._kernels: dict[SessionId, tuple[WorkloadClass, tuple[KernelPlacement, ...]]] = {}
        self._first: dict[SessionId, None] = {}
        self.elsewhere: frozenset[WorkloadClass] = frozenset()
        """The classes from which the room of ``first`` is kept, wherever they stand."""

    def __len__(self) -> int:
        return len(self._kernels)

    @property
    def sessions(self) -> Collection[SessionId]:
        """The sessions to which room is promised."""
        return self._kernels.keys()

    @property
    def first(self) -> Collection[SessionId]:
        """The sessions whose promised room is kept from those before them, too."""
        return self._first.keys()

    def keep(
        self,
        kernels: Promised,
        first: Collection[SessionId] = (),
        elsewhere: frozenset[WorkloadClass] = frozenset(),
    ) -> bool:
        """Promise this room, and no other; whether that is a change.

        Args:
            first: sessions of one kernel whose room is kept from those before them, too.
            elsewhere: the classes from which it is kept so: those that can use other machines.
        """
        same = kernels == self._kernels and self._first.keys() == set(first)
        if same and elsewhere == self.elsewhere:
            return False
        self._kernels, self._first = dict(kernels), dict.fromkeys(first)
        self.elsewhere = elsewhere
        return True

    def came(self, agents: Mapping[AgentId, AgentId]) -> None:
        """Note that machines have become agents.

        Args:
            agents: by the names of the machines that were coming.
        """
        for id_, (workload, kernels) in self._kernels.items():
            moved = tuple(
                replace(each, agent_id=agents.get(each.agent_id, each.agent_id)) for each in kernels
            )
            self._kernels[id_] = workload, moved

    def of_class(self, workload: WorkloadClass) -> Iterator[SessionId]:
        """The sessions of a class to which room is promised that is not kept from those before."""
        for id_, (promised, _) in self._kernels.items():
            if promised == workload and id_ not in self._first:
                yield id_

    def reservation(
        self, id_: SessionId, snapshot: Snapshot, without: Collection[AgentId] = ()
    ) -> Reservation | None:
        """The promised room of a session, as far as it is on agents of the group, but for those
        ``without`` which it is; None if none of it is."""
        workload, places = self._kernels[id_]
        here = [
            (request, kernel)
            for request, kernel in zip(workload.kernels, places, strict=True)
            if kernel.agent_id not in without and _is_there(kernel, snapshot)
        ]
        if not here:
            return None
        present = replace(workload, kernels=tuple(request for request, _ in here))
        room = promised_room(id_, present, tuple(kernel for _, kernel in here), snapshot)
        return replace(room, of_class=id_ in self._first)


def _is_there(kernel: KernelPlacement, snapshot: Snapshot) -> bool:
    """Whether a promised place is on an agent of the group. A machine may come without the devices
    that were expected of it."""
    devices = snapshot.columns.device_free.shape[1]
    has_devices = all(share.index < devices for share in kernel.shares)
    return has_devices and bool(snapshot.slots_among((kernel.agent_id,)))
