"""Replicas whose machines the controller's probes do not reach are probed by their agents."""

from collections.abc import Sequence

import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster
from tests.control.world import ADA

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Route
from muster.control.deployment.explanation import explain_route
from muster.control.inbox import NotStored
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.environment import template
from muster.core.reasons import ReasonCode
from muster.core.serving.health_command import SCRIPT, SCRIPT_FILE
from muster.core.serving.probes import ProbeResult
from muster.core.states.deployment import RouteStatus
from muster.core.views.base import ReasonView
from muster.store.store import CommitFailed
from muster.store.unit import Unit
from muster.wire.messages import ProbesSeen

H, U, D = RouteStatus.HEALTHY, RouteStatus.UNHEALTHY, RouteStatus.DEGRADED
PROBE = {"interval": 1, "timeout": 1, "evict_after": 20, "start_timeout": 60}


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    cluster = Cluster(worlds)
    cluster.can_probe()
    return cluster


def served(cluster: Cluster, replicas: int = 2, **probe: object) -> list[Route]:
    cluster.deploy(replicas=replicas, probe=PROBE | probe)
    cluster.run(10)
    return cluster.routes()


def probed(cluster: Cluster) -> set[str]:
    return {name for agent in cluster.world.agents.values() for name in agent.probed}


def reasons(cluster: Cluster, route: Route) -> Sequence[ReasonView]:
    live, parts = cluster.world.plane.live, cluster.world.plane.parts
    now = cluster.world.clock.now()
    why = explain_route(live, parts[ClusterState], parts[Routes], route.name, now, ADA)
    return why.reasons


def codes(cluster: Cluster, route: Route) -> list[str]:
    return [each.code for each in reasons(cluster, route)]


def test_agents_are_asked_only_where_the_controller_does_not_reach(cluster: Cluster) -> None:
    far, _near = served(cluster)
    assert probed(cluster) == set()
    counts: list[int] = []
    cluster.probes.unreached = {far.name}
    cluster.run(120, lambda: counts.append(len(cluster.serving())))
    assert probed(cluster) == {far.name}
    assert set(counts) == {2}
    assert [each.status for each in cluster.routes()] == [H, H]
    assert codes(cluster, far) == [ReasonCode.ROUTE_SEEN_BY_AGENT]
    cluster.probes.unreached.clear()
    cluster.run(2)
    assert probed(cluster) == set()
    assert codes(cluster, far) == []
    assert len(cluster.serving()) == 2


def test_replica_that_its_agent_finds_bad_is_withdrawn_and_replaced(cluster: Cluster) -> None:
    far, _near = served(cluster)
    cluster.probes.unreached = {far.name}
    cluster.run(10)
    cluster.sick = {far.name}
    cluster.run(2)
    assert (far.status, len(cluster.serving())) == (U, 1)
    cluster.run(60)
    assert far.status is RouteStatus.TERMINATED
    assert far.name not in probed(cluster)
    assert len(cluster.serving()) == 2


def test_replica_out_of_reach_from_its_start_becomes_healthy_by_its_agent(
    cluster: Cluster,
) -> None:
    cluster.probes.reaches_nobody = True
    served(cluster)
    assert [each.status for each in cluster.routes()] == [H, H]


def test_agent_that_never_answers_is_not_waited_for_long(cluster: Cluster) -> None:
    far, _near = served(cluster)
    cluster.mute = {agent.id for agent in cluster.world.agents.values()}
    cluster.probes.unreached = {far.name}
    cluster.run(8)
    assert (far.status, len(cluster.serving())) == (H, 2)
    cluster.run(8)
    assert (far.status, len(cluster.serving())) == (U, 1)


def test_agent_that_falls_silent_makes_nobody_unhealthy(cluster: Cluster) -> None:
    far, _near = served(cluster)
    cluster.probes.unreached = {far.name}
    cluster.run(10)
    cluster.mute = {agent.id for agent in cluster.world.agents.values()}
    cluster.run(60)
    assert (far.status, len(cluster.serving())) == (D, 2)
    cluster.mute.clear()
    cluster.run(2)
    assert far.status is H


def test_new_controller_keeps_traffic_until_agents_are_back(cluster: Cluster) -> None:
    served(cluster)
    cluster.probes.reaches_nobody = True
    cluster.run(10)
    counts: list[int] = []
    away = list(cluster.world.agents.values())
    for agent in away:
        agent.online = False
    cluster.world.restart_controller()
    cluster.run(5, lambda: counts.append(len(cluster.serving())))
    for agent in away:
        agent.online = True
        cluster.world.connect(agent)
    cluster.run(30, lambda: counts.append(len(cluster.serving())))
    assert set(counts) == {2}
    assert [each.status for each in cluster.routes()] == [H, H]
    assert len(probed(cluster)) == 2


def test_agent_is_ordered_anew_on_each_stream(cluster: Cluster) -> None:
    far, _near = served(cluster)
    cluster.probes.unreached = {far.name}
    cluster.run(5)
    for agent in cluster.world.agents.values():
        cluster.world.connect(agent)
    cluster.run(1)
    assert probed(cluster) == {far.name}


def test_many_out_of_reach_at_once_are_seen_by_their_agents(cluster: Cluster) -> None:
    served(cluster, 4)
    cluster.probes.reaches_nobody = True
    statuses: set[RouteStatus] = set()
    cluster.run(60, lambda: statuses.update(each.status for each in cluster.routes()))
    assert statuses == {H}
    sick = cluster.routes()[0]
    cluster.sick = {sick.name}
    cluster.run(2)
    assert (sick.status, len(cluster.serving())) == (U, 3)


def test_agents_are_asked_where_the_controller_finds_nothing_out(cluster: Cluster) -> None:
    (route,) = served(cluster, 1)
    cluster.probes.blind = True
    counts: list[int] = []
    cluster.run(60, lambda: counts.append(len(cluster.serving())))
    assert probed(cluster) == {route.name}
    assert (set(counts), route.status) == ({1}, H)
    [why] = reasons(cluster, route)
    assert why.code == ReasonCode.ROUTE_SEEN_BY_AGENT
    assert why.sentence.endswith("do not reach its machine: nothing was found out")
    cluster.probes.blind = False
    cluster.run(5)
    assert (probed(cluster), codes(cluster, route)) == (set(), [])


def test_replica_of_which_the_controller_never_finds_anything_out_is_seen_by_its_agent(
    cluster: Cluster,
) -> None:
    cluster.probes.blind = True
    (route,) = served(cluster, 1)
    cluster.run(60)
    assert (probed(cluster), route.status) == ({route.name}, H)
    assert codes(cluster, route) == [ReasonCode.ROUTE_SEEN_BY_AGENT]


def test_side_of_the_spec_is_kept_to_and_may_be_changed(cluster: Cluster) -> None:
    before = served(cluster, side="agent")
    assert probed(cluster) == {each.name for each in before}
    assert codes(cluster, before[0]) == []
    assert cluster.probes.watched == {}
    assert [each.status for each in cluster.routes()] == [H, H]
    cluster.deploy(replicas=2, probe=PROBE | {"side": "controller"})
    cluster.run(5)
    assert probed(cluster) == set()
    assert cluster.probes.watched.keys() == {each.name for each in before}
    assert cluster.routes() == before
    cluster.probes.unreached = {before[0].name}
    cluster.run(5)
    assert (probed(cluster), before[0].status) == (set(), U)


def test_older_agent_is_not_asked_and_why_says_so(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    (route,) = served(cluster, 1, side="agent")
    cluster.run(30)
    assert (probed(cluster), route.status) == (set(), D)
    assert codes(cluster, route) == [ReasonCode.ROUTE_AGENT_CANNOT_PROBE]


def test_agent_goes_on_probing_a_replica_whose_end_was_not_stored(cluster: Cluster) -> None:
    far, _near = served(cluster)
    cluster.probes.unreached = {far.name}
    cluster.run(10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.world.store, "commit", full)
        with pytest.raises(NotStored):
            cluster.ask("destroy")
    cluster.world.run(1.5)  # the plane waits before it goes on
    cluster.world.connect_again()
    heard = cluster.world.plane.parts[Routes].heard_of(far.name)
    assert heard is not None
    assert heard.asked is not None
    cluster.run(10)
    assert probed(cluster) == {far.name}
    assert [each.status for each in cluster.routes()] == [H, H]


def full(unit: Unit) -> None:
    raise CommitFailed("database or disk is full")


def test_agent_speaks_of_none_but_its_own_routes(cluster: Cluster) -> None:
    far, near = served(cluster)
    cluster.probes.unreached = {far.name}
    cluster.run(5)
    liar = next(each for each in cluster.world.agents.values() if far.name not in each.probed)
    told = [
        ProbeResult(each, far.deployment.probe_version, good=False, streak=99, detail="a lie")
        for each in (far.name, near.name, "dep-unknown/rou-1")
    ]
    for _ in range(5):
        cluster.world.desk.agent_said(liar.id, ProbesSeen(tuple(told)))
        cluster.run(1)
    assert [each.status for each in cluster.routes()] == [H, H]
    assert liar.probed == {}


def test_flood_of_results_is_heard_in_part(cluster: Cluster) -> None:
    (agent, *_) = cluster.world.agents.values()
    for _ in range(1000):
        cluster.world.desk.agent_said(agent.id, ProbesSeen((ProbeResult("r", 1, True, 1),)))
    assert sum(1 for _ in cluster.world.inbox.waiting()) == 20


def test_probe_by_command_is_the_agent_s_from_the_first_on(cluster: Cluster) -> None:
    (route,) = served(cluster, replicas=1, command=["check", "it"])
    (asked,) = (agent for agent in cluster.world.agents.values() if agent.probed)
    (session,) = cluster.world.plane.live.sessions.values()
    kernel = session.kernels[0]
    target = asked.probed[route.name].target
    assert target is not None
    assert (target.kernel, target.kernel_generation) == (kernel.id, kernel.generation)
    assert not cluster.probes.watched
    assert route.status is H
    assert kernel.process.command[3:] == [SCRIPT_FILE, "1", "1", "2", "check", "it", "serve"]
    made = template(kernel, None, None)
    assert made.files == {SCRIPT_FILE: SCRIPT}
    cluster.deploy(replicas=1, probe=PROBE | {"command": ["check", "it"], "evict_after": 30})
    assert cluster.deployment.revision == 1
    cluster.deploy(replicas=1, probe=PROBE | {"command": ["check", "that"]})
    assert cluster.deployment.revision == 2


def test_agent_that_knows_no_probes_by_command_is_not_asked(cluster: Cluster) -> None:
    for agent in cluster.world.agents.values():
        agent.knows_health_commands = False
        cluster.world.connect(agent)
    (route,) = served(cluster, replicas=1, command=["check"])
    assert probed(cluster) == set()
    assert codes(cluster, route) == [ReasonCode.ROUTE_AGENT_CANNOT_PROBE]
    for agent in cluster.world.agents.values():
        agent.knows_health_commands = True
        cluster.world.connect(agent)
    cluster.run(10)
    assert route.status is H


@pytest.mark.parametrize(
    ("probe", "remedy"),
    [
        ({"command": ["check"]}, "Look why its probe.command fails"),
        ({}, "Look whether its program listens on PORT and answers the probe"),
    ],
)
def test_what_to_do_about_bad_probes_is_about_how_they_are_made(
    cluster: Cluster, probe: dict[str, object], remedy: str
) -> None:
    def remedies(route: Route) -> dict[str, str]:
        return {each.code: each.remedy for each in reasons(cluster, route)}

    cluster.bad = {1}
    cluster.deploy(replicas=1, probe=PROBE | {"start_timeout": 20} | probe)
    cluster.run(10)
    (route,) = cluster.routes()
    assert remedy in remedies(route)[ReasonCode.ROUTE_NOT_YET_GOOD]
    cluster.run(14)
    assert route.reason is not None
    assert route.reason.code is ReasonCode.ROUTE_NEVER_GOOD
    assert remedy in route.reason.remedy()
    cluster.bad.clear()
    cluster.run(40)
    (served_now,) = cluster.routes(H)
    cluster.sick = {served_now.name}
    cluster.run(4)
    assert served_now.reason is not None
    assert served_now.reason.code is ReasonCode.ROUTE_BAD
    assert remedy in served_now.reason.remedy()
