"""The proxies that report, and where they are."""

from dataclasses import dataclass
from typing import cast

import msgspec
import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.load_reports import take_load
from muster.control.deployment.loads import FORGET_S, Loads
from muster.control.deployment.module import DeploymentModule
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.core.serving.traffic import LoadReport, ServiceLoad
from muster.core.states.deployment import RouteStatus


def test_proxies_are_told_by_their_urls_until_they_report_no_more() -> None:
    loads = Loads()
    loads.told(LoadReport(proxy="b:2", seconds=1.0, url="http://b:2"), 100.0)
    loads.told(LoadReport(proxy="a:1", seconds=1.0, url="https://a:1"), 101.0)
    loads.told(LoadReport(proxy="c:3", seconds=1.0), 101.0)  # it says not where
    assert loads.urls(101.0) == ("http://b:2", "https://a:1")
    assert loads.urls(100.0 + FORGET_S + 0.5) == ("https://a:1",)
    assert loads.urls(101.0 + FORGET_S + 0.5) == ()


def test_many_proxies_have_a_deployment_looked_at_once_in_a_second_unless_requests_wait(
    worlds: MakeWorld,
) -> None:
    cluster = Cluster(worlds)
    made = cluster.deploy(scale={"min": 0, "max": 3})

    def is_looked_at(proxy: str, held: int = 0) -> bool:
        service = ServiceLoad(service=made.id, held=held)
        report = LoadReport(proxy=proxy, seconds=1.0, services=(service,))

        def take(work: Work, parts: Parts) -> bool:
            take_load(work, parts, report)
            return made in work.dirty[Deployment]

        return bool(cluster.world.ask(take))

    for _ in range(3):
        assert [is_looked_at(f"proxy-{n}") for n in range(20)] == [True] + 19 * [False]
        cluster.world.run(1.0)
    assert is_looked_at("proxy-0")
    assert is_looked_at("proxy-1", held=1)
    assert cluster.deployment.replicas == 1


def test_replica_that_was_slow_to_come_up_for_a_request_waits_for_the_next(
    worlds: MakeWorld,
) -> None:
    cluster = Cluster(worlds)
    scale = {"min": 0, "max": 1, "window": 20, "cool_down_down": 20}
    made = cluster.deploy(scale=scale, drain=0)
    cluster.bad.add(1)  # its program loads a model for long

    def tell(held: int = 0) -> None:
        service = ServiceLoad(service=made.id, held=held)
        report = LoadReport(proxy="p", seconds=1.0, services=(service,))
        cluster.world.ask(lambda work, parts: take_load(work, parts, report))

    cluster.run(30, lambda: tell(held=1))
    cluster.run(120, tell)
    assert not cluster.routes(RouteStatus.HEALTHY)
    cluster.bad.clear()
    cluster.run(35, tell)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 1
    cluster.run(60, tell)
    assert not cluster.routes()


@dataclass
class Drained:
    """The part of a route that loads look at."""

    id: str = "r1"


def test_replica_is_idle_once_all_say_so_and_never_where_a_balancer_says_nothing() -> None:
    route = cast(Route, Drained())
    idle = LoadReport(proxy="a:1", seconds=1.0)
    alone, beside = Loads(), Loads(has_others=True)
    assert not alone.is_idle(route, since=100.0)
    for loads in (alone, beside):
        loads.told(idle, 101.0)
    assert alone.is_idle(route, since=100.0)
    assert not alone.is_idle(route, since=101.0)
    assert not beside.is_idle(route, since=100.0)
    alone.asked(30.0)  # Traefik, which asked no more for long before the replica was withdrawn
    assert alone.is_idle(route, since=100.0)
    alone.asked(99.0)
    assert not alone.is_idle(route, since=100.0)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "http://a:1/\x1b[2J",
        "http://a b",
        "http://a:1\n",
        "http://" + "a" * 300,
    ],
)
def test_url_that_is_none_is_refused(url: str) -> None:
    said = msgspec.json.encode({"proxy": "a:1", "seconds": 1.0, "url": url})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(said, type=LoadReport)


def test_deployment_that_is_gone_leaves_no_memory_of_its_load(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.deploy(scale={"max": 3}, drain=0)
    cluster.run(5)
    (module,) = (each for each in cluster.world.modules if isinstance(each, DeploymentModule))
    assert len(module.memories) == 1
    cluster.ask("destroy")
    cluster.run(120)
    assert not module.memories
