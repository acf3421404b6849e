"""Demand is charged against quotas in the order of the queue, as placement will charge it."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaling.fleets import KERNELS, NOW, pool, several
from tests.scheduling.clusters import ANN, BOB, ask, cluster, policy, session, workload

from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.demand import Demand
from muster.autoscaling.modelled import modelled
from muster.autoscaling.pool_state import PoolState
from muster.autoscaling.routing import route_demand
from muster.core.specs import Level, QuotaSpec
from muster.scheduling.accounting.usage import Accounting, Quotas
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload, WorkloadClass

ANNS = "default/research/ann"


def quota(name: str = ANNS, **fields: object) -> QuotaSpec:
    return QuotaSpec.model_validate({"level": "user", "name": name, **fields})


def waits(
    waiting: Iterable[SessionWorkload],
    quotas: Iterable[QuotaSpec],
    agents: Snapshot | None = None,
    sequencer: str = "fifo",
) -> GroupState:
    """A group in which sessions wait, with or without machines."""
    accounting = Accounting(quotas=Quotas(quotas))
    snapshot = cluster() if agents is None else agents
    group = GroupState(snapshot, policy(sequencer=sequencer), accounting)
    for each in waiting:
        group.submit(each)
    return group


def routed(group: GroupState, *pools: PoolState, **demand: Any) -> RoutingDecision:
    """The decision about what a pass left that found no room; ``demand`` are keys of it."""
    assert not group.run_pass(NOW).placed
    return route_demand(
        Demand(group, NOW, **demand),
        group.snapshot,
        Concentrated(),
        pools,
        kernels=KERNELS,
    )


def withheld(decision: RoutingDecision) -> dict[str, tuple[int, list[str]]]:
    return {
        each.first.removeprefix("ses-"): (each.sessions, [why.sentence() for why in each.reasons])
        for each in decision.withheld
    }


def test_ten_sessions_under_a_quota_for_one_open_one_slice() -> None:
    group = waits(several(10, workload(ask(4))), [quota(sessions=1)])
    decision = routed(group, pool("a"))
    assert decision.launches == {"a": 1}
    assert not decision.unmet
    assert withheld(decision) == {
        "001": (
            9,
            [
                "sessions: used 1 + requested 1 > limit 1, over by 1 (quota of user "
                "default/research/ann, of which the work ahead that waits for machines uses a part)"
            ],
        )
    }


def test_amounts_of_a_quota_bind_demand_and_other_owners_are_served() -> None:
    anns = [session(f"ann{n}", ask(4), at=n) for n in range(8)]
    bobs = [session("bob", ask(4), at=9, owner=BOB)]
    decision = routed(waits([*anns, *bobs], [quota(limits={"cpu": 8})]), pool("a"))
    assert [each.entry.session for each in decision.routed] == ["ses-ann0", "ses-ann1", "ses-bob"]
    assert decision.launches == {"a": 3}


def test_what_no_pool_serves_takes_nothing_of_a_quota() -> None:
    waiting = [session("huge", ask(64), at=0), session("small", ask(4), at=1)]
    decision = routed(waits(waiting, [quota(sessions=1)]), pool("a"))
    assert [each.entry.session for each in decision.routed] == ["ses-small"]
    assert [each.first for each in decision.unmet] == ["ses-huge"]
    assert not decision.withheld


def test_later_tasks_of_a_job_are_demand_as_far_as_their_quota_goes() -> None:
    tasks = workload(ask(4))
    group = waits(several(2, tasks), [quota(sessions=5)])
    decision = routed(group, pool("a", max_slices=50), to_come={tasks: 20})
    assert decision.launches == {"a": 5}
    ((left, _),) = withheld(decision).values()
    assert left == 17


def test_sessions_of_other_groups_count_against_the_same_quota() -> None:
    group = waits(several(3, workload(ask(4))), [quota(sessions=2)])
    decision = routed(group, pool("a"), elsewhere={workload(ask(1)): 1})
    assert decision.launches == {"a": 1}


_quotas = st.lists(
    st.builds(
        quota,
        name=st.sampled_from([ANNS, "*/*/*", "default/research/bob"]),
        limits=st.sampled_from([{}, {"cpu": 4}, {"cpu": 9}]),
        sessions=st.sampled_from([None, 1, 2, 5]),
    ),
    max_size=3,
)
_classes = st.builds(
    workload,
    st.sampled_from([ask(4), ask(3), ask(2.5), ask(5)]),
    owner=st.sampled_from([ANN, BOB]),
    priority=st.sampled_from([50, 60]),
)


@given(
    quotas=_quotas,
    classes=st.lists(_classes, min_size=1, max_size=12),
    sequencer=st.sampled_from(["fifo", "lifo", "drf"]),
)
def test_demand_is_what_placement_places_once_the_machines_are_there(
    quotas: Sequence[QuotaSpec], classes: Sequence[WorkloadClass], sequencer: str
) -> None:
    waiting = [
        SessionWorkload(session(f"{at:02}").id, float(at), its) for at, its in enumerate(classes)
    ]
    machines = pool("a", cpu=4, max_slices=20)
    decision = routed(waits(waiting, quotas, sequencer=sequencer), machines)
    slices = decision.launches.get("a", 0)
    came = [modelled(machines.spec, f"a+{at + 1}", 1, KERNELS) for at in range(slices)]
    there = waits(waiting, quotas, cluster().extended(came), sequencer)
    placed = {each.session.id for each in there.run_pass(NOW).placed}
    assert placed == {each.entry.session for each in decision.routed}


@pytest.mark.parametrize("sequencer", ["fifo", "drf"])
def test_demand_leaves_usage_as_it_is(sequencer: str) -> None:
    group = waits(several(3, workload(ask(4))), [quota(sessions=2)], sequencer=sequencer)
    routed(group, pool("a"))
    assert group.accounting.usage.of((Level.USER, ANNS)).sessions == 0
