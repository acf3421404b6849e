"""Replicas whose probes are good and bad by turns, and those of which all are bad at once."""

from typing import Any

import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.standing import standing
from muster.core.reasons import ReasonCode
from muster.core.states.deployment import RouteStatus
from muster.serving.replicas import Standing

CALM = {"interval": 1, "timeout": 1, "unhealthy_threshold": 3}
ONE_BY_ONE = {"surge": 1, "unavailable": 0, "min_healthy_time": 5, "progress_deadline": 60}


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    return Cluster(worlds)


def update_that_flaps(cluster: Cluster, seconds: int) -> list[int]:
    """Roll out a revision whose probes are bad every second second; the answer is how many replicas
    get requests, second by second."""
    cluster.deploy(replicas=4, drain=0, probe=CALM, update=ONE_BY_ONE)
    cluster.run(20)
    cluster.deploy(replicas=4, drain=0, probe=CALM, update=ONE_BY_ONE, command=["serve", "2"])
    served: list[int] = []
    for number in range(seconds):
        cluster.bad = {2} if number % 2 else set()
        cluster.run(1, lambda: served.append(len(cluster.serving())))
    return served


def test_revision_that_flaps_is_not_rolled_out_and_no_fewer_replicas_serve(
    cluster: Cluster,
) -> None:
    served = update_that_flaps(cluster, 100)
    assert min(served) == 4
    assert (cluster.deployment.stable, cluster.serving()) == (1, [1, 1, 1, 1])
    why = cluster.deployment.reason
    assert why is not None
    assert why.code is ReasonCode.ROLLOUT_TOO_SLOW


def test_time_in_which_a_replica_was_healthy_begins_anew_after_a_bad_probe(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=1, probe=CALM, update={"min_healthy_time": 10})
    cluster.run(20)
    (route,) = cluster.routes()
    assert standing(route, cluster.world.clock.now()) is Standing.AVAILABLE
    cluster.sick = {route.name}
    cluster.run(1)
    assert standing(route, cluster.world.clock.now()) is Standing.WITHDRAWN
    cluster.sick.clear()
    cluster.run(8)
    assert standing(route, cluster.world.clock.now()) is Standing.HEALTHY
    cluster.run(4)
    assert standing(route, cluster.world.clock.now()) is Standing.AVAILABLE


def test_bad_probe_counts_though_a_good_one_came_in_the_same_wake(cluster: Cluster) -> None:
    cluster.deploy(replicas=1, probe=CALM, update={"min_healthy_time": 10})
    cluster.run(20)
    (route,) = cluster.routes()
    before = route.healthy_since
    cluster.sick = {route.name}
    cluster.report_probes()
    cluster.sick.clear()
    cluster.run(1)
    assert route.healthy_since != before
    assert route.status is RouteStatus.HEALTHY


def test_time_goes_on_from_the_bad_probe_in_a_controller_that_was_restarted(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=1, probe=CALM, update={"min_healthy_time": 10})
    cluster.run(20)
    name = cluster.routes()[0].name
    cluster.sick = {name}
    cluster.run(1)
    cluster.world.restart_controller()
    cluster.sick.clear()
    cluster.run(5)
    (route,) = cluster.routes()
    assert standing(route, cluster.world.clock.now()) is Standing.HEALTHY


def test_published_set_stands_where_the_probes_of_all_are_bad_at_once(cluster: Cluster) -> None:
    cluster.deploy(replicas=3, probe=CALM)
    cluster.run(10)
    cluster.bad = {1}
    cluster.run(1)
    assert cluster.serving() == [1, 1, 1]
    assert [each.status for each in cluster.routes()] == [RouteStatus.HEALTHY] * 3
    cluster.bad.clear()
    cluster.run(2)
    assert cluster.serving() == [1, 1, 1]


def test_replicas_that_stay_bad_get_no_requests_once_they_are_unhealthy(cluster: Cluster) -> None:
    cluster.deploy(replicas=3, probe=CALM)
    cluster.run(10)
    cluster.bad = {1}
    cluster.run(4)
    assert [each.status for each in cluster.routes()] == [RouteStatus.UNHEALTHY] * 3
    assert cluster.serving() == []


def test_only_the_good_one_gets_requests_where_the_others_are_bad(cluster: Cluster) -> None:
    cluster.deploy(replicas=3, probe=CALM)
    cluster.run(10)
    cluster.sick = {each.name for each in cluster.routes()[1:]}
    cluster.run(1)
    assert cluster.serving() == [1]


def side_by_side(cluster: Cluster, **update: Any) -> None:
    """Roll out a second revision beside the two replicas of the first."""
    cluster.deploy(replicas=2, drain=0, probe=CALM)
    cluster.run(30)
    asked = {"surge": 2, "min_healthy_time": 5, "progress_deadline": 300, **update}
    cluster.deploy(replicas=2, drain=0, probe=CALM, update=asked, command=["serve", "2"])
    cluster.run(15)


CANARY = {"strategy": "canary", "steps": [{"weight": 5, "watch": 600}]}


@pytest.mark.parametrize("bad", [1, 2])
def test_bad_probes_of_one_revision_leave_the_parts_of_a_canary_as_they_are(
    cluster: Cluster, bad: int
) -> None:
    side_by_side(cluster, **CANARY)
    parts = [(1, 19), (1, 19), (2, 2)]
    assert cluster.weights() == parts
    cluster.bad = {bad}
    cluster.run(1)
    assert cluster.weights() == parts
    cluster.bad.clear()
    cluster.run(2)
    assert cluster.weights() == parts


def test_bad_probes_of_the_former_send_nobody_to_an_untested_green(cluster: Cluster) -> None:
    side_by_side(cluster, strategy="blue-green", min_healthy_time=60, keep_old=600)
    before = [(1, 1), (1, 1), (2, 0), (2, 0)]
    assert cluster.weights() == before
    cluster.bad = {1}
    cluster.run(1)
    assert cluster.weights() == before


def test_bad_probes_of_green_after_the_switch_send_nobody_back(cluster: Cluster) -> None:
    side_by_side(cluster, strategy="blue-green", keep_old=600)
    after = [(1, 0), (1, 0), (2, 1), (2, 1)]
    assert cluster.weights() == after
    cluster.bad = {2}
    cluster.run(1)
    assert cluster.weights() == after


def test_one_good_replica_of_a_revision_gets_its_part_where_the_other_is_bad(
    cluster: Cluster,
) -> None:
    side_by_side(cluster, **CANARY)
    cluster.sick = {next(each.name for each in cluster.routes() if each.revision == 1)}
    cluster.run(1)
    assert cluster.weights() == [(1, 19), (2, 1)]


def test_other_revision_gets_all_once_one_is_unhealthy(cluster: Cluster) -> None:
    side_by_side(cluster, **CANARY)
    cluster.bad = {1}
    cluster.run(4)
    assert cluster.weights() == [(2, 1)]


def test_replica_with_a_bad_probe_is_left_out_of_a_rolling_update_while_others_serve(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=2, drain=0, probe=CALM)
    cluster.run(30)
    update = {"surge": 1, "min_healthy_time": 20, "progress_deadline": 300}
    cluster.deploy(replicas=2, drain=0, probe=CALM, update=update, command=["serve", "2"])
    cluster.run(15)
    assert cluster.weights() == [(1, 1), (1, 1), (2, 1)]
    cluster.bad = {2}
    cluster.run(1)
    assert cluster.weights() == [(1, 1), (1, 1)]
