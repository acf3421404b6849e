"""A prober that is blind itself is told apart from replicas that are gone."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.entity import Route
from muster.control.deployment.sight import Sight
from muster.core.ids import AgentId
from muster.core.reasons import ReasonCode
from muster.core.states.deployment import RouteStatus

H, U, D = RouteStatus.HEALTHY, RouteStatus.UNHEALTHY, RouteStatus.DEGRADED
PROBE = {"interval": 1, "timeout": 1, "evict_after": 20}


def sight(machines: int, out: int) -> Sight:
    made = Sight()
    for number in range(machines):
        made.looked(f"r{number}", AgentId(f"m{number}"), reached=number >= out)
    return made


@pytest.mark.parametrize(
    ("machines", "out", "blind"),
    [(2, 2, False), (3, 2, False), (3, 3, True), (6, 3, True), (7, 3, False), (100, 50, True)],
)
def test_blindness_is_of_many_machines_and_at_least_half(
    machines: int, out: int, blind: bool
) -> None:
    made = sight(machines, out)
    assert (made.is_changed(), made.is_blind) == (blind, blind)
    assert made.is_changed() is False


def test_machine_of_which_one_route_is_reached_is_not_out_of_reach() -> None:
    made = sight(3, 3)
    made.looked("other", AgentId("m0"), reached=True)
    assert (made.machines, made.out_of_reach, made.is_changed()) == (3, 2, False)


def test_prober_sees_again_once_a_quarter_is_left() -> None:
    made = sight(12, 12)
    made.is_changed()
    for number in range(9):
        made.looked(f"r{number}", AgentId(f"m{number}"), reached=True)
        assert made.is_changed() is False
    made.looked("r9", AgentId("m9"), reached=True)
    assert (made.is_changed(), made.is_blind) == (True, False)


_looks = st.tuples(st.sampled_from("abcdef"), st.sampled_from("123"), st.sampled_from("yn-"))


@given(st.lists(_looks))
def test_counts_are_those_of_the_last_looks(looks: list[tuple[str, str, str]]) -> None:
    made, last = Sight(), dict[str, tuple[str, bool]]()
    for route, machine, how in looks:
        if how == "-":
            made.forget(route)
            last.pop(route, None)
        else:
            made.looked(route, AgentId(machine), reached=how == "y")
            last[route] = (machine, how == "y")
    machines = {machine for machine, _ in last.values()}
    seen = {machine for machine, reached in last.values() if reached}
    assert (made.machines, made.out_of_reach) == (len(machines), len(machines - seen))
    assert set(made.unreached()) == {route for route, (_, reached) in last.items() if not reached}


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    cluster = Cluster(worlds)
    cluster.deploy(replicas=4, probe=PROBE)
    cluster.run(10)
    return cluster


def test_nobody_is_evicted_and_traffic_stands_while_the_prober_reaches_no_machine(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    before = [(each.id, each.healthy_since) for each in cluster.routes()]
    counts: list[int] = []
    cluster.probes.unreached = {each.name for each in cluster.routes()}
    with caplog.at_level(logging.WARNING):
        cluster.run(100, lambda: counts.append(len(cluster.serving())))
    assert [each.status for each in cluster.routes()] == [D] * 4
    assert [(each.id, each.healthy_since) for each in cluster.routes()] == before
    assert set(counts) == {4}
    assert "the prober does not reach 4 of 4 machines" in caplog.text
    assert [each.code for each in cluster.why().reasons] == [ReasonCode.ROUTE_OUT_OF_SIGHT]
    cluster.probes.unreached.clear()
    cluster.run(2, lambda: counts.append(len(cluster.serving())))
    assert [each.status for each in cluster.routes(H)] == [H] * 4
    assert set(counts) == {4}


def test_nobody_is_evicted_and_traffic_stands_when_the_state_is_read_anew_meanwhile(
    cluster: Cluster,
) -> None:
    cluster.probes.unreached = {each.name for each in cluster.routes()}
    cluster.run(20)
    cluster.world.plane.read_again()
    counts: list[int] = []
    cluster.world.run(1)
    cluster.run(60, lambda: counts.append(len(cluster.serving())))
    assert [each.status for each in cluster.routes()] == [D] * 4
    assert set(counts) == {4}
    cluster.probes.unreached.clear()
    cluster.run(3)
    assert (len(cluster.routes(H)), len(cluster.serving())) == (4, 4)


def test_routes_withdrawn_before_the_prober_was_known_to_be_blind_get_their_traffic_back(
    cluster: Cluster,
) -> None:
    first, second, *others = (each.name for each in cluster.routes())
    cluster.probes.unreached = {first}
    cluster.run(5)
    assert (len(cluster.routes(U)), len(cluster.serving())) == (1, 3)
    cluster.probes.unreached = {first, second, *others}
    cluster.run(2)
    assert (len(cluster.routes(D)), len(cluster.serving())) == (4, 4)
    cluster.probes.unreached.clear()
    cluster.run(3)
    assert (len(cluster.routes(H)), len(cluster.serving())) == (4, 4)


def test_route_that_was_out_of_reach_for_long_gets_no_traffic_back(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.deploy(replicas=4, probe=PROBE | {"evict_after": 300})
    cluster.run(10)
    gone = cluster.routes()[0].name
    cluster.probes.unreached = {gone}
    cluster.run(60)
    cluster.probes.unreached = {each.name for each in cluster.routes()}
    cluster.run(60)
    assert len(cluster.serving()) == 3


def test_few_machines_out_of_reach_are_withdrawn_and_their_replicas_replaced(
    cluster: Cluster,
) -> None:
    gone = cluster.routes()[0]
    cluster.probes.unreached = {gone.name}
    cluster.run(5)
    assert (gone.status, len(cluster.serving())) == (U, 3)
    cluster.run(120)
    assert gone.status is RouteStatus.TERMINATED
    assert len(cluster.routes(H)) == 4


def test_answers_that_are_bad_everywhere_are_no_blindness(cluster: Cluster) -> None:
    cluster.sick = {each.name for each in cluster.routes()}
    cluster.run(5)
    assert cluster.serving() == []
    assert [each.status for each in cluster.world.plane.live.of(Route).values()] == [U] * 4


def test_machine_that_stays_out_of_reach_is_left_once_the_prober_sees_again(
    cluster: Cluster,
) -> None:
    cluster.probes.unreached = {each.name for each in cluster.routes()}
    cluster.run(30)
    gone = cluster.routes()[0]
    cluster.probes.unreached = {gone.name}
    cluster.run(3)
    assert (gone.status, len(cluster.serving())) == (U, 3)
    cluster.run(120)
    assert gone.status is RouteStatus.TERMINATED
