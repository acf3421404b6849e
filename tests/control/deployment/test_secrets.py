"""The secret of a deployment: known to its replicas, proxies and probers, and to nobody else."""

import pytest
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import DrivenAgent
from tests.control.served_cluster import Cluster

from muster.control.deployment.entity import Route, deployments
from muster.control.deployment.traffic import Traffic
from muster.core.serving.port_holders import PortHolder, PortSeen, PortsSeen
from muster.core.specs import JobSpec
from muster.core.states.deployment import RouteStatus
from muster.store.schema import history
from muster.wire.messages import Start


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    """Its agents look at who listens on ports."""
    cluster = Cluster(worlds)
    for agent in cluster.world.agents.values():
        agent.sees_ports = True
        agent.can_probe()
        cluster.world.connect(agent)
    return cluster


def starts(cluster: Cluster) -> list[Start]:
    agents = cluster.world.agents.values()
    return [kernel.start for agent in agents for kernel in agent.running.values()]


def agent_of(cluster: Cluster, route: Route) -> DrivenAgent:
    agents = cluster.world.agents.values()
    return next(agent for agent in agents if route.name in agent.watched_ports)


def see(cluster: Cluster, route: Route, holder: PortHolder) -> None:
    """Have the route's agent tell who listens on its port."""
    agent = agent_of(cluster, route)
    order = agent.watched_ports[route.name]
    seen = PortSeen(route.name, order.kernel, order.generation, holder)
    cluster.world.desk.agent_said(agent.id, PortsSeen((seen,)))
    cluster.run(2)


def probed_with(cluster: Cluster, route: Route) -> str:
    """The secret that the controller's probes of a route carry."""
    watched = cluster.probes.watched[route.name].watched
    assert watched is not None
    return watched.secret


def test_replicas_of_a_deployment_share_a_secret_that_no_other_kernel_has(
    cluster: Cluster,
) -> None:
    one = cluster.deploy(replicas=2)
    other = cluster.deploy(name="other")
    cluster.world.submit(JobSpec(command=["work"]))
    cluster.run(3)
    secrets = [start.env.get("MUSTER_SECRET", "") for start in starts(cluster)]
    assert sorted(secrets) == sorted([one.secret, one.secret, other.secret, ""])
    assert len({one.secret, other.secret, ""}) == 3
    assert all("MUSTER_SECRET" not in start.template.env for start in starts(cluster))


def test_secret_stays_over_revisions_and_another_controller(cluster: Cluster) -> None:
    secret = cluster.deploy().secret
    cluster.deploy(env={"VERSION": "2"})
    cluster.world.restart_controller()
    assert cluster.deployment.secret == secret
    (service,) = cluster.world.plane.parts[Traffic].view().services
    assert service.secret == secret
    with cluster.world.store.engine.connect() as connection:
        assert connection.scalars(select(deployments.c.secret)).all() == [secret]


def test_secret_is_in_neither_the_text_of_a_record_nor_history(cluster: Cluster) -> None:
    deployment = cluster.deploy()
    cluster.run(5)
    assert deployment.secret not in repr(deployment)
    assert deployment.secret not in repr(cluster.probes.watched)
    with cluster.world.store.engine.connect() as connection:
        rows = connection.execute(select(history)).all()
    assert rows
    assert deployment.secret not in repr(rows)


def test_probes_carry_the_secret_once_the_replica_itself_listens(cluster: Cluster) -> None:
    secret = cluster.deploy().secret
    cluster.run(3)
    (route,) = cluster.routes()
    assert probed_with(cluster, route) == "", "anybody may listen there"
    see(cluster, route, PortHolder.NOBODY)
    assert probed_with(cluster, route) == ""
    see(cluster, route, PortHolder.REPLICA)
    assert probed_with(cluster, route) == secret
    assert route.status is RouteStatus.HEALTHY


def test_thief_of_a_port_gets_no_secret_even_of_a_replica_that_was_healthy(
    cluster: Cluster,
) -> None:
    secret = cluster.deploy().secret
    cluster.run(3)
    (route,) = cluster.routes()
    see(cluster, route, PortHolder.REPLICA)
    assert probed_with(cluster, route) == secret
    see(cluster, route, PortHolder.OTHER_KERNEL)
    assert probed_with(cluster, route) == ""


def test_new_controller_probes_a_replica_that_serves_with_the_secret_at_once(
    cluster: Cluster,
) -> None:
    secret = cluster.deploy().secret
    cluster.run(3)
    see(cluster, cluster.routes()[0], PortHolder.REPLICA)
    for agent in cluster.world.agents.values():
        agent.online = False
    cluster.world.restart_controller()
    cluster.run(2)
    assert probed_with(cluster, cluster.routes()[0]) == secret


def test_probes_of_an_agent_carry_it_as_the_controllers_do(cluster: Cluster) -> None:
    secret = cluster.deploy(probe={"interval": 1, "timeout": 1, "side": "agent"}).secret
    cluster.run(3)
    (route,) = cluster.routes()

    def request() -> bytes:
        target = agent_of(cluster, route).probed[route.name].target
        assert target is not None
        return target.request

    assert secret.encode() not in request()
    see(cluster, route, PortHolder.REPLICA)
    assert f"\r\nMuster-Secret: {secret}\r\n".encode() in request()
