"""Names of the balancers themselves: whoever had one as its host would get all requests by path."""

import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.publishing.settings import FILE
from muster.control.deployment.traffic import Traffic
from muster.core.errors import Conflict

OURS = "services.example.org"


def test_name_that_became_the_balancers_is_no_deployments_host_any_more(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.give_hosts(OURS)
    cluster.deploy(host=OURS)
    cluster.deploy(name="other", host=f"other.{OURS}")
    cluster.run(10)

    def published() -> dict[str, str | None]:
        services = cluster.world.plane.parts[Traffic].view().services
        assert all(each.targets for each in services)
        return {each.name: each.host for each in services}

    assert published() == {"chat": OURS, "other": f"other.{OURS}"}
    (cluster.world.path / FILE).write_text(f"hosts: [{OURS}]\n")
    cluster.world.restart_controller()
    cluster.run(20)
    assert published() == {"chat": None, "other": f"other.{OURS}"}
    with pytest.raises(Conflict, match="a name of Muster's own balancers"):
        cluster.deploy(name="third", host=OURS.upper())
    cluster.deploy(name="third", host=f"third.{OURS}")
