"""Gangs that a group could never hold, whatever its pools make."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from tests.autoscaling.fleets import KERNELS, pool
from tests.autoscaling.test_routing_properties import Case, cases
from tests.scheduling.clusters import ask, box, cluster, workload

from muster.autoscaling.matching import Matcher
from muster.autoscaling.pool_state import Ceilings, PoolState
from muster.autoscaling.reach import why_out_of_reach
from muster.core.reasons import Reason
from muster.core.specs.pool import SLICE
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import WorkloadClass

NO_LIMIT = Ceilings()


def out_of_reach(
    asked: WorkloadClass,
    *pools: PoolState,
    agents: Snapshot | None = None,
    ceilings: Ceilings = NO_LIMIT,
) -> Reason | None:
    snapshot = cluster() if agents is None else agents
    matcher = Matcher(snapshot.group, pools, KERNELS, Concentrated())
    return why_out_of_reach(asked, snapshot, matcher, ceilings)


def told(*args: Any, **keys: Any) -> str:
    why = out_of_reach(*args, **keys)
    assert why is not None
    return why.sentence()


def test_gang_beyond_all_that_pools_may_have_is_told_how_much_that_is() -> None:
    gang = workload(*[ask(1)] * 40)
    assert told(gang, pool("a", cpu=1, max_slices=6), pool("b", cpu=2, max_slices=5)) == (
        "it asks for 40 kernels of 1 cpu at the same time, and group pool can never hold more "
        "than 16: its pools may have 11 machines at most that hold such a kernel"
    )
    assert out_of_reach(gang, pool("a", cpu=1, max_slices=40)) is None
    assert out_of_reach(gang, pool("a", cpu=1, max_slices=20, slice_size=2)) is None


def test_agents_that_are_no_pools_count_besides_and_those_of_slices_but_once() -> None:
    agents = cluster(own=box(cpu=4), made=box(cpu=4, has={"slice": "slc-1", "pool": "a"}))
    pools = pool("a", max_slices=2)
    assert out_of_reach(workload(*[ask(4)] * 3), pools, agents=agents) is None
    assert told(workload(*[ask(4)] * 4), pools, agents=agents).endswith(
        "never hold more than 3: its pools may have 2 machines at most that hold such a kernel; "
        "its other agents hold 1"
    )


@pytest.mark.parametrize(
    ("ceilings", "most"),
    [
        (
            Ceilings(machines=3),
            "3 machines at most that hold such a kernel, by its max_machines of 3",
        ),
        (Ceilings(gpus=7), "3 machines at most that hold such a kernel, by its max_gpus of 7"),
        (Ceilings(price=5), "2 machines at most that hold such a kernel, by its max_price of 5.00"),
    ],
)
def test_ceilings_of_the_group_bound_what_its_pools_may_have(ceilings: Ceilings, most: str) -> None:
    gang, pool_ = workload(*[ask(1, gpu=2)] * 9), pool("a", gpus=2, price=2)
    assert out_of_reach(gang, pool_) is None
    assert told(gang, pool_, ceilings=ceilings).endswith(most)


def test_gang_on_one_machine_or_slice_is_held_by_the_largest() -> None:
    pools = pool("a", slice_size=4), pool("b", cpu=8)
    assert out_of_reach(workload(*[ask(4)] * 4, together="slice"), *pools) is None
    assert "(together: slice), and group pool can never hold more than 4" in told(
        workload(*[ask(4)] * 5, together="slice"), *pools
    )
    assert out_of_reach(workload(*[ask(4)] * 2, mode="single-node"), *pools) is None
    large = cluster(large=box(cpu=64))
    assert out_of_reach(workload(*[ask(4)] * 3, mode="single-node"), *pools, agents=large) is None
    assert "on one agent (mode: single-node)" in told(
        workload(*[ask(4)] * 3, mode="single-node"), *pools
    )


def test_kernels_that_no_machine_holds_are_out_of_reach_beside_others_that_some_do() -> None:
    why = told(workload(ask(1), ask(64)), pool("a"))
    assert why == (
        "it asks for 1 kernel of 64 cpu at the same time, and group pool can never hold one"
    )


def test_single_session_is_told_by_the_pools_themselves() -> None:
    assert out_of_reach(workload(ask(64)), pool("a")) is None


@given(cases())
def test_what_finds_room_is_never_out_of_reach(case: Case) -> None:
    case = replace(case, coming=[])  # these, and agents in slices, count toward no maximum here
    of_slice, _ = case.agents.attribute(SLICE)
    for id_ in [id_ for id_ in case.agents.ids if of_slice[case.agents.slot(id_)] >= 0]:
        case.agents.remove_agent(id_)
    decision = case.route()
    for each in decision.routed:
        asked = each.entry.workload
        why = out_of_reach(asked, *case.pools, agents=case.agents, ceilings=case.ceilings)
        assert why is None
