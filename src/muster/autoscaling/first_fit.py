"""Room for kernels without rules among each other, on the first machines that have it.

Placement looks for the best machine; demand only asks which machines are needed. Agents that are
there come first, then machines that are coming, then new ones.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from muster.autoscaling.matching import Matcher
from muster.autoscaling.modelled import Machines
from muster.autoscaling.pool_state import PoolState
from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Need, Shares
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.devices import choose
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.workload import KernelPlacement, WorkloadClass

Mark: TypeAlias = tuple[int, int]
"""Marks of the statement and of the log of machines."""


class _Kind:
    """All requests of the demand for the same devices. A machine that is too full for the least of
    them is looked at no more.

    Args:
        requests: at least one.
    """

    def __init__(self, requests: Sequence[Resources], machines: Machines) -> None:
        self._log = machines.log
        self._columns = machines.snapshot.columns
        least = _least(requests)
        self._least = self._columns.need(least)
        self.agents_have_room = machines.agents.columns.fitting(least).size > 0
        # By entry of the log the slots that may have room; before ``_first`` there are none.
        self._slots: list[list[int]] = []
        self._first = 0

    def next_slice(
        self, pools: Container[PoolState], looked: int, *, lasting: bool
    ) -> tuple[int, list[int]]:
        """The slots with room of the next slice of one of these pools, and how many entries of the
        log have been looked at then.

        Args:
            looked: how many had been before.
            lasting: whether all room that was taken stays taken.
        """
        log, slots = self._log, self._slots
        slots += [[*its] for _, its in log[len(slots) :]]
        has_room, least = self._columns.has_room, self._least
        assert least is not None, "kernels that fit nowhere have no search"
        while self._first < len(slots) and not slots[self._first]:
            self._first += 1
        for entry in range(max(looked, self._first), len(log)):
            its = slots[entry]
            if not its or log[entry][0] not in pools:
                continue
            its = [slot for slot in its if has_room(slot, least)]
            if lasting:
                slots[entry] = its
            if its:
                return entry + 1, its
        return len(log), []

    def forget(self, since: int) -> None:
        """Forget the entries of the log from a mark on."""
        del self._slots[since:]
        self._first = min(self._first, since)


@dataclass(slots=True)
class _Search:
    """The search for machines for the kernels of a class that ask for the same.

    Args:
        pools: whose machines the class may use.
        slots: those that may have room, the first one last; full ones were taken out.
        looked: how many entries of the log of machines are in ``slots`` already, or were.
    """

    need: Need
    kind: _Kind
    pools: Container[PoolState]
    slots: list[int]
    looked: int = 0


class FirstFit:
    """The statement in which room on modelled machines is taken.

    Args:
        classes: of all demand.
    """

    def __init__(
        self,
        statement: Statement,
        machines: Machines,
        matcher: Matcher,
        classes: Iterable[WorkloadClass],
    ) -> None:
        self._statement = statement
        self._machines = machines
        self._matcher = matcher
        self._snapshot = machines.snapshot
        self._columns = machines.snapshot.columns
        self._searches: dict[WorkloadClass, list[_Search]] = {}
        requests: dict[object, list[Resources]] = {}
        for workload in classes:
            for request, _ in workload.requests:
                requests.setdefault(_devices(request), []).append(request)
        self._kinds = {key: _Kind(alike, machines) for key, alike in requests.items()}

    def fill(self, workload: WorkloadClass, count: int) -> list[KernelPlacement]:
        """Places for up to ``count`` sessions of one kernel; fewer if the room ends."""
        searches = self._searches_of(workload)
        return [] if searches is None else self._fill(searches[0], count)

    def rooms(self, workload: WorkloadClass) -> list[int]:
        """The number of kernels with each of the class's requests for which there is room, if there
        were no other kernels and no rules among them; no more than the class has."""
        searches = self._searches_of(workload)
        if searches is None:
            return [0] * len(workload.requests)
        numbers = [len(indexes) for _, indexes in workload.requests]
        return list(map(self._room, searches, numbers))

    def fill_gang(self, workload: WorkloadClass) -> list[KernelPlacement] | None:
        """Places for all kernels of a gang that have no rules among them and ``rooms``, each by
        itself; None if some take the room of others, and then no room is taken."""
        searches = self._searches_of(workload)
        assert searches is not None, "some machine has room"
        if len(searches) == 1:
            return self._fill(searches[0], len(workload.kernels))
        return self._fill_unlike(workload, searches)

    def mark(self) -> Mark:
        """The point to which a later ``rollback`` may return."""
        return self._statement.mark(), len(self._machines.log)

    def rollback(self, to: Mark, workload: WorkloadClass) -> None:
        """Give back the room that a gang took since a mark; slices that were opened since then may
        be closed."""
        self._statement.rollback(to[0])
        self._searches.pop(workload, None)
        for request, _ in workload.requests:
            self._kinds[_devices(request)].forget(to[1])

    def _searches_of(self, workload: WorkloadClass) -> list[_Search] | None:
        """The searches for the requests of a class; None if no machine, even an empty one, has
        enough for one of them."""
        searches = self._searches.get(workload)
        if searches is None:
            pools = set(self._matcher.match(workload).pools)
            found = [self._search(workload, request, pools) for request, _ in workload.requests]
            searches = [each for each in found if each is not None]
            if len(searches) < len(found):
                return None
            self._searches[workload] = searches
        return searches

    def _search(
        self, workload: WorkloadClass, request: Resources, pools: Container[PoolState]
    ) -> _Search | None:
        need, kind = self._columns.need(request), self._kinds[_devices(request)]
        if need is None:
            return None
        slots: list[int] = []
        if kind.agents_have_room:
            agents = self._machines.agents
            fitting, mask = agents.columns.fitting(request), eligible(agents, workload)
            slots = (fitting if mask is None else fitting[mask[fitting]])[::-1].tolist()
        return _Search(need, kind, pools, slots)

    # Taking the room that one search finds

    def _first(self, search: _Search, *, lasting: bool = True) -> int | None:
        """The first machine with room; None if none has."""
        slots, log = search.slots, self._machines.log
        has_room, need = self._columns.has_room, search.need
        while True:
            while slots:
                if has_room(slots[-1], need):
                    return slots[-1]
                slots.pop()
            if search.looked == len(log):
                return None
            search.looked, more = search.kind.next_slice(
                search.pools, search.looked, lasting=lasting
            )
            slots += reversed(more)

    def _room(self, search: _Search, count: int) -> int:
        """The number of kernels for which there is room, at most ``count``."""
        found, kept = 0, []
        while found < count and (slot := self._first(search)) is not None:
            found += self._columns.room(slot, search.need, count - found)
            kept.append(search.slots.pop())
        search.slots += reversed(kept)
        return found

    def _fill(self, search: _Search, count: int, *, lasting: bool = True) -> list[KernelPlacement]:
        found: list[KernelPlacement] = []
        while len(found) < count and (slot := self._first(search, lasting=lasting)) is not None:
            left = count - len(found)
            room = 1 if left == 1 else self._columns.room(slot, search.need, left)
            found += self._take(search.need, slot, room)
        return found

    def _fill_unlike(
        self, workload: WorkloadClass, searches: Sequence[_Search]
    ) -> list[KernelPlacement] | None:
        mark = self._statement.mark()
        before = [(search.slots[:], search.looked) for search in searches]
        found: dict[int, KernelPlacement] = {}
        for search, (_, indexes) in zip(searches, workload.requests, strict=True):
            kernels = self._fill(search, len(indexes), lasting=False)
            found.update(zip(indexes, kernels, strict=False))
        if len(found) == len(workload.kernels):
            return [found[index] for index in range(len(found))]
        self._statement.rollback(mark)
        for search, (slots, looked) in zip(searches, before, strict=True):
            search.slots, search.looked = slots, looked
        return None

    def _take(self, need: Need, slot: int, number: int) -> list[KernelPlacement]:
        snapshot, statement = self._snapshot, self._statement
        if not need.milli:
            statement.put(slot, need, (), number)
            return [snapshot.place(slot)] * number
        devices = need.devices_in(self._columns.agent(slot))
        chosen = choose(devices, need, number, fullest=True)
        shares: Shares = chosen[0] if number == 1 else tuple(chain.from_iterable(chosen))
        statement.put(slot, need, shares, number)
        agent_id = snapshot.ids[slot]
        return [KernelPlacement(agent_id, each) for each in chosen]


def _devices(request: Resources) -> tuple[object, ...]:
    return request.gpu_milli, request.gpu_models


def _least(requests: Sequence[Resources]) -> Resources:
    """The least that any of these requests, all for the same devices, asks for."""
    one = requests[0]
    extra = dict(one.extra)
    for request in requests:
        its = dict(request.extra)
        extra = {name: min(amount, its.get(name, 0)) for name, amount in extra.items()}
    return Resources.with_extra(
        min(request.cpu_milli for request in requests),
        min(request.memory_bytes for request in requests),
        min(request.disk_bytes for request in requests),
        one.gpu_milli,
        extra,
        one.gpu_models,
        min(request.kernels for request in requests),
    )
