"""A replica on whose port somebody else listens gets no requests, however good its probes are."""

from dataclasses import replace

import pytest
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import DrivenAgent
from tests.control.served_cluster import Cluster
from tests.control.world import ADA

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Route
from muster.control.deployment.explanation import explain_route
from muster.control.deployment.traffic import Traffic
from muster.control.deployment.views import accepted_deployment
from muster.control.session.cluster.state import ClusterState
from muster.core.reasons import ReasonCode
from muster.core.serving.port_holders import PortHolder, PortSeen, PortsSeen
from muster.core.serving.traffic import Target
from muster.core.states.deployment import RouteStatus
from muster.store.accounts import User

H, U, D = RouteStatus.HEALTHY, RouteStatus.UNHEALTHY, RouteStatus.DEGRADED
NOBODY, REPLICA, OTHER_KERNEL, OTHER_ACCOUNT = PortHolder
PROBE = {"interval": 1, "timeout": 1, "evict_after": 20, "start_timeout": 30}


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    cluster = Cluster(worlds)
    for agent in cluster.world.agents.values():
        agent.sees_ports = True
        cluster.world.connect(agent)
    return cluster


def deployed(cluster: Cluster, replicas: int = 1, **keys: object) -> list[Route]:
    cluster.deploy(replicas=replicas, **({"probe": PROBE} | keys))
    cluster.run(5)
    return cluster.routes()


def agent_of(cluster: Cluster, route: Route) -> DrivenAgent:
    (found,) = [
        agent for agent in cluster.world.agents.values() if route.name in agent.watched_ports
    ]
    return found


def see(cluster: Cluster, route: Route, holder: PortHolder) -> None:
    """Have the route's agent tell who listens on its port."""
    agent = agent_of(cluster, route)
    order = agent.watched_ports[route.name]
    seen = PortSeen(route.name, order.kernel, order.generation, holder)
    cluster.world.desk.agent_said(agent.id, PortsSeen((seen,)))


def codes(cluster: Cluster, route: Route) -> list[str]:
    live, parts = cluster.world.plane.live, cluster.world.plane.parts
    now = cluster.world.clock.now()
    why = explain_route(live, parts[ClusterState], parts[Routes], route.name, now, ADA)
    return [each.code for each in why.reasons]


def targets(cluster: Cluster) -> list[Target]:
    services = cluster.world.plane.parts[Traffic].view().services
    return [target for service in services for target in service.targets]


def test_replica_is_healthy_once_its_agent_sees_it_listen(cluster: Cluster) -> None:
    (route,) = deployed(cluster)
    assert (route.status, cluster.serving()) == (D, [])
    order = agent_of(cluster, route).watched_ports[route.name]
    assert (order.kernel, order.port) == (route.kernel_id, 20000)
    see(cluster, route, NOBODY)
    cluster.run(5)
    assert (route.status, cluster.serving()) == (D, [])
    assert codes(cluster, route) == [ReasonCode.ROUTE_PORT_UNSEEN]
    see(cluster, route, REPLICA)
    cluster.run(2)
    assert (route.status, cluster.serving()) == (H, [1])


@pytest.mark.parametrize("thief", [OTHER_KERNEL, OTHER_ACCOUNT])
def test_replica_whose_port_is_taken_while_it_loads_is_replaced_and_never_published(
    cluster: Cluster, thief: PortHolder
) -> None:
    (route,) = deployed(cluster)
    see(cluster, route, thief)
    published: list[int] = []
    cluster.run(10, lambda: published.append(len(cluster.serving())))
    assert set(published) == {0}
    assert route.status is RouteStatus.TERMINATED
    assert route.reason is not None
    assert route.reason.code is ReasonCode.ROUTE_PORT_TAKEN
    assert "listens on its port 20000" in route.reason.sentence()
    (heir,) = [each for each in cluster.routes() if each is not route]
    see(cluster, heir, REPLICA)
    cluster.run(2)
    assert (heir.status, cluster.serving()) == (H, [1])


def test_replica_whose_port_is_taken_from_it_is_withdrawn_at_once(cluster: Cluster) -> None:
    (route,) = deployed(cluster)
    see(cluster, route, REPLICA)
    cluster.run(2)
    see(cluster, route, OTHER_ACCOUNT)  # the last good probe was a moment ago
    cluster.world.run(0.1)
    assert (route.status, targets(cluster)) == (U, [])
    assert codes(cluster, route) == [ReasonCode.ROUTE_PORT_TAKEN]
    see(cluster, route, REPLICA)
    cluster.run(2)
    assert (route.status, cluster.serving()) == (H, [1])


def test_replica_that_listens_no_more_gets_nothing_while_another_serves(cluster: Cluster) -> None:
    first, second = deployed(cluster, 2)
    for route in (first, second):
        see(cluster, route, REPLICA)
    cluster.run(2)
    see(cluster, first, NOBODY)
    cluster.world.run(0.1)
    assert [each.route for each in targets(cluster)] == [second.id]


def test_port_is_taken_after_the_replica_was_told_to_go(cluster: Cluster) -> None:
    """It is drained: its sticky sessions still reach it, and would reach the thief."""
    (route,) = deployed(cluster, drain=30)
    see(cluster, route, REPLICA)
    cluster.run(2)
    cluster.deploy(replicas=1, probe=PROBE, drain=30, command=["other"])
    cluster.run(2)
    (heir,) = [each for each in cluster.routes() if each is not route]
    see(cluster, heir, REPLICA)
    cluster.run(15)
    assert route.status is RouteStatus.TERMINATING
    assert route.id in {each.route for each in targets(cluster)}
    see(cluster, route, OTHER_ACCOUNT)
    cluster.world.run(0.1)
    assert {each.route for each in targets(cluster)} == {heir.id}


def test_replica_that_never_listens_where_its_agent_sees_it_fails_to_start(
    cluster: Cluster,
) -> None:
    (route,) = deployed(cluster)
    see(cluster, route, NOBODY)
    cluster.run(40)
    assert route.status is RouteStatus.TERMINATED
    assert route.reason is not None
    assert route.reason.code is ReasonCode.ROUTE_PORT_UNSEEN


def test_agent_of_an_earlier_version_is_not_waited_for(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    (route,) = deployed(cluster)
    assert route.status is H


def test_agent_is_ordered_anew_on_each_stream_and_told_when_a_route_ends(cluster: Cluster) -> None:
    (route,) = deployed(cluster)
    agent = agent_of(cluster, route)
    cluster.world.connect(agent)
    cluster.run(1)
    assert set(agent.watched_ports) == {route.name}
    cluster.deploy(replicas=0, probe=PROBE)
    cluster.run(60)
    assert agent.watched_ports == {}


def test_new_controller_waits_for_the_agents_word(cluster: Cluster) -> None:
    (route,) = deployed(cluster)
    away = list(cluster.world.agents.values())
    for agent in away:
        agent.online = False
    cluster.world.restart_controller()
    cluster.run(4)
    (route,) = cluster.routes()
    assert (route.status, cluster.serving()) == (D, [])


def test_agent_speaks_of_the_ports_of_its_own_replicas_alone(cluster: Cluster) -> None:
    (route,) = deployed(cluster)
    see(cluster, route, REPLICA)
    cluster.run(2)
    order = agent_of(cluster, route).watched_ports[route.name]
    mine = agent_of(cluster, route)
    liar = next(each for each in cluster.world.agents.values() if each is not mine)
    for name in (route.name, "dep-unknown/rou-1"):
        lie = PortSeen(name, order.kernel, order.generation, OTHER_ACCOUNT)
        cluster.world.desk.agent_said(liar.id, PortsSeen((lie,)))
    cluster.run(2)
    assert (route.status, cluster.serving()) == (H, [1])


@pytest.mark.parametrize(
    ("users", "access", "kept", "warned"),
    [
        (("ann", "bob"), "owner", "none", True),
        (("ann", "bob"), {"users": ["ann"]}, "none", True),
        (("ann", "bob"), "public", "none", False),
        (("ann",), "owner", "none", False),
        (("ann", "bob"), "owner", "nftables", False),
    ],
)
def test_access_that_holds_at_the_proxy_alone_is_told_at_hand_in(
    cluster: Cluster, users: tuple[str, ...], access: object, kept: str, warned: bool
) -> None:
    (agent, *_) = cluster.world.agents.values()
    agent.offer = replace(agent.offer, attributes={"ports": kept})
    cluster.world.connect(agent)
    live, parts = cluster.world.plane.live, cluster.world.plane.parts
    for name in users:
        live.accounts.users["default", name] = User("default", name, (), 0.0)
    deployment = cluster.deploy(access=access)
    warnings = accepted_deployment(deployment, live, parts).warnings
    told = [each for each in warnings if each.code == ReasonCode.ACCESS_AT_PROXY_ALONE]
    assert bool(told) is warned
    assert all("on 1 of 4 machines of group default" in each.sentence for each in told)
