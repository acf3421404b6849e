"""Any pools, slices and demand: what routing promises can be placed, what it refuses could not."""

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaling.fleets import KERNELS, demand, pool
from tests.scheduling.strategies import clusters, queues

from muster.autoscaling.decision import RoutedDemand, RoutingDecision
from muster.autoscaling.gang_slices import is_tight
from muster.autoscaling.modelled import Destination, modelled
from muster.autoscaling.pool_state import CeilingBudget, Ceilings, ComingSlice, PoolState
from muster.autoscaling.routing import route_demand
from muster.core.reasons.of_pools import PoolPaused
from muster.core.specs.placement import ClusterMode, PlacementSpec
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fit_session
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload

PAUSED = PoolPaused(pool="a")
CONCENTRATED = Concentrated()


@dataclass(frozen=True, slots=True)
class Case:
    agents: Snapshot
    pools: list[PoolState]
    coming: list[ComingSlice]
    waiting: list[SessionWorkload]
    ceilings: Ceilings

    def route(self) -> RoutingDecision:
        return route_demand(
            demand(self.waiting, self.agents),
            self.agents,
            CONCENTRATED,
            self.pools,
            self.coming,
            kernels=KERNELS,
            ceilings=self.ceilings,
        )


_limits = st.one_of(st.none(), st.integers(0, 20))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pools = [
        pool(
            name,
            cpu=draw(st.integers(1, 6)),
            gib=draw(st.sampled_from([2, 8])),
            gpus=draw(st.integers(0, 3)),
            slices=draw(st.integers(0, 2)),
            closed=draw(st.sampled_from([None, None, None, PAUSED])),
            at_once=draw(st.sampled_from([None, None, 1])),
            slice_size=draw(st.integers(1, 3)),
            max_slices=draw(st.integers(0, 6)),
            priority=draw(st.integers(1, 2)),
            price=draw(st.integers(0, 2)),
            attributes=draw(st.sampled_from([{}, {"rack": "x"}, {"rack": "y"}])),
        )
        for name in "pqr"[: draw(st.integers(1, 3))]
    ]
    coming = [
        ComingSlice(f"sl-{number}", each.spec.name, each.spec.slice_size)
        for number, each in enumerate(draw(st.lists(st.sampled_from(pools), max_size=2)))
    ]
    waiting = [draw(_perhaps_ruled(each)) for each in draw(queues(max_size=12))]
    ceilings = Ceilings(draw(_limits), draw(_limits), draw(_limits))
    return Case(draw(_in_slices()), pools, coming, waiting, ceilings)


RULES = [
    {"together": "slice"},
    {"mode": "single-node"},
    {"together": "slice", "max_kernels_per_agent": 2},
    {"together": "slice", "rank_by": "rack"},
    {"max_kernels_per_agent": 1},
    {"max_kernels_per_agent": 2, "together": "rack"},
    {"rank_by": "rack"},
]


@st.composite
def _perhaps_ruled(draw: st.DrawFn, waiting: SessionWorkload) -> SessionWorkload:
    """The session, with rules among its kernels perhaps."""
    if len(waiting.workload.kernels) == 1 or draw(st.booleans()):
        return waiting
    placement = PlacementSpec.model_validate(draw(st.sampled_from(RULES)))
    return replace(waiting, workload=replace(waiting.workload, placement=placement))


@st.composite
def _in_slices(draw: st.DrawFn) -> Snapshot:
    """A cluster of which some agents are of two slices."""
    agents = draw(clusters())
    for slot in range(len(agents)):
        each = agents.facts(slot)
        some = draw(st.sampled_from([{}, {"slice": "sl-a"}, {"slice": "sl-b"}]))
        agents.upsert_agent(
            each.id,
            each.name,
            each.capacity,
            each.devices,
            each.accepting,
            each.status,
            {**each.attributes, **some},
        )
    return agents


def there(case: Case, decision: RoutingDecision, more: PoolState | None = None) -> Snapshot:
    """The agents, once all slices of the decision, those in flight, and one more have joined."""
    kinds = []
    by_name = {each.spec.name: each for each in case.pools}
    for slice_ in case.coming:
        spec = by_name[slice_.pool].spec
        kinds.append(modelled(spec, slice_.id, slice_.machines, KERNELS))
    counts = Counter(decision.launches)
    if more is not None:
        counts[more.spec.name] += 1
    for name, slices in counts.items():
        spec = by_name[name].spec
        new = [f"{name}+{number + 1}" for number in range(slices)]
        kinds += [modelled(spec, each, spec.slice_size, KERNELS) for each in new]
    return case.agents.extended(kinds)


def take_promised(joined: Snapshot, decision: RoutingDecision) -> Statement:
    """Take all promised room.

    Raises:
        OverCapacity: it is promised twice.
    """
    statement = Statement(joined)
    for each in decision.routed:
        take_its(statement, each)
    return statement


def take_its(statement: Statement, routed: RoutedDemand) -> None:
    """Take the promised room of an entry."""
    for request, kernel in zip(routed.entry.workload.kernels, routed.kernels, strict=True):
        slot = statement.snapshot.slot(kernel.agent_id)
        statement.take(slot, request, kernel.shares)


@given(cases())
def test_promised_room_is_there_for_all_of_them_once_the_slices_are(case: Case) -> None:
    decision = case.route()
    joined = there(case, decision)
    take_promised(joined, decision)
    for each in decision.routed:
        slots = [joined.slot(kernel.agent_id) for kernel in each.kernels]
        mask = eligible(joined, each.entry.workload)
        assert mask is None or mask[slots].all()
        placement = each.entry.workload.placement
        if placement.together is not None:
            values = {joined.facts(slot).attributes[placement.together] for slot in slots}
            assert len(values) == 1
        assert placement.mode is ClusterMode.MULTI_NODE or len({*slots}) == 1
        most = placement.max_kernels_per_agent
        assert most is None or max(Counter(slots).values()) <= most


@given(cases())
def test_slice_is_opened_for_a_tight_gang_only_where_placement_finds_no_room(case: Case) -> None:
    decision = case.route()
    statement = Statement(there(case, RoutingDecision()))
    opened = Counter[str]()
    for each in decision.routed:
        new = [str(kernel.agent_id).partition("/")[0] for kernel in each.kernels]
        more = {name for name in new if "+" in name and opened[name] == 0}
        workload = each.entry.workload
        if more and is_tight(workload) and len(workload.requests) == len(more) == 1:
            found = fit_session(statement, CONCENTRATED, workload)
            assert found.kernels is None
        specs = {pool_.spec.name: pool_.spec for pool_ in case.pools}
        for name in sorted(more):
            spec = specs[name.partition("+")[0]]
            statement.snapshot.append(modelled(spec, name, spec.slice_size, KERNELS))
        opened.update(more)
        take_its(statement, each)


@given(cases())
def test_no_single_slice_more_would_place_what_is_unmet(case: Case) -> None:
    decision = case.route()
    budget = CeilingBudget("pool", case.ceilings, case.pools)
    for pool_ in case.pools:
        budget.add(pool_.spec, decision.launches.get(pool_.spec.name, 0))
    for unmet in decision.unmet:
        assert all(unmet.why.reasons.get(each.spec.name) for each in case.pools)
    for pool_ in case.pools:
        opened = decision.launches.get(pool_.spec.name, 0)
        if opened == pool_.headroom or budget.allows(pool_.spec) == 0:
            continue
        statement = take_promised(there(case, decision, pool_), decision)
        for unmet in decision.unmet:
            fit = fit_session(statement, CONCENTRATED, unmet.workload)
            assert fit.kernels is None, (pool_.spec.name, unmet.first)


@given(cases())
def test_no_more_is_launched_than_is_used_and_allowed(case: Case) -> None:
    decision = case.route()
    served = Counter(each.entry.workload for each in decision.routed)
    unmet = {each.workload: each.sessions for each in decision.unmet}
    assert served + Counter(unmet) == Counter(each.workload for each in case.waiting)
    used = {
        str(kernel.agent_id).partition("/")[0]
        for each in decision.routed
        for kernel in each.kernels
        if each.destination is Destination.LAUNCH
    }
    budget = CeilingBudget("pool", case.ceilings, case.pools)
    for each in case.pools:
        name, launches = each.spec.name, decision.launches.get(each.spec.name, 0)
        assert launches <= each.headroom
        allowed = budget.allows(each.spec)
        assert launches == 0 or allowed is None or launches <= allowed
        budget.add(each.spec, launches)
        assert {f"{name}+{number + 1}" for number in range(launches)} <= used


@given(cases())
def test_same_demand_is_routed_the_same(case: Case) -> None:
    first, second = case.route(), case.route()
    assert (first.routed, first.launches) == (second.routed, second.launches)
    assert [each.first for each in first.unmet] == [each.first for each in second.unmet]
