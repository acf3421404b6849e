"""The slices of a replay: demand is routed by the functions of ``autoscaling``, slices boot after a
time that is given, and idle ones are deleted. Providers never fail here.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.demand import Demand
from muster.autoscaling.matching import Matcher
from muster.autoscaling.pool_state import CeilingBudget, Ceilings, ComingSlice, PoolState
from muster.autoscaling.routing import route_demand
from muster.autoscaling.slice_plan import SliceState, plan_slices
from muster.core.ids import AgentId, IdKind
from muster.core.reasons import Reason
from muster.scheduling.cluster.snapshot import AgentFacts
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.workload import KernelPlacement, WorkloadClass
from muster.simulate.policy_file import NamedPolicy
from muster.simulate.recording import PoolUse

ROUTE_S = 0.25
"""The time between two routings, at least, as in a controller."""
_NEVER = float("inf")


@dataclass(slots=True)
class _Slice:
    """A slice that is not deleted.

    Args:
        kernels: that run on it.
        idle_since: since when nobody used it nor was to find room on it; None if somebody does.
    """

    id: str
    use: PoolUse
    made_at: float
    machines: tuple[AgentFacts, ...]
    is_ready: bool = False
    kernels: int = 0
    idle_since: float | None = None


@dataclass(slots=True)
class Slices:
    """The slices of a scaling group in virtual time.

    Attributes:
        next_at: when something happens to them, if nothing else does before.
        uses: by pool, in the order of the policy's file.

    Args:
        state: of the group; machines join it and leave it.
        capacity: of all agents of the group, by name of the resource; kept current.
        boot_s: from the wish for a slice until its machines take work.
    """

    named: NamedPolicy
    state: GroupState
    capacity: Counter[str]
    boot_s: float
    next_at: float = _NEVER
    uses: list[PoolUse] = field(init=False)
    _slices: dict[str, _Slice] = field(default_factory=dict)
    _slice_of: dict[AgentId, _Slice] = field(default_factory=dict)
    _booting: list[tuple[float, int, _Slice]] = field(default_factory=list)  # a heap
    _made: int = 0
    _looked_at: float = -_NEVER
    _matcher: Matcher | None = None

    def __post_init__(self) -> None:
        self.uses = [PoolUse(each) for each in self.named.pools]
        self.next_at = 0.0 if self.uses else _NEVER

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of slices of each pool, those that boot included."""
        return tuple(use.made - use.deleted for use in self.uses)

    def could_hold(self, workload: WorkloadClass) -> bool:
        """Whether a machine of some pool could hold a kernel of the class."""
        return bool(self.uses) and bool(self._current_matcher().match(workload).pools)

    def refusals(self, workload: WorkloadClass) -> Iterator[Reason]:
        """The reasons for which no machine of any pool could hold a kernel of the class."""
        for use in self.uses:
            yield from self._current_matcher().refusals(workload, use.pool)

    # What happens to them

    def took(self, kernels: Iterable[KernelPlacement]) -> None:
        """Note that kernels run."""
        for each in kernels:
            if (its := self._slice_of.get(each.agent_id)) is not None:
                its.kernels += 1

    def gave_back(self, kernels: Iterable[KernelPlacement]) -> None:
        """Note that kernels that ran have left."""
        for each in kernels:
            if (its := self._slice_of.get(each.agent_id)) is not None:
                its.kernels -= 1

    def join(self, now: float) -> None:
        """Have the machines join that have booted by now."""
        while self._booting and self._booting[0][0] <= now:
            _, _, slice_ = heapq.heappop(self._booting)
            if slice_.id not in self._slices:
                continue  # deleted before
            slice_.is_ready = True
            for machine in slice_.machines:
                self.state.set_agent(machine)
                self._slice_of[machine.id] = slice_
            self._count(slice_, 1)

    def look(self, now: float) -> None:
        """Route the demand that the last pass has left, and make and delete slices."""
        if not self.uses:
            return
        self.next_at = self._looked_at + ROUTE_S
        if now >= self.next_at:
            self._looked_at = now
            self.next_at = self._decide(now)
        while self._booting and self._booting[0][2].id not in self._slices:
            heapq.heappop(self._booting)
        if self._booting:
            self.next_at = min(self.next_at, self._booting[0][0])

    def finish(self, now: float) -> None:
        """Count the time of the slices that are left at the end."""
        for slice_ in self._slices.values():
            slice_.use.machine_s += (now - slice_.made_at) * len(slice_.machines)

    # Decisions

    def _decide(self, now: float) -> float:
        """Make and delete slices; when time alone would have it decide otherwise."""
        decision = self._route(now)
        promised: Counter[str] = Counter()
        for routed in decision.routed:
            promised.update({self._name_of(each.agent_id) for each in routed.kernels})
        found = []
        for slice_ in self._slices.values():
            busy, sessions = slice_.kernels > 0, promised[slice_.id]
            if busy or sessions:
                slice_.idle_since = None
            elif slice_.idle_since is None:
                slice_.idle_since = now
            found.append(
                SliceState(slice_.id, slice_.use.pool.name, slice_.idle_since, busy, sessions)
            )
        states = self._current_states()
        budget = CeilingBudget(self.named.group.name, self._ceilings(), states)
        plan = plan_slices(states, found, decision.launches, budget, now)
        for id_ in plan.delete:
            self._delete(self._slices[id_], now)
        for use in self.uses:
            for _ in range(plan.launch.get(use.pool.name, 0)):
                self._make(use, now)
        return _NEVER if plan.looks_at is None else plan.looks_at

    def _route(self, now: float) -> RoutingDecision:
        demand, group = Demand(self.state, now), self.named.group
        if not demand.classes:
            return RoutingDecision()
        coming = [
            ComingSlice(each.id, each.use.pool.name, len(each.machines))
            for each in self._slices.values()
            if not each.is_ready
        ]
        matcher = self._current_matcher()
        return route_demand(
            demand,
            self.state.snapshot,
            self.state.policy.selector,
            self._current_states(),
            coming,
            kernels=group.kernels_per_agent,
            ceilings=self._ceilings(),
            matcher=matcher,
        )

    def _current_matcher(self) -> Matcher:
        if self._matcher is None:
            states = self._current_states()
            group, selector = self.named.group, self.state.policy.selector
            self._matcher = Matcher(group.name, states, group.kernels_per_agent, selector)
        return self._matcher

    def _current_states(self) -> tuple[PoolState, ...]:
        """The pools as they are now."""
        uses = zip(self.uses, self.counts, strict=True)
        return tuple(PoolState(use.pool, count) for use, count in uses)

    def _ceilings(self) -> Ceilings:
        group = self.named.group
        return Ceilings(group.max_machines, group.max_gpus, group.max_price)

    def _name_of(self, agent_id: AgentId) -> str:
        """The slice of an agent, or of a modelled machine; empty for other agents."""
        its = self._slice_of.get(agent_id)
        return its.id if its is not None else agent_id.rpartition("/")[0]

    # Making and deleting

    def _make(self, use: PoolUse, now: float) -> None:
        use.made += 1
        self._made += 1
        id_, pool = f"{use.pool.name}-{use.made}", use.pool
        capacity = pool.machine.capacity(self.named.group.kernels_per_agent)
        machines = tuple(
            AgentFacts(
                AgentId(f"{IdKind.AGENT}-{id_}/{index}"),
                f"{id_}/{index}",
                capacity,
                pool.machine.devices,
                accepting=True,
                status="ALIVE",
                attributes=pool.attributes_in(id_),
            )
            for index in range(pool.slice_size)
        )
        slice_ = self._slices[id_] = _Slice(id_, use, now, machines)
        heapq.heappush(self._booting, (now + self.boot_s, self._made, slice_))

    def _delete(self, slice_: _Slice, now: float) -> None:
        slice_.use.deleted += 1
        slice_.use.machine_s += (now - slice_.made_at) * len(slice_.machines)
        del self._slices[slice_.id]
        if slice_.is_ready:
            for machine in slice_.machines:
                self.state.remove_agent(machine.id)
                del self._slice_of[machine.id]
            self._count(slice_, -1)

    def _count(self, slice_: _Slice, sign: int) -> None:
        for machine in slice_.machines:
            amounts = replace(machine.capacity, kernels=0).as_dict()
            self.capacity.update({name: sign * amount for name, amount in amounts.items()})
