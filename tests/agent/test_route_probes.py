"""Replicas on an agent's own machine, probed as the controller orders."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.patience import until
from tests.probing.servers import OK, answering, closed_port, serving

from muster.agent.route_probes import LOOPBACK, PAUSE_S, RouteProbes, own_address
from muster.core.serving.probes import ProbeOrder, ProbeResult, ProbeTarget
from muster.wire.messages import ProbeOrders, ProbesSeen

REQUEST = b"GET / HTTP/1.1\r\nHost: far:1\r\nConnection: close\r\n\r\n"


def target(port: int, host: str = "") -> ProbeTarget:
    return ProbeTarget(host, port, 0.1, 1.0, REQUEST, ((200, 399),))


@pytest.fixture
def news() -> threading.Event:
    return threading.Event()


@pytest.fixture
def probes(news: threading.Event) -> Iterator[RouteProbes]:
    made = RouteProbes(news.set)
    yield made
    made.close()


def told(probes: RouteProbes) -> ProbesSeen:
    until(lambda: probes.wait_s(time.monotonic()) == 0.0)
    return probes.take(time.monotonic())


def test_results_are_told_together_and_not_too_often(
    probes: RouteProbes, news: threading.Event
) -> None:
    assert probes.wait_s(0.0) is None
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(answering(OK))) for _ in range(3)]
        orders = [ProbeOrder(f"rte-{n}", 7, target(each.port)) for n, each in enumerate(servers)]
        probes.obey(ProbeOrders((*orders, ProbeOrder("rte-9", 7, target(closed_port())))))
        assert news.wait(20)
        found: dict[str, ProbeResult] = {}
        while len(found) < 4:
            found |= {each.route: each for each in told(probes).results}
        at_s = time.monotonic()
        assert until(lambda: probes.wait_s(at_s)) == pytest.approx(PAUSE_S, abs=0.1)
    assert {name: (each.good, each.generation) for name, each in found.items()} == {
        "rte-0": (True, 7),
        "rte-1": (True, 7),
        "rte-2": (True, 7),
        "rte-9": (False, 7),
    }
    assert all(0 <= each.age_s < 5 for each in found.values())


def test_address_is_the_agents_own_whatever_the_order_says(probes: RouteProbes) -> None:
    with serving(answering(OK)) as server:
        probes.obey(ProbeOrders((ProbeOrder("rte-1", 1, target(server.port, "192.0.2.1")),)))
        (result,) = told(probes).results
    assert (result.good, result.detail) == (True, "HTTP 200")


def test_nothing_is_probed_or_told_after_the_stream(probes: RouteProbes) -> None:
    with serving(answering(OK)) as server:
        probes.obey(ProbeOrders((ProbeOrder("rte-1", 1, target(server.port)),)))
        told(probes)
        probes.forget()
        until(lambda: not probes._prober._watched)
        time.sleep(0.3)  # what was under way is over
        probes.forget()
        probed = server.accepted
        time.sleep(0.5)
        assert (server.accepted, probes.wait_s(time.monotonic())) == (probed, None)
        probes.obey(ProbeOrders((ProbeOrder("rte-1", 1, target(server.port)),)))
        assert told(probes).results[0].good


def test_own_address_is_one_that_the_machine_has() -> None:
    assert own_address("127.0.0.1") == "127.0.0.1"
    assert own_address("localhost") in ("127.0.0.1", "::1")
    assert own_address("192.0.2.77") == LOOPBACK  # of others (RFC 5737)
    assert own_address("nowhere.invalid") == LOOPBACK
    assert own_address("no name.\udc80" + "x" * 300) == LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))
        mine = probe.getsockname()[0]
    assert own_address(mine) == mine
