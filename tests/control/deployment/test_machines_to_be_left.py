"""Machines that are to be left by replicas without a deadline: they become empty in the end, or say
whose replicas stay."""

from functools import partial
from typing import Any

import pytest
from tests.control.conftest import MakeWorld, cpus
from tests.control.deployment.test_disruption import homes
from tests.control.pool_scenarios import pool
from tests.control.served_cluster import Cluster
from tests.control.test_draining import drain
from tests.control.world import ROOT

from muster.control.agent.explanation import explain_agent, held_up_by
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.pool.autoscaler import RouteDemand
from muster.control.pool.explanation import explain_pool, explain_slice, kept_until
from muster.control.pool.fleet import Fleet
from muster.control.pool.records import Pool, Slice
from muster.control.pool.requests import PoolRequests
from muster.control.session.cluster.state import ClusterState
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_health import HealthFaultSeen
from muster.core.specs.pool import SLICE
from muster.core.states.deployment import RouteStatus
from muster.core.states.slice import SliceStatus

FULL: dict[str, Any] = {"resources": {"cpu": 4}, "drain": 0}
"""Each replica has a machine to itself."""


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    """Four machines, none to spare."""
    return Cluster(worlds)


def why(cluster: Cluster, name: str) -> dict[ReasonCode, str]:
    world = cluster.world
    live, guard = world.plane.live, world.plane.parts[ClusterState].guard
    id_ = world.agent(name).id
    slice_ = live.of(Slice).get(live.agents[id_].fixed.get(SLICE, ""))
    until = None if slice_ is None else kept_until(slice_)
    told = explain_agent(live, guard, id_, world.clock.now(), ROOT, slice_until=until)
    return {ReasonCode(each.code): each.sentence for each in told.reasons}


def why_pool(cluster: Cluster) -> tuple[dict[ReasonCode, str], dict[ReasonCode, str]]:
    """The answers about the slices that are to go, together, and about their pool."""
    live, parts = cluster.world.plane.live, cluster.world.plane.parts
    fleet, now = parts[Fleet], cluster.world.clock.now()
    (its_pool,) = live.of(Pool).values()
    slices = fleet.slices(its_pool.name)
    cluster_state = parts[ClusterState]
    holders, holds = (
        partial(held_up_by, live, cluster_state.guard, now),
        cluster_state.machine_holds,
    )
    of_slices = [
        explain_slice(each, its_pool, fleet, parts[RouteDemand], holders, holds, now)
        for each in slices
        if each.doomed is not None
    ]
    of_pool = explain_pool(its_pool, slices, fleet, holders, holds, now)
    told = [each for answer in of_slices for each in answer.reasons]
    return (
        {ReasonCode(each.code): each.sentence for each in told},
        {ReasonCode(each.code): each.sentence for each in of_pool.reasons},
    )


def test_drain_without_a_deadline_ends_where_no_machine_is_to_spare(cluster: Cluster) -> None:
    cluster.deploy(replicas=4, **FULL)
    cluster.run(20)
    drain(cluster.world, "m0", None)
    cluster.run(20)
    assert ReasonCode.REPLACEMENT_FIRST in why(cluster, "m0")
    served: list[int] = []
    cluster.run(80, lambda: served.append(len(cluster.serving())))
    assert "m0" not in homes(cluster)
    assert set(served) == {3, 4}


def test_second_drain_says_whose_disruption_has_the_replica_stay_until_there_is_room(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=4, **FULL)
    cluster.run(20)
    drain(cluster.world, "m0", None)
    drain(cluster.world, "m1", None)
    served: list[int] = []
    cluster.run(300, lambda: served.append(len(cluster.serving())))
    assert min(served) == 3
    (left,) = {"m0", "m1"} & set(homes(cluster))
    told = why(cluster, left)[ReasonCode.DISRUPTION_EXHAUSTED]
    assert "deployment chat can spare no replica: 3 of 4 serve" in told
    cluster.world.add_agent("m9", cpus(4))
    cluster.run(150, lambda: served.append(len(cluster.serving())))
    assert min(served) == 3
    assert sorted(homes(cluster)) == ["m2", "m3", "m9"]
    assert why(cluster, left).keys() == {ReasonCode.AGENT_BARRED}


def test_drain_with_a_deadline_says_until_when_the_disruption_has_replicas_stay(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=4, disruption=0, **FULL)
    cluster.run(20)
    drain(cluster.world, "m0", 0.0)
    cluster.run(60)
    assert "in 9m00s it may keep none" in why(cluster, "m0")[ReasonCode.DISRUPTION_EXHAUSTED]


def test_drain_says_before_its_deadline_who_will_have_replicas_stay_and_until_when(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=4, disruption=0, **FULL)
    cluster.run(20)
    drain(cluster.world, "m0", 600.0)
    cluster.run(60)
    assert "in 19m00s it may keep none" in why(cluster, "m0")[ReasonCode.DISRUPTION_EXHAUSTED]


def test_drain_that_never_ends_says_that_no_deadline_was_given(cluster: Cluster) -> None:
    cluster.deploy(replicas=4, disruption=0, **FULL)
    cluster.run(20)
    drain(cluster.world, "m0", None)
    cluster.run(3600)
    told = why(cluster, "m0")[ReasonCode.DISRUPTION_EXHAUSTED]
    assert "deployment chat can spare no replica: 4 of 4 serve" in told
    assert told.endswith("no deadline was given to leave the machine")
    assert "m0" in homes(cluster)


def test_drain_that_a_paused_roll_out_holds_up_says_so_and_goes_on_with_it(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=4, **FULL)
    cluster.run(20)
    cluster.deploy(replicas=4, command=["other"], **FULL)
    cluster.ask("pause")
    drain(cluster.world, "m0", None)
    cluster.run(600)
    told = why(cluster, "m0")
    said = [told.get(ReasonCode.REPLACEMENT_PAUSED), told.get(ReasonCode.DISRUPTION_EXHAUSTED)]
    (held,) = filter(None, said)
    assert "deployment chat" in held
    assert "roll-out is paused" in held
    assert "no deadline was given to leave the machine" in held
    assert "m0" in homes(cluster)
    cluster.world.add_agent("m9", cpus(4))
    cluster.ask("resume")
    cluster.run(300)
    assert "m0" not in homes(cluster)


def test_isolated_machine_is_left_where_no_machine_is_to_spare(cluster: Cluster) -> None:
    cluster.deploy(replicas=4, **FULL)
    cluster.run(20)
    agent = cluster.world.plane.live.agents[cluster.world.agent("m0").id]
    seen = HealthFaultSeen(what="it hums")
    cluster.world.ask(
        lambda work, parts: parts[IncidentLifecycle].isolate(work, agent, "Test", seen)
    )
    served: list[int] = []
    cluster.run(150, lambda: served.append(len(cluster.serving())))
    assert "m0" not in homes(cluster)
    assert min(served) == 3


def pooled(worlds: MakeWorld, deployment: dict[str, Any] | None = None, **keys: Any) -> Cluster:
    """Three replicas on three machines of a pool."""
    cluster = Cluster(worlds, agents=0)
    cluster.world.apply(pool(**keys))
    cluster.deploy(replicas=3, **FULL, **(deployment or {}))
    cluster.run(150)
    assert len(cluster.serving()) == 3
    return cluster


def test_pool_makes_the_machine_for_the_replacement(worlds: MakeWorld) -> None:
    cluster = pooled(worlds, max_slices=4)
    drain(cluster.world, homes(cluster)[0], None)
    served: list[int] = []
    left = homes(cluster)[0]
    cluster.run(300, lambda: served.append(len(cluster.serving())))
    assert min(served) == 3
    assert left not in homes(cluster)


@pytest.mark.parametrize(
    ("within_s", "said"),
    [(None, "no deadline was given to leave the machine"), (600.0, "in 9m00s it may keep none")],
)
def test_slice_and_its_pool_and_agent_say_whose_disruption_has_replicas_stay_and_until_when(
    worlds: MakeWorld, within_s: float | None, said: str
) -> None:
    cluster = pooled(worlds, max_slices=3, deployment={"disruption": 0})
    (slice_, *_) = cluster.world.slices()
    cluster.world.ask(
        lambda work, parts: parts[PoolRequests].delete_slice(work, ROOT, slice_.id, within_s)
    )
    cluster.run(120)
    (agent,) = (
        each.name
        for each in cluster.world.plane.live.agents.values()
        if each.fixed[SLICE] == slice_.id
    )
    for told in *why_pool(cluster), why(cluster, agent):
        exhausted = told[ReasonCode.DISRUPTION_EXHAUSTED]
        assert "deployment chat can spare no replica" in exhausted
        assert said in exhausted


def test_slices_of_a_full_pool_are_replaced_one_by_one(worlds: MakeWorld) -> None:
    cluster = pooled(worlds, max_slices=3)
    cluster.world.apply(pool(max_slices=3, machine={"cpu": 4, "memory": "16GiB"}))
    cluster.world.ask(lambda work, parts: parts[PoolRequests].replace(work, ROOT, "cpu", 1))
    served: list[int] = []
    cluster.run(900, lambda: served.append(len(cluster.serving())))
    slices = [(each.revision, each.status) for each in cluster.world.slices()]
    assert slices == [(2, SliceStatus.READY)] * 3
    assert min(served) == 2
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 3
