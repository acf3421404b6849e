"""Routes and names of deployments after a commit that failed."""

import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.control.inbox import NotStored
from muster.store.store import CommitFailed
from muster.store.unit import Unit


def full(unit: Unit) -> None:
    raise CommitFailed("database or disk is full")


def test_failed_commit_leaves_routes_and_names_as_they_are_stored(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.deploy(replicas=2)
    world, former = cluster.world, cluster.world.plane.live
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "commit", full)
        with pytest.raises(NotStored):
            cluster.deploy(name="other", replicas=3)
    world.run(1.5)  # the plane waits before it goes on
    live, routes = world.plane.live, world.plane.parts[Routes]
    assert live is not former
    (deployment,) = live.of(Deployment).values()
    assert routes.called("other") is None
    assert routes.called(deployment.name) is deployment
    assert [*routes.of(deployment)] == [*live.of(Route).values()]
    assert len(routes.of(deployment)) == 2
