"""Deployments of the real control plane with hollow agents, in virtual time."""

import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.load_reports import LoadTold, take_load
from muster.control.deployment.loads import Loads
from muster.control.deployment.standing import standing
from muster.control.deployment.traffic import Traffic
from muster.core.reasons import ReasonCode
from muster.core.serving.traffic import LoadReport, RouteLoad, ServiceLoad
from muster.core.states.deployment import EndpointLifecycle, RouteStatus
from muster.serving.replicas import Standing


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    return Cluster(worlds)


def test_deployment_gets_its_replicas_which_serve_once_probes_are_good(cluster: Cluster) -> None:
    cluster.deploy(replicas=3)
    cluster.world.run(2.0)
    assert cluster.status == EndpointLifecycle.READY
    assert [each.status for each in cluster.routes()] == [RouteStatus.DEGRADED] * 3
    assert cluster.serving() == []
    cluster.run(3)
    assert [each.status for each in cluster.routes()] == [RouteStatus.HEALTHY] * 3
    assert cluster.serving() == [1, 1, 1]
    sessions = cluster.world.plane.live.sessions.values()
    assert len({each.kernels[0].agent_id for each in sessions}) == 3


def test_replicas_stay_spread_over_agents_through_updates(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=3)
    for number in range(8):
        cluster.deploy(replicas=3, drain=0, command=["serve", str(number)])
        cluster.run(60)
        sessions = cluster.world.plane.live.sessions.values()
        assert len(sessions) == 3
        assert len({each.kernels[0].agent_id for each in sessions}) == 3, number


def test_scaling_up_and_down(cluster: Cluster) -> None:
    cluster.deploy(replicas=2)
    cluster.run(10)
    cluster.ask("scale", 4)
    cluster.run(10)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 4
    cluster.ask("scale", 1)
    cluster.run(60)
    assert [each.status for each in cluster.routes()] == [RouteStatus.HEALTHY]
    cluster.ask("scale", 0)
    cluster.run(60)
    assert cluster.routes() == []
    assert cluster.status == EndpointLifecycle.READY


def test_route_that_ended_tells_why(cluster: Cluster) -> None:
    cluster.deploy(replicas=2, drain=1)
    cluster.run(10)
    routes = cluster.routes()
    cluster.ask("scale", 1)
    cluster.run(20)
    (gone,) = (each for each in routes if each.status is RouteStatus.TERMINATED)
    assert gone.reason is not None
    assert gone.reason.code is ReasonCode.ROUTE_NOT_NEEDED


def test_replica_whose_agent_is_lost_is_replaced(cluster: Cluster) -> None:
    cluster.deploy(replicas=2)
    cluster.run(10)
    session = next(iter(cluster.world.plane.live.sessions.values()))
    agent_id = session.kernels[0].agent_id
    assert agent_id is not None
    cluster.world.disconnect(cluster.world.agents[agent_id])
    cluster.run(400)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 2


def test_rolling_update_replaces_one_by_one(cluster: Cluster) -> None:
    cluster.deploy(replicas=3, update={"surge": 1, "unavailable": 0, "min_healthy_time": 2})
    cluster.run(10)
    least: list[int] = []
    cluster.deploy(
        replicas=3,
        command=["serve", "2"],
        drain=5,
        update={"surge": 1, "unavailable": 0, "min_healthy_time": 2},
    )
    assert cluster.status == EndpointLifecycle.DEPLOYING
    cluster.run(100, lambda: least.append(len(cluster.serving())))
    assert cluster.status == EndpointLifecycle.READY
    assert cluster.deployment.stable == 2
    assert [each.revision for each in cluster.routes()] == [2, 2, 2]
    assert min(least) == 3


def test_revision_that_never_gets_healthy_is_given_up_and_the_old_one_serves(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=2)
    cluster.run(10)
    cluster.bad = {2}
    update = {"progress_deadline": 60}
    cluster.deploy(replicas=2, command=["serve", "bad"], update=update)
    cluster.run(200)
    assert (cluster.deployment.stable, cluster.deployment.revision) == (1, 2)
    assert cluster.deployment.rollout is None
    assert cluster.deployment.reason is not None
    assert [each.revision for each in cluster.routes(RouteStatus.HEALTHY)] == [1, 1]
    assert cluster.serving() == [1, 1]


def test_replicas_that_are_lost_in_a_pause_are_made_again(cluster: Cluster) -> None:
    cluster.deploy(replicas=2)
    cluster.run(20)
    cluster.deploy(replicas=2, command=["serve", "2"])
    cluster.run(1)
    cluster.ask("pause")
    cluster.run(20)
    assert sorted(cluster.serving()) == [1, 1, 2]
    for session in list(cluster.world.plane.live.sessions):
        cluster.cancel_session(session)
    cluster.run(40)
    assert (cluster.status, cluster.serving()) == (EndpointLifecycle.DEPLOYING, [1, 1])
    cluster.ask("resume")
    cluster.run(60)
    assert (cluster.status, cluster.serving()) == (EndpointLifecycle.READY, [2, 2])


def test_old_replicas_that_end_at_once_are_made_more_and_more_slowly_in_a_rollout(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=1)
    cluster.run(20)
    canary = {"strategy": "canary", "steps": [{"weight": 10, "watch": 3000}]}
    cluster.deploy(replicas=1, command=["serve", "2"], update=canary)
    cluster.run(20)
    made: set[str] = set()

    def lose_the_old() -> None:
        for route in cluster.routes():
            if route.revision == 1:
                made.add(route.id)
                if route.session_id in cluster.world.plane.live.sessions:
                    cluster.cancel_session(route.session_id)

    cluster.run(300, lose_the_old)
    assert cluster.status == EndpointLifecycle.DEPLOYING
    assert 8 <= len(made) <= 12


def test_undo_while_rolling_out_goes_back_without_a_new_revision(cluster: Cluster) -> None:
    cluster.deploy(replicas=2)
    cluster.run(10)
    cluster.bad = {2}
    cluster.deploy(replicas=2, command=["serve", "bad"])
    cluster.run(5)
    cluster.ask("undo", None)
    cluster.run(60)
    assert (cluster.deployment.stable, cluster.deployment.revision) == (1, 1)
    assert [each.revision for each in cluster.routes()] == [1, 1]


def test_undo_keeps_the_number_of_replicas_that_load_asked_for(cluster: Cluster) -> None:
    scale = {"min": 1, "max": 3, "target": 2, "cool_down_down": 3000}
    made = cluster.deploy(scale=scale, replicas=1)
    cluster.run(10)
    cluster.deploy(scale=scale, replicas=1, command=["serve", "2"])
    cluster.run(60)
    load = ServiceLoad(
        service=made.id,
        routes=tuple(RouteLoad(route=each.id, in_flight=6) for each in cluster.routes()),
    )
    report = LoadReport(proxy="p", seconds=1.0, services=(load,))
    cluster.run(10, lambda: cluster.world.ask(lambda work, parts: take_load(work, parts, report)))
    cluster.run(20)  # no proxy reports any more
    assert cluster.deployment.replicas == 3
    cluster.ask("undo", 1)
    assert cluster.deployment.replicas == 3


def test_destroyed_deployment_leaves_nothing(cluster: Cluster) -> None:
    cluster.deploy(replicas=2)
    cluster.run(10)
    cluster.ask("destroy")
    cluster.run(60)
    live = cluster.world.plane.live
    left = [*live.of(Deployment).values(), *live.of(Route).values(), *live.sessions, *live.ledger]
    assert not left
    assert not cluster.probes.watched


def test_blind_prober_evicts_nobody_and_traffic_stands(cluster: Cluster) -> None:
    cluster.deploy(replicas=2)
    cluster.run(10)
    since = [each.healthy_since for each in cluster.routes()]
    cluster.probes.blind = True
    cluster.run(200)
    assert [each.status for each in cluster.routes()] == [RouteStatus.DEGRADED] * 2
    assert cluster.serving() == [1, 1]
    cluster.probes.blind = False
    cluster.run(5)
    assert [each.status for each in cluster.routes()] == [RouteStatus.HEALTHY] * 2
    assert [each.healthy_since for each in cluster.routes()] == since


def test_restarted_control_without_a_prober_knows_nothing_after_a_while(cluster: Cluster) -> None:
    cluster.deploy(replicas=2)
    cluster.run(10)
    cluster.probes.blind = True
    cluster.world.restart_controller()
    cluster.run(60)
    assert [each.status for each in cluster.routes()] == [RouteStatus.DEGRADED] * 2
    assert cluster.serving() == [1, 1]


def test_unhealthy_replica_is_withdrawn_at_once_and_replaced_after_its_limit(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=3)
    cluster.run(10)
    sick = cluster.routes()[0]
    cluster.sick.add(sick.name)
    cluster.run(2)
    assert len(cluster.serving()) == 2
    cluster.run(5)
    assert sick.status is RouteStatus.UNHEALTHY
    cluster.run(150)
    assert sick not in cluster.routes()
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 3


def test_balancers_are_told_again_once_the_state_was_read_anew(cluster: Cluster) -> None:
    live, parts = cluster.world.plane.live, cluster.world.plane.parts
    traffic = Traffic(tells=True)
    for now in (1.0, 2.0):
        traffic.follow(parts[Routes], now, live.of(Deployment))
        assert traffic.is_to_be_told
        traffic.order(now)  # in a wake that is not stored
        assert not traffic.is_to_be_told


def test_replica_whose_last_probe_was_bad_is_not_available(cluster: Cluster) -> None:
    cluster.deploy(replicas=3, probe={"interval": 1, "timeout": 1, "unhealthy_threshold": 5})
    cluster.run(10)
    ill = cluster.routes()[0]
    now = cluster.world.clock.now()
    assert standing(ill, now) is Standing.AVAILABLE
    cluster.sick = {ill.name}
    cluster.run(2)
    assert (ill.status, len(cluster.serving())) == (RouteStatus.HEALTHY, 2)
    assert standing(ill, cluster.world.clock.now()) is Standing.WITHDRAWN
    cluster.sick.clear()
    cluster.run(2)
    assert len(cluster.serving()) == 3
    assert standing(ill, cluster.world.clock.now()) is Standing.HEALTHY
    cluster.run(10)
    assert standing(ill, cluster.world.clock.now()) is Standing.AVAILABLE


@pytest.mark.parametrize(("served_s", "failed"), [(100, 0), (20, 1)])
def test_replica_that_had_served_has_not_failed_to_start_when_it_is_evicted(
    cluster: Cluster, served_s: int, failed: int
) -> None:
    cluster.deploy(replicas=2)
    cluster.run(served_s)
    sick = cluster.routes()[0]
    cluster.sick.add(sick.name)
    cluster.run(75)
    assert sick.status is RouteStatus.TERMINATED
    assert sick.reason is not None
    assert sick.reason.code is ReasonCode.ROUTE_EVICTED
    assert cluster.deployment.failed_starts == failed


def test_restarted_control_goes_on_with_what_runs(cluster: Cluster) -> None:
    cluster.deploy(replicas=2)
    cluster.run(10)
    before = [(each.id, each.healthy_since) for each in cluster.routes()]
    cluster.world.restart_controller()
    cluster.world.run(1.0)
    there = [(each.id, each.healthy_since) for each in cluster.routes(RouteStatus.HEALTHY)]
    assert there == before
    cluster.run(30)
    there = [(each.id, each.healthy_since) for each in cluster.routes(RouteStatus.HEALTHY)]
    assert there == before
    assert cluster.serving() == [1, 1]
    assert cluster.world.plane.parts[Routes].called("chat") is cluster.deployment


def test_update_goes_on_after_a_long_time_without_a_controller(cluster: Cluster) -> None:
    cluster.deploy(replicas=2, drain=1)
    cluster.run(10)
    update = {"progress_deadline": 60}
    cluster.deploy(replicas=2, drain=1, command=["serve", "2"], update=update)
    cluster.world.restart_controller(away_s=1000)
    cluster.run(60)
    assert (cluster.deployment.stable, cluster.serving()) == (2, [2, 2])


def test_traffic_stands_from_the_first_moment_of_a_restarted_control(cluster: Cluster) -> None:
    cluster.deploy(replicas=2)
    cluster.run(10)
    cluster.world.restart_controller()
    assert cluster.serving() == [1, 1]
    assert cluster.deployment.proven is True


def test_number_follows_load_from_none_to_three_and_back(cluster: Cluster) -> None:
    scale = {"min": 0, "max": 3, "target": 2, "window": 10, "cool_down_down": 10}
    made = cluster.deploy(scale=scale, drain=1)
    held, wanted = 0, 0
    counts: list[int] = []

    def told() -> None:
        routes = cluster.routes(RouteStatus.HEALTHY)
        each = wanted / len(routes) if routes else 0
        service = ServiceLoad(
            service=made.id,
            held=held if not routes else 0,
            routes=tuple(RouteLoad(route=r.id, in_flight=round(each)) for r in routes),
        )
        report = LoadReport(proxy="p", seconds=1.0, services=(service,))
        cluster.world.ask(lambda work, parts: take_load(work, parts, report))
        counts.append(len(routes))

    cluster.run(5, told)
    assert (cluster.routes(), cluster.deployment.replicas) == ([], 0)
    held, wanted = 1, 6
    cluster.run(60, told)
    assert (counts[-1], cluster.deployment.replicas) == (3, 3)
    held, wanted = 0, 0
    cluster.run(120, told)
    assert (cluster.routes(), cluster.deployment.replicas) == ([], 0)


def test_number_follows_requests_a_second_however_short_they_are(cluster: Cluster) -> None:
    scale = {"min": 1, "max": 4, "target": 100, "window": 10, "cool_down_down": 10}
    made = cluster.deploy(scale=scale | {"metric": "requests-per-second"}, drain=1)
    in_second = 250

    def told() -> None:
        routes = cluster.routes(RouteStatus.HEALTHY)
        each = in_second // len(routes) if routes else 0
        loads = tuple(RouteLoad(route=route.id, requests=2 * each) for route in routes)
        service = ServiceLoad(service=made.id, routes=loads)
        report = LoadReport(proxy="p", seconds=2.0, services=(service,))
        cluster.world.ask(lambda work, parts: take_load(work, parts, report))

    cluster.run(60, told)
    assert cluster.deployment.replicas == 3
    in_second = 40
    cluster.run(60, told)
    assert cluster.deployment.replicas == 1


def test_number_follows_load_that_a_balancer_outside_tells(cluster: Cluster) -> None:
    scale = {"min": 1, "max": 3, "target": 2, "window": 10, "cool_down_up": 0}
    made = cluster.deploy(scale=scale)
    cluster.run(10)

    def told() -> None:
        loads = tuple(
            RouteLoad(route=each.id, in_flight=6) for each in cluster.routes(RouteStatus.HEALTHY)
        )
        service = ServiceLoad(service=made.id, routes=loads)
        cluster.world.inbox.put(
            LoadTold(LoadReport(proxy="haproxy", seconds=1.0, services=(service,)))
        )

    cluster.run(30, told)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 3
    assert cluster.world.plane.parts[Loads].urls(cluster.world.clock.now()) == ()


def test_number_stays_while_no_replica_is_up_that_could_tell_its_load(cluster: Cluster) -> None:
    metric = {"metric": "prometheus", "name": "queue"}
    scale = {"min": 1, "max": 3, "target": 2, "window": 10, "cool_down_down": 10, **metric}
    cluster.deploy(replicas=3, scale=scale, probe={"interval": 1, "timeout": 1, "start_timeout": 5})
    cluster.run(10)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 3
    cluster.bad.add(1)
    cluster.run(60)
    assert cluster.routes(RouteStatus.HEALTHY) == []
    assert cluster.deployment.replicas == 3


def test_address_of_ipv6_is_written_as_in_a_url(cluster: Cluster) -> None:
    for agent in cluster.world.plane.live.agents.values():
        agent.host = "fd00::5"
    cluster.deploy(replicas=1)
    cluster.run(10)
    (route,) = cluster.routes()
    assert str(route.address).startswith("[fd00::5]:")
    assert cluster.serving() != []
    (service,) = cluster.world.plane.parts[Traffic].view().services
    assert [each.host for each in service.targets] == ["fd00::5"]
