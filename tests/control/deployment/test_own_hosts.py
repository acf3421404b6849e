"""Names of the balancers themselves: whoever had one as its host would get all requests by path."""

import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment
from muster.control.deployment.requests import DeploymentRequests
from muster.control.deployment.traffic import Traffic
from muster.core.errors import Conflict

OURS = "services.example.org"


def test_deployment_cannot_have_a_name_of_the_balancers(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(worlds)
    requests = cluster.world.plane.parts[DeploymentRequests]
    monkeypatch.setattr(requests, "_own_hosts", {OURS})
    with pytest.raises(Conflict, match="a name of Muster's own balancers"):
        cluster.deploy(host=OURS.upper())
    cluster.deploy(host=f"chat.{OURS}")


def test_deployment_that_had_the_name_before_is_published_without_it(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.deploy(host=OURS)
    cluster.deploy(name="other", host=f"other.{OURS}")
    cluster.run(10)
    live, parts = cluster.world.plane.live, cluster.world.plane.parts
    traffic = Traffic(tells=True, own_hosts={OURS})
    traffic.follow(parts[Routes], 1.0, live.of(Deployment))
    published = {each.name: each.host for each in traffic.view().services}
    assert published == {"chat": None, "other": f"other.{OURS}"}
    assert all(each.targets for each in traffic.view().services)
