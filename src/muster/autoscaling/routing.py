"""Routing of demand to slices (source: Iris) (design: Autoscaling).

Each entry goes, in the order of the queue, first to room that is free or coming, else to new slices
of the first pool that can serve it and may still make some. A gang is one entry, and is routed
whole or not at all. Entries are tried on modelled machines with the functions of placement.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import lt

from muster.autoscaling.demand import TO_COME, Demand, DemandEntry
from muster.autoscaling.first_fit import FirstFit, Mark
from muster.autoscaling.matching import Match, Matcher
from muster.autoscaling.modelled import Destination, Machines
from muster.autoscaling.pool_state import Budget, Ceilings, ComingSlice, PoolState
from muster.core.ids import SessionId
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.specs.placement import ClusterMode
from muster.core.specs.pool import SLICE
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import Fit, fit_session
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import KernelPlacement, WorkloadClass


@dataclass(frozen=True, slots=True)
class RoutedDemand:
    """An entry, and the room that is to be its own: a machine of a slice in flight is named
    ``slice/index``, of a new one ``pool+number/index``."""

    entry: DemandEntry
    destination: Destination
    kernels: tuple[KernelPlacement, ...]


class Unmet:
    """The reasons for which no pool serves a class of sessions, formed when somebody looks; all of
    its entries share them.

    Args:
        refused: by pool, why slices of it would not do, although its machines could hold kernels of
            the class.
    """

    def __init__(
        self, workload: WorkloadClass, outcome: "_Outcome", refused: Mapping[PoolState, Reason]
    ) -> None:
        self._workload = workload
        self._outcome = outcome
        self._refused = refused

    @property
    def reasons(self) -> Mapping[str, tuple[Reason, ...]]:
        """By pool all reasons that hold for it."""
        return self._of(self._outcome.matcher.pools)

    def some(self, pools: int) -> Mapping[str, tuple[Reason, ...]]:
        """``reasons`` of so many pools, those first that have the machines."""
        ranked = self._outcome.matcher.match(self._workload).pools
        matching = set(ranked)
        others = (pool for pool in self._outcome.matcher.pools if pool not in matching)
        return self._of(islice(chain(ranked, others), pools))

    def _of(self, pools: Iterable[PoolState]) -> Mapping[str, tuple[Reason, ...]]:
        outcome, workload = self._outcome, self._workload
        matching = set(outcome.matcher.match(workload).pools)
        found: dict[str, tuple[Reason, ...]] = {}
        for pool in pools:
            if pool in self._refused:
                found[pool.spec.name] = (self._refused[pool],)
            elif pool in matching:
                found[pool.spec.name] = (outcome.exhausted(pool),)
            else:
                found[pool.spec.name] = outcome.matcher.refusals(workload, pool.spec)
        return found

    @property
    def pools(self) -> int:
        """How many pools there are."""
        return len(self._outcome.matcher.pools)

    @property
    def could_be_met(self) -> bool:
        """Whether some pool has the machines, and only may not make enough of them now."""
        return bool(self._outcome.matcher.match(self._workload).pools)

    @property
    def nearest(self) -> str | None:
        """The value of pools that may have been meant; None where there is no such thing."""
        return None if self.could_be_met else self._outcome.matcher.nearest(self._workload)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The end of a routing, for the reasons of what is unmet.

    Args:
        opened: the slices to be made, by pool.
        budget: what these leave of the group's ceilings.
    """

    matcher: Matcher
    opened: Mapping[PoolState, int]
    budget: Budget

    def exhausted(self, pool: PoolState) -> Reason:
        """The reason for which no further slice of a pool can be made."""
        opened = self.opened[pool]
        if pool.headroom > opened and self.budget.allows(pool.spec) == 0:
            return self.budget.refusal(pool.spec)
        return pool.exhausted(opened)


@dataclass(frozen=True, slots=True)
class UnmetDemand:
    """Sessions of one class that no pool serves now, and why (source: Iris).

    Args:
        first: the first of them in the queue.
        sessions: how many they are.
    """

    first: SessionId
    workload: WorkloadClass
    sessions: int
    why: Unmet


@dataclass(slots=True)
class RoutingDecision:
    """The destination of all demand, and the slices to make for it, by pool (source: Iris);
    ``launches`` is Iris's ``group_to_launch``."""

    routed: list[RoutedDemand] = field(default_factory=list)
    unmet: list[UnmetDemand] = field(default_factory=list)
    launches: dict[str, int] = field(default_factory=dict)


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
        snapshot: the group's agents, after a pass in which the demand found no room.
        selector: the group's.
        pools: of the group.
        coming: slices of these pools that are in flight, without those that are to be deleted.
        kernels: how many kernels an agent of the group may hold.
        ceilings: of the group.
        matcher: of an earlier routing with the same pools.

    Raises:
        MusterError: the selector answers nonsense.
    """
    matcher = matcher or Matcher(snapshot.group, pools, kernels, selector)
    budget = Budget(snapshot.group, ceilings or Ceilings(), pools)
    machines = Machines(snapshot, pools, coming, kernels, budget)
    routing = _Routing(machines, matcher, selector, demand)
    for members, entries in demand.runs():
        served = routing.route(members, entries)
        if served < len(entries):
            demand.drop(members)
            routing.refuse(members, entries[served].session)
    for pool in pools:
        if opened := machines.opened[pool]:
            routing.decision.launches[pool.spec.name] = opened
    return routing.decision


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
        self._selector = selector
        self._statement = Statement(machines.snapshot)
        self._first_fit = FirstFit(self._statement, machines, matcher, demand.classes)
        self._outcome = _Outcome(matcher, machines.opened, machines.budget)
        self._routed: dict[QueueClass, int] = {}
        self._refused: dict[PoolState, Reason] = {}  # of the last class that was not served

    def route(self, members: QueueClass, entries: Sequence[DemandEntry]) -> int:
        """Route entries of a class; how many were, from the first on."""
        place = self._fill if len(members.workload.kernels) == 1 else self._place
        routed, destination, served = self.decision.routed, self._machines.destination, 0
        for kernels in place(members.workload, len(entries)):
            routed.append(RoutedDemand(entries[served], destination(kernels), kernels))
            served += 1
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

    def _fill(self, workload: WorkloadClass, count: int) -> Iterator[tuple[KernelPlacement, ...]]:
        """Places for up to ``count`` sessions of one kernel."""
        machines, fill = self._machines, self._first_fit.fill
        found = fill(workload, count)
        if len(found) < count:
            for pool, (copies,) in self._matcher.match(workload):
                left = machines.left(pool)
                if left:
                    missing = -(-(count - len(found)) // (copies * pool.spec.slice_size))
                    machines.open(pool, min(left, missing))
                    found += fill(workload, count - len(found))
                    if len(found) == count:
                        break
            else:
                self._refused = {}
        return zip(found, strict=True)

    # Gangs

    def _place(self, workload: WorkloadClass, count: int) -> Iterator[tuple[KernelPlacement, ...]]:
        for _ in range(count):
            rooms = self._first_fit.rooms(workload)
            fit = self._try(workload, rooms)
            if fit.kernels is None:
                fit = self._open_for(workload, rooms)
            if fit.kernels is None:
                return
            yield fit.kernels

    def _try(self, workload: WorkloadClass, rooms: Sequence[int] | None = None) -> Fit:
        """Take room for a gang on the open machines, or none."""
        rooms = rooms or self._first_fit.rooms(workload)
        if sum(rooms) < len(workload.kernels):
            return Fit(sum(rooms))
        if not any(workload.placement.between_kernels()):
            kernels = self._first_fit.fill_gang(workload)
            if kernels is not None:
                return Fit(len(kernels), tuple(kernels))
        # Rules, and kernels that take the room of others: placement may know better.
        return fit_session(self._statement, self._selector, workload)

    def _open_for(self, workload: WorkloadClass, rooms: Sequence[int]) -> Fit:
        """Open slices for a gang: of the first pool of which enough can be made, else of several.

        Args:
            rooms: how many of its kernels have room without them, as ``FirstFit.rooms`` says.
        """
        match, mark = self._matcher.match(workload), self._first_fit.mark()
        refused: dict[PoolState, Reason] = {}
        for pool, copies in match:
            left = self._machines.left(pool)
            if not left:
                continue
            fit = self._of_one_pool(workload, pool, copies, rooms, left, mark)
            if fit.kernels is not None:
                return fit
            refused[pool] = _too_few(workload, pool, left, fit)
        fit = Fit(0)
        if not _is_tight(workload):
            fit = self._of_several_pools(workload, match, rooms, mark)
        self._refused = refused
        return fit

    def _of_one_pool(
        self,
        workload: WorkloadClass,
        pool: PoolState,
        copies: Sequence[int],
        rooms: Sequence[int],
        left: int,
        mark: Mark,
    ) -> Fit:
        tight = _is_tight(workload)
        if tight:
            rooms, left = [0] * len(rooms), 1
        of_slice = _of_slice(workload, pool, copies)
        most = [room + each * left for room, each in zip(rooms, of_slice, strict=True)]
        numbers = [len(indexes) for _, indexes in workload.requests]
        placed = sum(map(min, most, numbers))
        if placed < len(workload.kernels):
            return Fit(placed)
        opened = max(
            -(-(number - room) // (each or 1))
            for number, room, each in zip(numbers, rooms, of_slice, strict=True)
        )
        opened = max(opened, 1)
        too_few = opened - 1
        self._machines.open(pool, opened)
        fit = self._try(workload)
        while fit.kernels is None and opened < left:
            too_few, more = opened, min(opened, left - opened)
            self._machines.open(pool, more)
            opened += more
            fit = self._try(workload)
        if fit.kernels is None:
            self._first_fit.rollback(mark, workload)
            self._machines.close(pool, opened)
            return fit
        return self._with_fewest(workload, pool, opened, too_few, fit, mark)

    def _with_fewest(
        self,
        workload: WorkloadClass,
        pool: PoolState,
        opened: int,
        too_few: int,
        fit: Fit,
        mark: Mark,
    ) -> Fit:
        """The Fit of a gang that was placed since ``mark``, with as few of the ``opened`` slices as
        it needs, but more than ``too_few``; the others are closed again."""
        while opened - too_few > 1:
            half = (opened + too_few) // 2
            self._first_fit.rollback(mark, workload)
            self._machines.close(pool, opened - half)
            tried = self._try(workload)
            if tried.kernels is not None:
                opened, fit = half, tried
                continue
            self._machines.open(pool, opened - half)
            too_few = half
            fit = self._try(workload)
        return fit

    def _of_several_pools(
        self, workload: WorkloadClass, match: Match, rooms: Sequence[int], mark: Mark
    ) -> Fit:
        left, opened, fit = self._machines.left, list[tuple[PoolState, int]](), Fit(0)
        numbers = [len(indexes) for _, indexes in workload.requests]
        of_slice = {pool: _of_slice(workload, pool, copies) for pool, copies in match}
        most = [
            room + sum(each[at] * left(pool) for pool, each in of_slice.items())
            for at, room in enumerate(rooms)
        ]
        if any(map(lt, most, numbers)):
            return fit
        most = list(rooms)
        for pool, each in of_slice.items():
            slices = left(pool)
            if not slices:
                continue
            self._machines.open(pool, slices)
            opened.append((pool, slices))
            most = [room + more * slices for room, more in zip(most, each, strict=True)]
            if any(map(lt, most, numbers)):
                continue
            fit = self._try(workload)
            if fit.kernels is not None:
                break
        for pool, slices in reversed(opened):
            if fit.kernels is None:
                self._first_fit.rollback(mark, workload)
                self._machines.close(pool, slices)
            else:
                fit = self._with_fewest(workload, pool, slices, -1, fit, mark)
        return fit


def _is_tight(workload: WorkloadClass) -> bool:
    """Whether all kernels have to be in one slice, so that more slices do not help."""
    placement = workload.placement
    return placement.mode is ClusterMode.SINGLE_NODE or placement.together == SLICE


def _of_slice(workload: WorkloadClass, pool: PoolState, copies: Sequence[int]) -> list[int]:
    """The number of kernels with each request that a new slice of a pool holds at most."""
    placement, machines = workload.placement, pool.spec.slice_size
    if placement.mode is ClusterMode.SINGLE_NODE:
        machines = 1
    most = placement.max_kernels_per_agent
    return [machines * (each if most is None else min(each, most)) for each in copies]


def _too_few(workload: WorkloadClass, pool: PoolState, left: int, fit: Fit) -> Reason:
    name, kernels = pool.spec.name, len(workload.kernels)
    if _is_tight(workload):
        return reason(
            ReasonCode.POOL_GANG_UNFIT, pool=name, placed=fit.placed, kernels=kernels, slices=1
        )
    return reason(
        ReasonCode.POOL_GANG_TOO_LARGE, pool=name, placed=fit.placed, kernels=kernels, more=left
    )
