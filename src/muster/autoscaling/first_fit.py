"""Room for equal kernels without rules among each other, on the first machine that has it.

Placement looks for the best machine; demand only asks which machines are needed. Agents that are
there come first, then machines that are coming, then those to be made.
"""

from itertools import chain

from muster.scheduling.cluster.columns import Need, Shares
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.devices import choose
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.workload import KernelPlacement, WorkloadClass


class FirstFit:
    """A statement in which room is taken."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._snapshot = statement.snapshot
        self._needs: dict[WorkloadClass, Need | None] = {}
        self._last: dict[WorkloadClass, int] = {}  # the machine that had room last, by class

    def fill(self, workload: WorkloadClass, count: int) -> list[KernelPlacement]:
        """Places for up to ``count`` kernels of a class, which all ask for the same; fewer if the
        room ends."""
        if workload not in self._needs:
            self._needs[workload] = self._snapshot.columns.need(workload.kernels[0])
        need, found = self._needs[workload], list[KernelPlacement]()
        if need is None:
            return found
        columns = self._snapshot.columns
        slot = self._last.get(workload)
        while len(found) < count:
            if slot is None or not columns.has_room(slot, need):
                slot = self._first(workload)
                if slot is None:
                    break
                self._last[workload] = slot
            found += self._take(need, slot, columns.room(slot, need, count - len(found)))
        return found

    def fill_whole(self, workload: WorkloadClass) -> list[KernelPlacement]:
        """Places for all kernels of a gang; where fewer are found, no room is taken."""
        mark = self._statement.mark()
        found = self.fill(workload, len(workload.kernels))
        if len(found) < len(workload.kernels):
            self._statement.rollback(mark)
            self._last.pop(workload, None)
        return found

    def _first(self, workload: WorkloadClass) -> int | None:
        snapshot = self._snapshot
        slots, mask = snapshot.columns.fitting(workload.kernels[0]), eligible(snapshot, workload)
        if mask is not None:
            slots = slots[mask[slots]]
        return int(slots[0]) if slots.size else None

    def _take(self, need: Need, slot: int, number: int) -> list[KernelPlacement]:
        snapshot, statement = self._snapshot, self._statement
        if not need.milli:
            statement.put(slot, need, (), number)
            return [snapshot.place(slot)] * number
        devices = need.devices_in(snapshot.columns.agent(slot))
        chosen = choose(devices, need, number, fullest=True)
        shares: Shares = tuple(chain.from_iterable(chosen))
        statement.put(slot, need, shares, number)
        agent_id = snapshot.ids[slot]
        return [KernelPlacement(agent_id, each) for each in chosen]
