"""Room for equal kernels without rules among each other, on the first machine that has it.

Placement looks for the best machine; demand only asks which machines are needed. Agents that are
there come first, then machines that are coming, then those to be made.
"""

from dataclasses import dataclass
from itertools import chain

from muster.scheduling.cluster.columns import Flags, Need, Shares
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.devices import choose
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.workload import KernelPlacement, WorkloadClass

_NEXT = 8  # machines behind the last one that are looked at one by one


@dataclass(slots=True)
class _Search:
    """The search for machines for one class.

    Args:
        mask: the slots that its rules allow; None if all.
        last: the machine that had room last.
    """

    need: Need
    mask: Flags | None
    last: int | None = None


class FirstFit:
    """A statement in which room is taken."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._snapshot = statement.snapshot
        self._searches: dict[WorkloadClass, _Search | None] = {}

    def fill(self, workload: WorkloadClass, count: int) -> list[KernelPlacement]:
        """Places for up to ``count`` kernels of a class, which all ask for the same; fewer if the
        room ends."""
        found: list[KernelPlacement] = []
        search = self._search(workload)
        if search is None:
            return found
        columns, need = self._snapshot.columns, search.need
        while len(found) < count:
            slot = search.last
            if slot is None or not columns.has_room(slot, need):
                slot = search.last = self._next(search)
                if slot is None:
                    break
            found += self._take(need, slot, columns.room(slot, need, count - len(found)))
        return found

    def fill_whole(self, workload: WorkloadClass) -> list[KernelPlacement]:
        """Places for all kernels of a gang; where fewer are found, no room is taken."""
        mark = self._statement.mark()
        found = self.fill(workload, len(workload.kernels))
        if len(found) < len(workload.kernels):
            self._statement.rollback(mark)
            if (search := self._search(workload)) is not None:
                search.last = None
        return found

    def _search(self, workload: WorkloadClass) -> _Search | None:
        """The search for a class; None if no machine, even an empty one, has enough for it."""
        if workload not in self._searches:
            need = self._snapshot.columns.need(workload.kernels[0])
            mask = None if need is None else eligible(self._snapshot, workload)
            self._searches[workload] = None if need is None else _Search(need, mask)
        return self._searches[workload]

    def _next(self, search: _Search) -> int | None:
        """A machine with room: one soon after the last, or the first of all."""
        columns, need, mask = self._snapshot.columns, search.need, search.mask
        if search.last is not None:
            near = range(search.last + 1, min(search.last + 1 + _NEXT, columns.slots))
            for slot in near:
                if (mask is None or mask[slot]) and columns.has_room(slot, need):
                    return slot
        slots = columns.fitting(need.request)
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
