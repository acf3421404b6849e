"""Room for equal kernels without rules among each other, on the first machine that has it.

Placement looks for the best machine; demand only asks which machines are needed. Agents that are
there come first, then machines that are coming, then those to be made.
"""

from dataclasses import dataclass
from itertools import chain

from muster.autoscaling.modelled import Machines
from muster.scheduling.cluster.columns import Flags, Need, Shares
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.devices import choose
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.workload import KernelPlacement, WorkloadClass


@dataclass(slots=True)
class _Search:
    """The search for machines for one class.

    Args:
        mask: the slots that its rules allow; None if all.
        found: the machines that had room when all were looked at, without those that have filled up
            since. Others have none, because room is only taken, unless slices were opened.
        opens: how often slices had been opened then.
    """

    need: Need
    mask: Flags | None
    found: list[int]
    opens: int = -1


class FirstFit:
    """The statement in which room on modelled machines is taken."""

    def __init__(self, statement: Statement, machines: Machines) -> None:
        self._statement = statement
        self._machines = machines
        self._snapshot = machines.snapshot
        self._searches: dict[WorkloadClass, _Search | None] = {}

    def fill(self, workload: WorkloadClass, count: int) -> list[KernelPlacement]:
        """Places for up to ``count`` kernels of a class, which all ask for the same; fewer if the
        room ends."""
        found: list[KernelPlacement] = []
        search = self._search(workload)
        if search is None:
            return found
        columns, need = self._snapshot.columns, search.need
        while len(found) < count and (slot := self._first(search)) is not None:
            found += self._take(need, slot, columns.room(slot, need, count - len(found)))
        return found

    def fill_whole(self, workload: WorkloadClass) -> list[KernelPlacement]:
        """Places for all kernels of a gang; where fewer are found, no room is taken."""
        mark = self._statement.mark()
        found = self.fill(workload, len(workload.kernels))
        if len(found) < len(workload.kernels):
            self._statement.rollback(mark)
            self.forget(workload)
        return found

    def forget(self, workload: WorkloadClass) -> None:
        """Search anew for a class whose kernels gave room back."""
        self._searches.pop(workload, None)

    def _search(self, workload: WorkloadClass) -> _Search | None:
        """The search for a class; None if no machine, even an empty one, has enough for it."""
        if workload not in self._searches:
            need = self._snapshot.columns.need(workload.kernels[0])
            mask = None if need is None else eligible(self._snapshot, workload)
            self._searches[workload] = None if need is None else _Search(need, mask, [])
        return self._searches[workload]

    def _first(self, search: _Search) -> int | None:
        """The first machine with room; None if none has."""
        columns, need = self._snapshot.columns, search.need
        while True:
            found = search.found
            while found:
                if columns.has_room(found[-1], need):
                    return found[-1]
                found.pop()
            if search.opens == self._machines.opens:
                return None
            search.opens = self._machines.opens
            slots = columns.fitting(need.request)
            if search.mask is not None:
                slots = slots[search.mask[slots]]
            search.found = slots[::-1].tolist()

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
