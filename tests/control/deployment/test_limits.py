"""Deployments that want more than their owner may have, or than there is."""

import pytest
from tests.control.conftest import MakeWorld
from tests.control.pool_scenarios import pool
from tests.control.served_cluster import Cluster
from tests.control.test_quotas import put
from tests.control.world import ADA, BOB

from muster.control.deployment import bounds
from muster.control.deployment.requests import DeploymentRequests
from muster.core.errors import Conflict
from muster.core.owner import Principal
from muster.core.reasons import ReasonCode
from muster.core.specs import Level
from muster.core.specs.deployment import DeploymentSpec
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


def test_number_that_follows_load_is_not_set_by_people(cluster: Cluster) -> None:
    cluster.deploy(scale={"min": 1, "max": 5})
    cluster.run(5)
    with pytest.raises(Conflict, match=r"follows load, from 1 to 5: hand it in with another scale"):
        cluster.ask("scale", 2)
    assert (cluster.deployment.replicas, cluster.deployment.spec.replicas) == (1, 1)


def deploy_as(cluster: Cluster, who: Principal, **keys: object) -> None:
    spec = DeploymentSpec.model_validate({"name": "chat", "command": ["serve"]} | keys)
    cluster.world.ask(lambda work, parts: parts[DeploymentRequests].apply(work, who, spec))


def test_name_and_host_reach_one_deployment(cluster: Cluster) -> None:
    cluster.give_hosts("example.org")
    deploy_as(cluster, ADA, host="chat.example.org")
    with pytest.raises(Conflict, match="the name 'chat' is not free: choose another"):
        deploy_as(cluster, BOB)
    with pytest.raises(Conflict, match="another deployment"):
        deploy_as(cluster, BOB, name="other", host="Chat.Example.ORG")
    with pytest.raises(Conflict, match="deployment 'chat'"):
        deploy_as(cluster, ADA, name="other", host="chat.example.org")
    deploy_as(cluster, ADA, host="talk.example.org")
    deploy_as(cluster, BOB, name="other", host="chat.example.org")


def test_project_of_a_deployment_is_not_changed_silently(cluster: Cluster) -> None:
    cluster.deploy(replicas=1, project="default")
    with pytest.raises(Conflict, match="counts for project default, which cannot be changed"):
        cluster.deploy(replicas=1, project="vision")
    cluster.deploy(replicas=2)
    assert cluster.deployment.owner.project == "default"


def test_user_has_so_many_deployments_and_replicas_and_others_have_theirs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_OF_USER", 2)
    monkeypatch.setattr(bounds, "MAX_REPLICAS_OF_USER", 10)
    deploy_as(cluster, ADA, name="one", replicas=4)
    deploy_as(cluster, ADA, name="two", scale={"min": 0, "max": 5, "target": 1})
    with pytest.raises(Conflict, match="may have no more"):
        deploy_as(cluster, ADA, name="three")
    with pytest.raises(Conflict, match="would wish 11 replicas"):
        deploy_as(cluster, ADA, name="one", replicas=6)
    deploy_as(cluster, ADA, name="one", replicas=5)
    deploy_as(cluster, BOB, name="three", replicas=10)
    monkeypatch.setattr(bounds, "MAX_REPLICAS_OF_USER", 3)
    deploy_as(cluster, ADA, name="one", replicas=4)  # fewer is always allowed


def test_replicas_above_the_quota_open_no_slice(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=0)
    cluster.world.apply(pool(max_slices=20))
    put(cluster.world, Level.USER, OWNER, limits={"cpu": 8})
    cluster.deploy(replicas=8, resources={"cpu": 4})
    cluster.run(10)
    assert len(cluster.world.slices()) == 2
