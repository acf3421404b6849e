"""Notices of deployments."""

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.notice.entity import Tone, notices

HOOK = "https://hooks.example.org/x/secret"


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    return Cluster(worlds)


def told(cluster: Cluster) -> list[tuple[str, str]]:
    """Titles and tones of all notices, the oldest first."""
    return [(title, tone) for title, tone, _ in rows(cluster)]


def rows(cluster: Cluster) -> list[tuple[str, str, str]]:
    c = notices.c
    query = select(c.title, c.tone, c.body).order_by(c.created_at, c.id)
    with cluster.world.store.engine.connect() as connection:
        return [(title, tone, body) for title, tone, body in connection.execute(query)]


def test_update_that_is_done_and_one_that_was_given_up_are_told_once(cluster: Cluster) -> None:
    cluster.deploy(replicas=2, notify=[HOOK], drain=0)
    cluster.run(10)
    assert told(cluster) == [], "that a deployment begins is no update"
    cluster.deploy(replicas=2, notify=[HOOK], drain=0, command=["serve", "2"])
    cluster.run(60)
    assert told(cluster) == [("deployment chat: revision 2 serves", Tone.SUCCESS)]
    cluster.bad = {3}
    update = {"progress_deadline": 30}
    spec = {"replicas": 2, "notify": [{"url": HOOK, "on": "failure"}], "update": update}
    cluster.deploy(**spec, command=["serve", "3"])
    cluster.run(100)
    _, (title, tone) = told(cluster)
    assert title == "deployment chat: revision 3 was given up, 2 serves on"
    assert tone == Tone.FAILURE
    body = rows(cluster)[-1][2]
    assert "muster why chat" in body
    assert "secret" not in body


def test_new_deployment_that_never_gets_healthy_is_told_once(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, behaviour=Run(0.1, exit_code=1))
    cluster.bad = {1}
    cluster.deploy(replicas=2, notify=[HOOK])
    cluster.run(1000)
    assert told(cluster) == [("deployment chat: no replica became healthy", Tone.FAILURE)]


LOST = ("deployment chat: no replica serves, for 30s", Tone.FAILURE)


def test_outage_and_its_end_are_told_once_also_by_a_controller_that_was_restarted(
    cluster: Cluster,
) -> None:
    never = {"evict_after": 3600, "interval": 1, "timeout": 1}
    cluster.deploy(replicas=2, notify=[HOOK], probe=never)
    cluster.run(10)
    cluster.sick = {each.name for each in cluster.routes()}
    cluster.run(10)
    cluster.world.restart_controller()
    cluster.run(60)
    assert told(cluster) == [LOST], "the former controller saw when the last replica was lost"
    assert "reason: 3 bad probes in a row" in rows(cluster)[0][2]
    cluster.world.restart_controller()
    cluster.run(60)
    cluster.sick = set()
    cluster.run(60)
    lost, (title, tone) = told(cluster)
    assert lost == LOST
    assert title.startswith("deployment chat: serves again, after 2m")
    assert tone == Tone.SUCCESS


def test_blip_is_no_outage_and_neither_is_a_start_nor_that_nobody_is_wished(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=1, notify=[HOOK], drain=0)
    cluster.run(10)
    cluster.sick = {each.name for each in cluster.routes()}
    cluster.run(20)
    cluster.sick = set()
    cluster.run(20)
    cluster.ask("scale", 0)
    cluster.run(100)
    cluster.bad = {1}
    cluster.ask("scale", 1)  # its replica takes a long time to be healthy
    cluster.run(100)
    assert told(cluster) == []


def test_outage_of_a_service_whose_replicas_are_lost_ends_with_the_first_of_the_next(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=2, notify=[HOOK], drain=0)
    cluster.run(10)
    cluster.bad = {1}
    for route in cluster.routes():
        assert route.session_id is not None
        cluster.cancel_session(route.session_id)
    cluster.run(60)
    cluster.bad = set()
    cluster.run(60)
    assert [tone for _, tone in told(cluster)] == [Tone.FAILURE, Tone.SUCCESS]
