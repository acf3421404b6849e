"""Room for gangs all of whose kernels have to be in one slice, or on one machine: in the first that
has it, of agents that are there, then of what is coming, then of what is to be made.

Such a slice or machine is called a group here. Rules besides ``max_kernels_per_agent`` only decide
which kernel of the gang goes where.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from muster.autoscaling.first_fit import FirstFit, GangRoom, Taken, devices_of, least_of
from muster.autoscaling.gang_slices import is_tight, kernels_a_slice, kernels_by_request
from muster.autoscaling.matching import Matcher
from muster.autoscaling.modelled import GONE, Machines, modelled
from muster.core.resources import Resources
from muster.core.specs.placement import ClusterMode
from muster.core.specs.pool import SLICE
from muster.scheduling.cluster.columns import Need
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fit_session
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import WorkloadClass

_Slots: TypeAlias = Sequence[int]
_Plan: TypeAlias = list[tuple[int, int]]
"""Slots, and how many kernels each is to take."""
_Tried: TypeAlias = tuple[int, Sequence[Taken]]
"""How many kernels find room, and the room of each if all do."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The kernels of a gang that ask for the same; ``indexes`` are theirs in the gang.

    Args:
        most: of them on a machine.
    """

    need: Need
    indexes: Sequence[int]
    most: int

    def plan(self, slots: _Slots, machines: Machines) -> _Plan | None:
        """Places for all of them on the first of these machines, which need not be there for other
        parts too; None if there are none."""
        need, left, agent, found = self.need, len(self.indexes), machines.agent, _Plan()
        for slot in slots:
            its = agent(slot)
            if need.has_room(its):
                number = need.room(its, min(left, self.most))
                found.append((slot, number))
                left -= number
                if not left:
                    return found
        return None


class _Aisle:
    """The groups of modelled machines of some pools, for gangs whose largest requests are for the
    same devices: the places of their first machines in the line. A group without room for the least
    of these gangs is looked at no more.

    Args:
        least: at most what any of these gangs asks for.
        alone: whether each machine is a group.
    """

    def __init__(
        self, least: _Part, pools: frozenset[int], machines: Machines, *, alone: bool
    ) -> None:
        self.alone = alone
        self._least = least
        self._pools = pools
        self._machines = machines
        self._places: list[int] = []  # ascending
        self._known = 0  # how much of the line is in ``_places``, or was

    def group(self, place: int) -> _Slots:
        """The slots of a group."""
        return (self._machines.line[place],) if self.alone else self._machines.slice_at[place]

    def next(self, place: int, parts: Sequence[_Part]) -> tuple[int, Sequence[_Plan]] | None:
        """The first place, not before ``place``, of a group with room for each of some parts by
        itself, and this room; None if there is none."""
        machines, places = self._machines, self._places
        self._join()
        index = bisect_left(places, place)
        while index < len(places):
            at = places[index]
            if machines.line[at] != GONE:
                slots = self.group(at)
                plans = _plans(parts, slots, machines)
                if plans is not None:
                    return at, plans
                if self._least.plan(slots, machines) is not None:
                    index += 1
                    continue
            del places[index]
        return None

    def _join(self) -> None:
        """Look at the machines, too, that have begun to take work."""
        machines, known = self._machines, self._known
        while known < len(machines.line):
            if machines.pool_of[known] in self._pools:
                self._places.append(known)
            known += 1 if self.alone else len(machines.slice_at[known])
        self._known = known


@dataclass(slots=True)
class _Search:
    """The search for groups for the gangs of a class.

    Args:
        agents: groups of the group's agents that may have room.
        pools: of which an empty slice has room for each part by itself, the best first.
        tried: how many of ``agents`` have none.
        place: in the line; groups before it have no room.
    """

    parts: Sequence[_Part]
    aisle: _Aisle
    agents: Sequence[_Slots]
    pools: Sequence[int]
    tried: int = 0
    place: int = 0


class TightFit:
    """The room that is taken for such gangs.

    Args:
        first_fit: takes it.
        classes: of all demand.
    """

    def __init__(
        self,
        machines: Machines,
        matcher: Matcher,
        selector: AgentSelector,
        first_fit: FirstFit,
        classes: Iterable[WorkloadClass],
    ) -> None:
        self._machines = machines
        self._matcher = matcher
        self._selector = selector
        self._first_fit = first_fit
        self._searches: dict[WorkloadClass, _Search | None] = {}
        self._aisles: dict[tuple[object, frozenset[int], bool], _Aisle] = {}
        self._on_empty: dict[tuple[WorkloadClass, int], _Tried] = {}
        alike: dict[object, list[tuple[Resources, int]]] = {}
        for workload in classes:
            if len(workload.kernels) > 1 and is_tight(workload):
                request, indexes = workload.requests[0]
                alike.setdefault(devices_of(request), []).append((request, len(indexes)))
        self._least = {
            kind: (least_of([request for request, _ in some]), min(number for _, number in some))
            for kind, some in alike.items()
        }

    def place(self, workload: WorkloadClass) -> GangRoom:
        """Take room for a gang on the open machines."""
        search = self._search_of(workload)
        if search is None:
            return GangRoom(0)
        while search.tried < len(search.agents):
            plans = _plans(search.parts, search.agents[search.tried], self._machines)
            if plans is not None:
                taken = self._take(search, search.agents[search.tried], plans)
                if taken is not None:
                    return GangRoom(len(taken), taken)
            search.tried += 1
        while (found := search.aisle.next(search.place, search.parts)) is not None:
            search.place, plans = found
            taken = self._take(search, search.aisle.group(search.place), plans)
            if taken is not None:
                return GangRoom(len(taken), taken)
            search.place += 1
        search.place = len(self._machines.line)
        return GangRoom(0)

    def pools(self, workload: WorkloadClass) -> Sequence[int]:
        """The pools of which an empty slice has room for each request of a gang by itself, the best
        first."""
        search = self._search_of(workload)
        return () if search is None else search.pools

    def fits(self, workload: WorkloadClass, pool: int) -> bool:
        """Whether an empty slice of one of ``pools`` has room for a gang."""
        if len(workload.requests) == 1:
            return True
        placed, _ = self._tried_on_empty(workload, pool)
        return placed == len(workload.kernels)

    def placed(self, workload: WorkloadClass, pool: int, copies: Sequence[int]) -> int:
        """The number of a gang's kernels that find room in an empty slice of a pool.

        Args:
            copies: as in ``Match``.
        """
        placed = self._bound(workload, pool, copies)
        if len(workload.requests) > 1 and placed == len(workload.kernels):
            placed, _ = self._tried_on_empty(workload, pool)
        return placed

    def _bound(self, workload: WorkloadClass, pool: int, copies: Sequence[int]) -> int:
        """``placed``, each request by itself."""
        of_slice = kernels_a_slice(workload, self._machines.pools[pool], copies)
        return sum(map(min, of_slice, kernels_by_request(workload)))

    def open(self, workload: WorkloadClass, pool: int) -> GangRoom:
        """Open a slice of a pool for a gang that ``fits``, and take its room there."""
        machines, search = self._machines, self._search_of(workload)
        assert search is not None, "some pool has room"
        machines.open(pool, 1)
        slots = machines.line[-machines.pools[pool].spec.slice_size :]
        if len(search.parts) == 1:
            plans = _plans(search.parts, slots[:1] if search.aisle.alone else slots, machines)
            assert plans is not None, "an empty slice has room"
            taken = self._take(search, slots, plans)
            assert taken is not None, "kernels that ask for the same do not compete"
            return GangRoom(len(taken), taken)
        _, tried = self._tried_on_empty(workload, pool)
        of_kernel = {
            index: self._first_fit.take_as(part.need, slots[tried[index][0]], tried[index][1])
            for part in search.parts
            for index in part.indexes
        }
        return GangRoom(len(of_kernel), _in_order(of_kernel))

    def _tried_on_empty(self, workload: WorkloadClass, pool: int) -> _Tried:
        """The outcome of placement for a gang in an empty slice of a pool; found out once."""
        known = self._on_empty.get((workload, pool))
        if known is None:
            spec = self._machines.pools[pool].spec
            agents = modelled(spec, f"{spec.name}+1", spec.slice_size, self._matcher.kernels)
            snapshot = Snapshot(workload.group).extended([agents])
            fit = fit_session(Statement(snapshot), self._selector, workload)
            found = [(snapshot.slot(kernel.agent_id), kernel) for kernel in fit.kernels or ()]
            known = self._on_empty[workload, pool] = fit.placed, found
        return known

    def _take(
        self, search: _Search, slots: _Slots, plans: Sequence[_Plan]
    ) -> Sequence[Taken] | None:
        """Take a group's room for a gang, unless its parts get in each other's way.

        Args:
            plans: of each part by itself.
        """
        first_fit, parts = self._first_fit, search.parts
        if len(parts) == 1:
            need = parts[0].need
            return [
                each for slot, number in plans[0] for each in first_fit.take(need, slot, number)
            ]
        start = first_fit.done
        for order in (parts, parts[::-1]):
            of_kernel: dict[int, Taken] = {}
            held: dict[int, int] = {}
            if all(self._take_part(part, slots, of_kernel, held) for part in order):
                return _in_order(of_kernel)
            first_fit.undo(start)
        return None

    def _take_part(
        self, part: _Part, slots: _Slots, of_kernel: dict[int, Taken], held: dict[int, int]
    ) -> bool:
        """Take room for a part of a gang as far as there is some; whether all of it has some now.

        Args:
            of_kernel: gets the room by kernel.
            held: by slot, how many kernels of the gang are there.
        """
        left = part.indexes
        for slot in slots:
            agent = self._machines.agent(slot)
            most = min(len(left), part.most - held.get(slot, 0))
            if most > 0 and part.need.has_room(agent):
                taken = self._first_fit.take(part.need, slot, part.need.room(agent, most))
                of_kernel.update(zip(left, taken, strict=False))
                held[slot] = held.get(slot, 0) + len(taken)
                left = left[len(taken) :]
                if not left:
                    return True
        return False

    def _search_of(self, workload: WorkloadClass) -> _Search | None:
        """The search of a class; None if no machine, even an empty one, has enough for one of its
        requests."""
        if workload not in self._searches:
            self._searches[workload] = self._search(workload)
        return self._searches[workload]

    def _search(self, workload: WorkloadClass) -> _Search | None:
        columns, limit = self._machines.columns, workload.placement.max_kernels_per_agent
        alone = workload.placement.mode is ClusterMode.SINGLE_NODE
        most = len(workload.kernels) if limit is None else limit
        parts = []
        for request, indexes in workload.requests:
            need = columns.need(request)
            if need is None:
                return None
            parts.append(_Part(need, indexes, most))
        if alone and most < len(workload.kernels):
            return None
        kind = devices_of(workload.requests[0][0])
        match = self._matcher.match(workload)
        pools = frozenset(match.pools)
        aisle = self._aisles.get((kind, pools, alone))
        if aisle is None:
            request, number = self._least[kind]
            need = columns.need(request)
            assert need is not None, "no request asks for less"
            least = _Part(need, range(number), number)
            aisle = _Aisle(least, pools, self._machines, alone=alone)
            self._aisles[kind, pools, alone] = aisle
        enough = [
            pool
            for pool, copies in match
            if self._bound(workload, pool, copies) == len(workload.kernels)
        ]
        return _Search(parts, aisle, self._groups_of_agents(workload, alone=alone), enough)

    def _groups_of_agents(self, workload: WorkloadClass, *, alone: bool) -> Sequence[_Slots]:
        """The slots of each group of agents with room for all kernels that ask for the most."""
        agents, (request, indexes) = self._machines.agents, workload.requests[0]
        columns, number = agents.columns, len(indexes)
        mask, slots = eligible(agents, workload), columns.fitting(request)
        slots = slots if mask is None else slots[mask[slots]]
        if not slots.size:
            return ()
        copies = columns.copies(request, slots, number)
        if alone:
            return [(slot,) for slot in slots[copies >= number].tolist()]
        codes, values = agents.attribute(SLICE)
        room = np.bincount(codes[slots], copies, len(values))
        groups: dict[int, list[int]] = {
            code: [] for code in np.flatnonzero(room >= number).tolist()
        }
        if groups:
            assert mask is not None, "agents without the attribute are not in it"
            its = np.flatnonzero(mask)
            for slot, code in zip(its.tolist(), codes[its].tolist(), strict=True):
                if code in groups:
                    groups[code].append(slot)
        return [*groups.values()]


def _plans(parts: Sequence[_Part], slots: _Slots, machines: Machines) -> Sequence[_Plan] | None:
    """The plan of each part by itself; None if one has none."""
    plans = []
    for part in parts:
        plan = part.plan(slots, machines)
        if plan is None:
            return None
        plans.append(plan)
    return plans


def _in_order(of_kernel: Mapping[int, Taken]) -> Sequence[Taken]:
    return [of_kernel[index] for index in range(len(of_kernel))]
