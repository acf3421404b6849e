"""Deployments that want more than their owner may have, or than there is."""

import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster
from tests.control.test_quotas import put

from muster.core.reasons import ReasonCode
from muster.core.specs import Level
from muster.core.states.deployment import EndpointLifecycle, RouteStatus

OWNER = "default/default/ada"


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    return Cluster(worlds)


def codes(cluster: Cluster) -> set[str]:
    return {each.code for each in cluster.why().reasons}


def test_replicas_above_the_quota_wait_and_say_so(cluster: Cluster) -> None:
    put(cluster.world, Level.USER, OWNER, limits={"cpu": 2})
    cluster.deploy(replicas=4, resources={"cpu": 1})
    cluster.run(20)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 2
    assert codes(cluster) == {ReasonCode.QUOTA_IN_USE}
    (told,) = cluster.why().reasons
    assert "2" in told.sentence

    put(cluster.world, Level.USER, OWNER, limits={"cpu": 4})
    cluster.run(20)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 4
    assert codes(cluster) == set()


def test_replicas_that_are_not_even_taken_say_why_and_are_tried_again(cluster: Cluster) -> None:
    put(cluster.world, Level.USER, OWNER, pending_sessions=0)
    cluster.deploy(replicas=500)
    cluster.run(100)
    assert len(cluster.routes()) <= 400, "none is made while others are refused"
    assert codes(cluster) == {ReasonCode.ROUTE_QUOTA}
    assert "over by 1" in cluster.why().reasons[0].sentence
    cluster.run(60)

    put(cluster.world, Level.USER, OWNER, pending_sessions=1000)
    cluster.ask("scale", 6)
    cluster.run(60)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 6
    assert cluster.status == EndpointLifecycle.READY


def test_deployment_that_no_machine_can_hold_says_what_it_lacks(cluster: Cluster) -> None:
    cluster.deploy(replicas=3, resources={"cpu": 64})
    cluster.run(5)
    found = cluster.why()
    assert found.placement is not None
    assert [each.code for each in found.reasons] == [ReasonCode.NEVER_FITS]
