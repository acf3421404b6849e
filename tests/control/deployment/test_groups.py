"""Deployments whose group is changed."""

import pytest
from tests.control.conftest import MakeWorld, cpus
from tests.control.served_cluster import Cluster

from muster.control.group.requests import GroupRequests
from muster.core.specs import ScalingGroup


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    """A deployment that serves in the first of two groups."""
    cluster = Cluster(worlds)
    other = ScalingGroup(name="other")
    cluster.world.ask(lambda work, parts: parts[GroupRequests].put_group(work, other))
    cluster.world.add_agent("o", cpus(4), group="other")
    cluster.deploy(replicas=2, drain=1)
    cluster.run(10)
    return cluster


def _groups(cluster: Cluster) -> list[str]:
    return sorted(each.group for each in cluster.world.plane.live.sessions.values())


def _lose_all(cluster: Cluster) -> None:
    for session in list(cluster.world.plane.live.sessions):
        cluster.cancel_session(session)
    cluster.run(40)


def test_update_moves_replicas_to_the_group_and_a_new_controller_knows_it(cluster: Cluster) -> None:
    cluster.deploy(replicas=2, drain=1, group="other")
    cluster.run(60)
    assert _groups(cluster) == ["other", "other"]
    cluster.world.restart_controller()
    assert cluster.deployment.group == "other"
    _lose_all(cluster)
    assert _groups(cluster) == ["other", "other"]


def test_replicas_of_the_former_revision_are_made_in_its_own_group(cluster: Cluster) -> None:
    cluster.bad = {2}
    update = {"progress_deadline": 20}
    cluster.deploy(replicas=2, drain=1, group="other", update=update)
    cluster.run(1)
    cluster.ask("pause")
    cluster.run(1)
    _lose_all(cluster)
    assert _groups(cluster) == ["default", "default"]
    cluster.ask("resume")
    cluster.run(100)
    assert cluster.deployment.stable == 1, "the other revision was given up"
    _lose_all(cluster)
    assert _groups(cluster) == ["default", "default"]
