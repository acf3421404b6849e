"""Replicas for which there is no room: waiting is no failure."""

from typing import Any

from tests.control.conftest import MakeWorld, cpus
from tests.control.deployment.test_disruption import end_drain
from tests.control.served_cluster import Cluster
from tests.control.test_draining import drain

from muster.control.group.requests import GroupRequests
from muster.core.reasons import ReasonCode
from muster.core.specs import ScalingGroup
from muster.core.states.deployment import EndpointLifecycle

FULL: dict[str, Any] = {"resources": {"cpu": 4}, "drain": 0}
"""Each replica has a machine to itself."""


def impatient(worlds: MakeWorld, agents: int) -> Cluster:
    """A cluster whose sessions wait for a place for 20 s."""
    cluster = Cluster(worlds, agents=agents)
    spec = ScalingGroup.model_validate({"name": "default", "pending_timeout": 20})
    cluster.world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    return cluster


def test_new_deployment_that_waits_for_room_is_never_given_up(worlds: MakeWorld) -> None:
    cluster = impatient(worlds, agents=1)
    drain(cluster.world, "m0", None)
    cluster.deploy(replicas=1, **FULL)
    cluster.run(300)
    assert (cluster.deployment.failed_starts, cluster.deployment.reason) == (0, None)
    end_drain(cluster.world, "m0")
    cluster.run(60)
    assert cluster.serving() == [1]


def test_replicas_wait_for_room_in_one_session_each_whatever_the_pending_timeout(
    worlds: MakeWorld,
) -> None:
    cluster = impatient(worlds, agents=1)
    cluster.deploy(replicas=4, **FULL)
    cluster.run(10)
    live = cluster.world.plane.live
    before = {each.name for each in cluster.routes()}, set(live.sessions)
    cluster.run(100)
    assert ({each.name for each in cluster.routes()}, set(live.sessions)) == before
    assert [len(each) for each in before] == [4, 4]
    assert cluster.serving() == [1]
    cluster.world.restart_controller()
    cluster.run(100)
    live = cluster.world.plane.live
    assert ({each.name for each in cluster.routes()}, set(live.sessions)) == before
    cluster.world.add_agent("m9", cpus(4))
    cluster.run(10)
    assert cluster.serving() == [1, 1]


def test_replica_that_waits_for_room_again_and_again_leaves_the_budget_of_its_revision(
    worlds: MakeWorld,
) -> None:
    cluster = impatient(worlds, agents=1)
    cluster.deploy(replicas=1, **FULL)
    cluster.run(10)
    update = {"surge": 1, "unavailable": 0, "progress_deadline": 1000}
    cluster.deploy(replicas=1, command=["serve", "2"], update=update, **FULL)
    cluster.run(300)
    assert cluster.deployment.rollout is not None
    assert cluster.deployment.rollout.failed_starts == 0
    assert (cluster.status, cluster.serving()) == (EndpointLifecycle.DEPLOYING, [1])


def test_revision_that_is_given_up_for_lack_of_room_says_so(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=1)
    cluster.deploy(replicas=1, **FULL)
    cluster.run(10)
    update = {"surge": 1, "unavailable": 0, "progress_deadline": 60}
    cluster.deploy(replicas=1, command=["serve", "2"], update=update, **FULL)
    cluster.run(70)
    why = cluster.deployment.reason
    assert why is not None
    assert why.code is ReasonCode.ROLLOUT_NO_ROOM
    assert "cpu" in why.sentence()
    assert (cluster.deployment.stable, cluster.serving()) == (1, [1])


def test_revision_of_which_a_replica_has_room_and_is_not_healthy_is_not_given_up_for_room(
    worlds: MakeWorld,
) -> None:
    cluster = Cluster(worlds, agents=3)
    cluster.deploy(replicas=2, **FULL)
    cluster.run(10)
    cluster.bad = {2}
    update = {"surge": 2, "unavailable": 0, "progress_deadline": 60}
    cluster.deploy(replicas=2, command=["serve", "2"], update=update, **FULL)
    cluster.run(70)
    why = cluster.deployment.reason
    assert why is not None
    assert why.code is ReasonCode.ROLLOUT_TOO_SLOW
