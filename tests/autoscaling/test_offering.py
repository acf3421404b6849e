"""Slices in flight are offered so that what cannot go elsewhere keeps what only it can use."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaling.fleets import KERNELS, demand, pool, routed, sessions, several, where
from tests.scheduling.clusters import ask, cluster, workload

from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.matching import Matcher
from muster.autoscaling.offering import keeping_first, offers
from muster.autoscaling.pool_state import ComingSlice, PoolState
from muster.autoscaling.routing import route_demand
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload

FLEXIBLE = workload(ask(4))
ONLY_X = workload(ask(4), constraints=["zone=x"])


def in_flight(**slices: int) -> list[ComingSlice]:
    return [
        ComingSlice(f"{name}-{number}", name, 1)
        for name, count in slices.items()
        for number in range(count)
    ]


def test_what_can_go_elsewhere_leaves_the_machines_that_others_need() -> None:
    pools = pool("h100", slices=2, attributes={"zone": "x"}), pool("a100", slices=2)
    waiting = sessions(("f0", FLEXIBLE), ("f1", FLEXIBLE), ("x0", ONLY_X), ("x1", ONLY_X))
    decision = routed(waiting, *pools, coming=in_flight(h100=2, a100=2))
    assert decision.launches == {}
    assert where(decision) == {
        "f0": "a100-0/0",
        "f1": "a100-1/0",
        "x0": "h100-0/0",
        "x1": "h100-1/0",
    }


def test_slices_of_the_first_pool_by_priority_are_taken_where_that_costs_no_machine() -> None:
    pools = pool("first", slices=1, priority=10), pool("late", slices=1, attributes={"zone": "x"})
    coming = in_flight(late=1, first=1)
    one = several(1, FLEXIBLE)
    assert where(routed(one, *pools, coming=coming)) == {"000": "first-0/0"}


def test_priority_of_a_pool_does_not_cost_a_machine() -> None:
    pools = pool("h100", slices=1, priority=10, attributes={"zone": "x"}), pool("a100", slices=1)
    waiting = sessions(("f", FLEXIBLE), ("x", ONLY_X))
    decision = routed(waiting, *pools, coming=in_flight(h100=1, a100=1))
    assert decision.launches == {}
    assert where(decision)["f"] == "a100-0/0"


def test_only_work_of_one_pool_that_others_could_take_keeps_its_machines() -> None:
    pools = [pool("h100", attributes={"zone": "x"}), pool("a100"), pool("b200")]
    matcher = Matcher("pool", pools, KERNELS, Concentrated())
    assert keeping_first({ONLY_X: {0}, FLEXIBLE: {1}}, matcher) == {ONLY_X}
    assert keeping_first({ONLY_X: {0}, FLEXIBLE: {0}}, matcher) == set()
    assert keeping_first({ONLY_X: {0}}, matcher) == set()
    assert keeping_first({FLEXIBLE: {1, 2}}, matcher) == set()


@dataclass(frozen=True, slots=True)
class Case:
    pools: Sequence[PoolState]
    coming: Sequence[ComingSlice]
    waiting: Sequence[SessionWorkload]

    def route(self, coming: Sequence[ComingSlice]) -> RoutingDecision:
        agents = cluster()
        return route_demand(
            demand(self.waiting, agents),
            agents,
            Concentrated(),
            self.pools,
            coming,
            kernels=KERNELS,
        )


ZONES = ("x", "y", "z")
_asks = st.builds(
    lambda cpu, zones: workload(
        ask(cpu), constraints=[f"zone in {','.join(zones)}"] if zones else []
    ),
    st.sampled_from([4, 4, 2, 1]),
    st.lists(st.sampled_from(ZONES), unique=True, max_size=2),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pools = [
        pool(
            f"in-{zone}",
            slices=0,
            max_slices=30,
            priority=draw(st.sampled_from([10, 10, 20])),
            slice_size=draw(st.sampled_from([1, 1, 2])),
            attributes={"zone": zone},
        )
        for zone in ZONES
    ]
    of_pools = [
        (each, draw(st.sampled_from([0, 1, 8, 10]))) for each in draw(st.permutations(pools))
    ]
    coming = [
        ComingSlice(f"{each.spec.name}-{number}", each.spec.name, each.spec.slice_size)
        for each, count in of_pools
        for number in range(count)
    ]
    kinds = draw(st.lists(st.tuples(_asks, st.sampled_from([1, 8, 10])), min_size=1, max_size=4))
    waiting = [its for its, count in kinds for _ in range(count)]
    named = [(f"{number:03}", its) for number, its in enumerate(waiting)]
    return Case(pools, coming, sessions(*named))


def machines(case: Case, decision: RoutingDecision) -> int:
    size = {each.spec.name: each.spec.slice_size for each in case.pools}
    return sum(size[name] * slices for name, slices in decision.launches.items())


@given(cases())
def test_no_more_machines_are_made_than_by_the_best_of_the_orders_that_are_tried(
    case: Case,
) -> None:
    decision = case.route(case.coming)
    matcher = Matcher("pool", case.pools, KERNELS, Concentrated())
    tried = offers(case.coming, demand(case.waiting, cluster()), matcher)
    made = [machines(case, in_order(case, each)) for each in tried]
    assert machines(case, decision) == min(made)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_no_order_of_pools_makes_fewer_machines_by_more_than_one_slice_a_pool(case: Case) -> None:
    decision = case.route(case.coming)
    best = min(
        machines(case, in_order(case, [each for name in names for each in of_pool(case, name)]))
        for names in permutations(each.spec.name for each in case.pools)
    )
    one_each = sum(each.spec.slice_size for each in case.pools)
    assert machines(case, decision) <= best + one_each


def of_pool(case: Case, name: str) -> list[ComingSlice]:
    return [each for each in case.coming if each.pool == name]


def in_order(case: Case, coming: Sequence[ComingSlice]) -> RoutingDecision:
    """The decision if slices in flight are offered in this order, whatever would be better."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muster.autoscaling.routing.offers", lambda *_: [coming])
        return case.route(coming)
