"""Machines that are to be left by replicas without a deadline: they become empty in the end, or say
whose replicas stay."""

from typing import Any

import pytest
from tests.control.conftest import MakeWorld, cpus
from tests.control.deployment.test_disruption import homes
from tests.control.pool_scenarios import pool
from tests.control.served_cluster import Cluster
from tests.control.test_draining import drain
from tests.control.world import ROOT

from muster.control.agent.explanation import explain_agent
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.pool.requests import PoolRequests
from muster.control.session.cluster.state import ClusterState
from muster.core.reasons import ReasonCode, reason
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
    guard = world.plane.parts[ClusterState].guard
    told = explain_agent(world.plane.live, guard, world.agent(name).id, world.clock.now())
    return {ReasonCode(each.code): each.sentence for each in told.reasons}


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


def test_isolated_machine_is_left_where_no_machine_is_to_spare(cluster: Cluster) -> None:
    cluster.deploy(replicas=4, **FULL)
    cluster.run(20)
    agent = cluster.world.plane.live.agents[cluster.world.agent("m0").id]
    seen = reason(ReasonCode.HEALTH_SEEN, what="it hums")
    cluster.world.ask(
        lambda work, parts: parts[IncidentLifecycle].isolate(work, agent, "Test", seen)
    )
    served: list[int] = []
    cluster.run(150, lambda: served.append(len(cluster.serving())))
    assert "m0" not in homes(cluster)
    assert min(served) == 3


def pooled(worlds: MakeWorld, **keys: Any) -> Cluster:
    """Three replicas on three machines of a pool."""
    cluster = Cluster(worlds, agents=0)
    cluster.world.apply(pool(**keys))
    cluster.deploy(replicas=3, **FULL)
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
