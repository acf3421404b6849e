"""Replicas whose machines go before they were healthy."""

from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.standing import session_of

PROBE = {"interval": 1, "timeout": 1, "start_timeout": 60}


def _reboot_machines_with_new_ones(cluster: Cluster) -> None:
    """Each machine with a replica of the latest revision reboots."""
    for route in cluster.routes():
        session = session_of(route, cluster.world.plane.live)
        agent_id = None if session is None else session.kernels[0].agent_id
        if agent_id is not None and route.revision == cluster.deployment.revision:
            cluster.world.agents[agent_id].reboot()
            cluster.world.connect(cluster.world.agents[agent_id])
    cluster.run(5)


def test_new_deployment_outlasts_any_number_of_reboots(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.bad = {1}  # it loads its model for long
    cluster.deploy(probe=PROBE)
    for _ in range(5):
        cluster.run(5)
        _reboot_machines_with_new_ones(cluster)
    assert cluster.deployment.failed_starts == 0
    cluster.bad.clear()
    cluster.run(10)
    assert cluster.serving() == [1]


def test_update_outlasts_any_number_of_reboots(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.deploy(probe=PROBE)
    cluster.run(10)
    cluster.bad = {2}
    cluster.deploy(probe=PROBE, command=["serve", "2"])
    for _ in range(5):
        cluster.run(5)
        _reboot_machines_with_new_ones(cluster)
    assert cluster.deployment.rollout is not None
    assert cluster.deployment.rollout.failed_starts == 0
    cluster.bad.clear()
    cluster.run(60)
    assert cluster.serving() == [2]
