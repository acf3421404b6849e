"""Routing of demand to slices (source: Iris) (design: Autoscaling).

Each entry goes, in the order of the queue, first to room that is free or coming, else to new slices
of the first pool that can serve it and may still make some. A gang is one entry, and is routed
whole or not at all. Entries are tried on modelled machines with the functions of placement.
"""

from collections.abc import Iterator, Sequence
from operator import lt, sub

from muster.autoscaling.decision import RoutedDemand, RoutingDecision, cost, may_be_better
from muster.autoscaling.demand import TO_COME, Demand, DemandEntry
from muster.autoscaling.first_fit import FirstFit, GangRoom, Mark, Taken
from muster.autoscaling.gang_slices import (
    MAX_VALUES,
    Values,
    fewest_slices,
    has_rules,
    is_tight,
    kernels_a_slice,
    kernels_by_request,
    of_values,
    too_few_slices,
)
from muster.autoscaling.matching import Match, Matcher
from muster.autoscaling.modelled import Machines
from muster.autoscaling.offering import offers
from muster.autoscaling.pool_state import CeilingBudget, Ceilings, ComingSlice, PoolState
from muster.autoscaling.tight_fit import TightFit
from muster.autoscaling.unmet import RoutingOutcome, Unmet, UnmetDemand
from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import WorkloadClass


def route_demand(
    demand: Demand,
    snapshot: Snapshot,
    selector: AgentSelector,
    pools: Sequence[PoolState],
    coming: Sequence[ComingSlice] = (),
    *,
    kernels: int,
    ceilings: Ceilings | None = None,
    matcher: Matcher | None = None,
) -> RoutingDecision:
    """Route all demand of a group.

    Args:
        demand: none of which was offered yet.
        snapshot: the group's agents, after a pass in which the demand found no room.
        selector: the group's.
        pools: of the group.
        coming: slices of these pools that are in flight, without those that are to be deleted.
        kernels: how many kernels an agent of the group may hold.
        ceilings: of the group.
        matcher: of an earlier routing, which is good for these pools still.

    Raises:
        MusterError: the selector answers nonsense.
    """
    matcher = matcher or Matcher(snapshot.group, pools, kernels, selector)
    best: RoutingDecision | None = None
    for offered in offers(coming, demand, matcher):
        budget = CeilingBudget(snapshot.group, ceilings or Ceilings(), pools)
        machines = Machines(snapshot, pools, offered, kernels, budget)
        its = demand if best is None else demand.anew()
        decision = _route(its, machines, matcher, selector)
        if best is None or cost(decision, pools) < cost(best, pools):
            best = decision
        if not may_be_better(best):
            break
    assert best is not None, "there is one order at least"
    return best


def _route(
    demand: Demand, machines: Machines, matcher: Matcher, selector: AgentSelector
) -> RoutingDecision:
    """Route all demand, to slices in flight in the order that ``machines`` has."""
    routing = _Routing(machines, matcher, selector, demand)
    decision = routing.decision
    for members, entries in demand.runs():
        served = routing.route(members, entries)
        demand.charge(members, served)
        if served < len(entries):
            demand.drop(members)
            routing.refuse(members, entries[served].session)
    for pool, opened in zip(machines.pools, machines.opened, strict=True):
        if opened:
            decision.launches[pool.spec.name] = opened
    decision.withheld, decision.charged = demand.withheld, demand.charged
    decision.pending = machines.pending
    return decision


class _Routing:
    """A routing under way; room once taken is never given back, so a class that cannot be served
    cannot be later."""

    def __init__(
        self, machines: Machines, matcher: Matcher, selector: AgentSelector, demand: Demand
    ) -> None:
        self.decision = RoutingDecision()
        self._demand = demand
        self._machines = machines
        self._matcher = matcher
        self._first_fit = FirstFit(machines, matcher, selector, demand.classes)
        self._tight = TightFit(machines, matcher, selector, self._first_fit, demand.classes)
        self._outcome = RoutingOutcome(machines.pools, matcher, machines.opened, machines.budget)
        self._routed: dict[QueueClass, int] = {}
        self._of_values: dict[WorkloadClass, Values] = {}
        self._refused: dict[int, Reason] = {}  # of the last class that was not served, by pool

    def route(self, members: QueueClass, entries: Sequence[DemandEntry]) -> int:
        """Route entries of a class; how many were, from the first on."""
        routed, destination = self.decision.routed, self._machines.destination
        before = len(routed)
        if len(members.workload.kernels) == 1:
            found = self._fill(members.workload, len(entries))
            for entry, (slot, kernel) in zip(entries, found, strict=False):
                routed.append(RoutedDemand(entry, destination(slot), (kernel,)))
        else:
            rooms = self._place_gangs(members.workload, len(entries))
            for entry, taken in zip(entries, rooms, strict=False):
                slots, kernels = zip(*taken, strict=True)
                routed.append(RoutedDemand(entry, destination(max(slots)), kernels))
        served = len(routed) - before
        self._routed[members] = self._routed.get(members, 0) + served
        return served

    def refuse(self, members: QueueClass, first: SessionId) -> None:
        """Note that the class of the last run has no more sessions that can be served."""
        workload = members.workload
        left = self._demand.sessions(members) - self._routed.pop(members)
        if first == TO_COME:
            first = members.newest.id
        why = Unmet(workload, self._outcome, self._refused)
        self.decision.unmet.append(UnmetDemand(first, workload, left, why))

    # Sessions of one kernel

    def _fill(self, workload: WorkloadClass, count: int) -> Sequence[Taken]:
        """Room for up to ``count`` sessions of one kernel."""
        machines, fill = self._machines, self._first_fit.fill
        found = fill(workload, count)
        if len(found) == count:
            return found
        for pool, (copies,) in self._matcher.match(workload):
            left = machines.left(pool)
            if left:
                size = machines.pools[pool].spec.slice_size
                missing = -(-(count - len(found)) // (copies * size))
                machines.open(pool, min(left, missing))
                found += fill(workload, count - len(found))
                if len(found) == count:
                    return found
        self._refused = {}
        return found

    # Gangs

    def _place_gangs(self, workload: WorkloadClass, count: int) -> Iterator[Sequence[Taken]]:
        """Room for up to ``count`` gangs of a class."""
        if len(workload.requests) == 1 and not has_rules(workload):
            size = len(workload.kernels)
            found = self._fill_gangs(workload, count)
            for at in range(0, len(found), size):
                yield found[at : at + size]
            count -= len(found) // size
        for _ in range(count):
            taken = self._place(workload).taken
            if taken is None:
                return
            yield taken

    def _fill_gangs(self, workload: WorkloadClass, count: int) -> Sequence[Taken]:
        """Room for gangs of equal kernels, gang after gang, as long as each finds what it needs
        besides the open machines in slices of the first pool that may make any."""
        machines, first_fit, size = self._machines, self._first_fit, len(workload.kernels)
        start, left = first_fit.mark(workload), self._machines.left
        found = first_fit.fill(workload, count * size)
        while len(found) < count * size:
            first = next((each for each in self._matcher.match(workload) if left(each[0])), None)
            gangs = len(found) // size
            if first is not None:
                pool, copies = first
                (of_slice,) = kernels_a_slice(workload, machines.pools[pool], copies)
                gangs = min(count, (len(found) + of_slice * left(pool)) // size)
            if gangs * size <= len(found):
                first_fit.rollback(start, workload)
                return first_fit.fill(workload, gangs * size)
            machines.open(pool, fewest_slices([gangs * size - len(found)], [of_slice]))
            found += first_fit.fill(workload, count * size - len(found))
        return found

    def _place(self, workload: WorkloadClass) -> GangRoom:
        """Take room for a gang."""
        if is_tight(workload):
            return self._place_tight(workload)
        if workload.placement.together is not None:
            return self._place_together(workload)
        room = self._place_each(workload)
        if room.taken is not None:
            return room
        rooms = self._first_fit.rooms(workload)
        room = self._try(workload, rooms)
        return self._open_for(workload, rooms) if room.taken is None else room

    def _place_tight(self, workload: WorkloadClass) -> GangRoom:
        """Take room for a gang in one slice, or on one machine."""
        tight, left, pools = self._tight, self._machines.left, self._machines.pools
        room = tight.place(workload)
        if room.taken is not None:
            return room
        for pool in tight.pools(workload):
            if left(pool) and tight.fits(workload, pool):
                return tight.open(workload, pool)
        if len(workload.requests) > 1:  # placement may know better in what order to take them
            room = self._first_fit.fit(workload)
        self._refused = {
            pool: too_few_slices(workload, pools[pool], 1, tight.placed(workload, pool, copies))
            for pool, copies in self._matcher.match(workload)
            if left(pool)
        }
        return room

    def _place_together(self, workload: WorkloadClass) -> GangRoom:
        """Take room for a gang on machines that share a value: those of the first one that has it,
        else of the first one of pools that has it with new slices."""
        first_fit, numbers = self._first_fit, kernels_by_request(workload)
        if workload not in self._of_values:
            self._of_values[workload] = of_values(workload, self._machines.agents, self._matcher)
        values = self._of_values[workload]
        for each in (*values.pools, *values.agents):
            if not any(map(lt, first_fit.rooms(each), numbers)):
                mark, room = first_fit.mark(each), first_fit.fill_gang(each, [[] for _ in numbers])
                if room.taken is not None:
                    return room
                first_fit.rollback(mark, each)
        refused: dict[int, Reason] = {}
        for each in values.pools:
            room = self._place(each)
            if room.taken is not None:
                return room
            refused.update(self._refused)
        self._refused = refused
        if not values.agents or (len(numbers) == 1 and len(values.agents) < MAX_VALUES):
            return GangRoom(0)
        return first_fit.fit(workload)  # other values, and kernels that take the room of others

    def _place_each(self, workload: WorkloadClass) -> GangRoom:
        """Take room for each kernel of a gang by itself, on open machines and on the slices of one
        pool that are needed besides at least, if that does."""
        machines, first_fit, requests = self._machines, self._first_fit, workload.requests
        start, found = first_fit.mark(workload), [list[Taken]() for _ in requests]
        room = first_fit.fill_gang(workload, found)
        if room.taken is not None:
            return room
        if len(found) > 1 and len(found[0]) == len(requests[0][1]):
            first_fit.rollback(start, workload)
            if not any(map(lt, first_fit.rooms(workload), kernels_by_request(workload))):
                return room  # only together they have no room
            found = [[] for _ in requests]
            first_fit.fill_gang(workload, found)
        missing = list(map(sub, kernels_by_request(workload), map(len, found)))
        some = first_fit.mark(workload)
        for pool, copies in self._matcher.match(workload):
            left = machines.left(pool)
            if not left:
                continue
            of_slice = kernels_a_slice(workload, machines.pools[pool], copies)
            if any(each * left < number for each, number in zip(of_slice, missing, strict=True)):
                continue
            slices = fewest_slices(missing, of_slice)
            machines.open(pool, slices)
            room = first_fit.fill_gang(workload, [its[:] for its in found])
            if room.taken is not None:
                return room
            first_fit.rollback(some, workload)
            machines.close(pool, slices)
            break
        first_fit.rollback(start, workload)
        return room

    def _try(self, workload: WorkloadClass, rooms: Sequence[int] | None = None) -> GangRoom:
        """Take room for a gang on the open machines, or none."""
        first_fit = self._first_fit
        rooms = rooms or first_fit.rooms(workload)
        if sum(rooms) < len(workload.kernels):
            return GangRoom(sum(rooms))
        mark = first_fit.mark(workload)
        room = first_fit.fill_gang(workload, [[] for _ in rooms])
        if room.taken is not None:
            return room
        first_fit.rollback(mark, workload)
        # Kernels that take the room of others: placement may know better.
        return first_fit.fit(workload)

    def _open_for(self, workload: WorkloadClass, rooms: Sequence[int]) -> GangRoom:
        """Open slices for a gang: of the first pool of which enough can be made, else of several.

        Args:
            rooms: how many of its kernels have room without them, as ``FirstFit.rooms`` says.
        """
        match, mark = self._matcher.match(workload), self._first_fit.mark(workload)
        refused: dict[int, Reason] = {}
        for pool, copies in match:
            left = self._machines.left(pool)
            if not left:
                continue
            room = self._of_one_pool(workload, pool, copies, rooms, left, mark)
            if room.taken is not None:
                return room
            refused[pool] = too_few_slices(workload, self._machines.pools[pool], left, room.placed)
        room = self._of_several_pools(workload, match, rooms, mark)
        self._refused = refused
        return room

    def _of_one_pool(
        self,
        workload: WorkloadClass,
        pool: int,
        copies: Sequence[int],
        rooms: Sequence[int],
        left: int,
        mark: Mark,
    ) -> GangRoom:
        of_slice = kernels_a_slice(workload, self._machines.pools[pool], copies)
        most = [its + each * left for its, each in zip(rooms, of_slice, strict=True)]
        numbers = kernels_by_request(workload)
        placed = sum(map(min, most, numbers))
        if placed < len(workload.kernels):
            return GangRoom(placed)
        opened = max(1, fewest_slices(list(map(sub, numbers, rooms)), of_slice))
        too_few = opened - 1
        self._machines.open(pool, opened)
        room = self._try(workload)
        while room.taken is None and opened < left:
            too_few, more = opened, min(opened, left - opened)
            self._machines.open(pool, more)
            opened += more
            room = self._try(workload)
        if room.taken is None:
            self._first_fit.rollback(mark, workload)
            self._machines.close(pool, opened)
            return room
        return self._with_fewest(workload, pool, opened, too_few, room, mark)

    def _with_fewest(
        self,
        workload: WorkloadClass,
        pool: int,
        opened: int,
        too_few: int,
        room: GangRoom,
        mark: Mark,
    ) -> GangRoom:
        """The room of a gang that was placed since ``mark``, with as few of the ``opened`` slices
        as it needs, but more than ``too_few``; the others are closed again."""
        while opened - too_few > 1:
            half = (opened + too_few) // 2
            self._first_fit.rollback(mark, workload)
            self._machines.close(pool, opened - half)
            tried = self._try(workload)
            if tried.taken is not None:
                opened, room = half, tried
                continue
            self._machines.open(pool, opened - half)
            too_few = half
            room = self._try(workload)
        return room

    def _of_several_pools(
        self, workload: WorkloadClass, match: Match, rooms: Sequence[int], mark: Mark
    ) -> GangRoom:
        left, opened, room = self._machines.left, list[tuple[int, int]](), GangRoom(0)
        numbers = kernels_by_request(workload)
        pools = self._machines.pools
        of_slice = {pool: kernels_a_slice(workload, pools[pool], copies) for pool, copies in match}
        most = [
            its + sum(each[at] * left(pool) for pool, each in of_slice.items())
            for at, its in enumerate(rooms)
        ]
        if any(map(lt, most, numbers)):
            return room
        most = list(rooms)
        for pool, each in of_slice.items():
            slices = left(pool)
            if not slices:
                continue
            self._machines.open(pool, slices)
            opened.append((pool, slices))
            most = [its + more * slices for its, more in zip(most, each, strict=True)]
            if any(map(lt, most, numbers)):
                continue
            room = self._try(workload)
            if room.taken is not None:
                break
        for pool, slices in reversed(opened):
            if room.taken is None:
                self._first_fit.rollback(mark, workload)
                self._machines.close(pool, slices)
            else:
                room = self._with_fewest(workload, pool, slices, -1, room, mark)
        return room
