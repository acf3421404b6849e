"""HAProxy, driven under load: what changes costs nobody a request."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from demo.haproxy import free_port
from tests.control.deployment.publishing.balancers import (
    Haproxy,
    Load,
    Replica,
    has,
    needs_haproxy,
    service,
)
from tests.patience import until, until_awaited

from muster.control.deployment.publishing import haproxy as haproxy_sink
from muster.control.deployment.publishing.effects import PublishServices
from muster.control.deployment.publishing.performer import TrafficPublisher
from muster.control.deployment.publishing.runtime_api import RuntimeApi
from muster.control.deployment.publishing.settings import TrafficSettings
from muster.control.deployment.publishing.sink import SinkError
from muster.core.serving.traffic import LoadReport, RouteLoad, Target, TrafficService

pytestmark = needs_haproxy


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[Haproxy]:
    made = Haproxy(tmp_path)
    made.start()
    yield made
    made.kill()


class Published:
    """A performer, and the version of the next set."""

    def __init__(self, settings: TrafficSettings) -> None:
        self.reports: list[LoadReport] = []
        self.performer = TrafficPublisher(settings, self.reports.append)
        self.version = 0

    def __call__(self, *services: TrafficService) -> None:
        self.version += 1
        self.performer.perform([PublishServices(self.version, services)])


@pytest.fixture
def publish(haproxy: Haproxy) -> Iterator[Published]:
    made = Published(TrafficSettings(haproxy=haproxy.settings()))
    yield made
    made.performer.close()


@pytest.fixture
async def replicas() -> AsyncIterator[list[Replica]]:
    made = [Replica(f"rte-{number}") for number in range(4)]
    for each in made:
        await each.start()
    yield made
    for each in made:
        await each.stop()


async def served(load: Load, more: int = 150) -> None:
    """Wait for so many further answers."""
    wanted = load.by.total() + more
    await until_awaited(lambda: load.by.total() >= wanted)


async def has_awaited(haproxy: Haproxy, *replicas: Replica) -> None:
    names = [each.name for each in replicas]
    await until_awaited(lambda: has(haproxy, names))


async def test_replicas_come_go_and_change_weights_without_a_failed_request(
    haproxy: Haproxy, publish: Published, replicas: list[Replica]
) -> None:
    one, two, three, four = replicas
    publish(service("chat", one.target(), two.target()))
    await has_awaited(haproxy, one, two)
    async with Load(haproxy.port).running("/chat/v1") as load:
        await served(load)
        publish(service("chat", one.target(), two.target(), three.target(), four.target()))
        await has_awaited(haproxy, *replicas)
        await served(load)
        publish(service("chat", two.target(), three.target(), four.target()))
        await has_awaited(haproxy, two, three, four)
        await one.stop()
        before = one.answered
        publish(service("chat", two.target(0), three.target(3000), four.target(1000)))
        await until_awaited(lambda: haproxy.servers()["rte-3"].server.weight == 85)
        await served(load, 20)
        load.by.clear()
        await served(load, 400)
        assert one.answered == before
        assert load.by["rte-1"] == 0
        assert load.by["rte-2"] / load.by["rte-3"] == pytest.approx(3, rel=0.25)
        for _ in range(5):  # a replica whose probes are good and bad in turns
            publish(service("chat", three.target()))
            await served(load, 10)
            publish(service("chat", three.target(), four.target()))
            await served(load, 10)
        await has_awaited(haproxy, three, four)
    assert load.failures == []


async def test_a_replica_with_requests_goes_once_they_have_ended_or_its_time_is_over(
    haproxy: Haproxy, publish: Published
) -> None:
    slow, endless, other = Replica("rte-s", 1.0), Replica("rte-e", 60.0), Replica("rte-o")
    for each in (slow, endless, other):
        await each.start()
    publish(
        service("slow", slow.target(), drain_s=20.0),
        service("endless", endless.target(), drain_s=1.0),
    )
    await has_awaited(haproxy, slow, endless)
    load, cut = Load(haproxy.port), Load(haproxy.port)
    async with load.running("/slow", clients=1), cut.running("/endless", clients=1):
        await until_awaited(lambda: slow.under_way and endless.under_way)
        began_s = time.monotonic()
        publish(service("slow", other.target()), service("endless", drain_s=1.0))
        await has_awaited(haproxy, other)
        assert 0.9 < time.monotonic() - began_s < 15.0
        await served(load, 5)
        await until_awaited(lambda: bool(cut.failures))
    assert load.failures == []
    assert slow.answered == 1
    for each in (slow, endless, other):
        await each.stop()


async def test_a_new_deployment_and_another_affinity_need_a_reload_that_nobody_feels(
    haproxy: Haproxy, publish: Published, replicas: list[Replica]
) -> None:
    one, two, three, _ = replicas
    chat = service("chat", one.target(), two.target())
    publish(chat)
    await has_awaited(haproxy, one, two)
    async with Load(haproxy.port).running("/chat") as load:
        await served(load)
        publish(chat, service("new", three.target(), host="new.example.org"))
        await has_awaited(haproxy, one, two, three)
        new = Load(haproxy.port)
        async with new.running("/new"):
            await served(new)
            load.by.clear()
            sticky = service("chat", one.target(), two.target(), affinity="Host")
            publish(sticky, service("new", three.target(), host="new.example.org"))
            await until_awaited(lambda: "hdr(Host)" in (haproxy.place / "muster.cfg").read_text())
            await until_awaited(haproxy.has_its_file)
            await served(load, 50)  # connections of before end with an answer of the former worker
            load.by.clear()
            await served(load)
            assert len(load.by) == 1
    assert (load.failures, new.failures) == ([], [])


async def test_haproxy_begins_with_the_present_servers_and_is_mended_after_it_was_killed(
    haproxy: Haproxy, publish: Published, replicas: list[Replica]
) -> None:
    one, two, three, four = replicas
    publish(service("chat", one.target(), two.target()))
    await has_awaited(haproxy, one, two)
    await until_awaited(lambda: "rte-1 " in (haproxy.place / "muster.cfg").read_text())
    haproxy.kill()
    publish(service("chat", two.target(), three.target()))  # nobody hears of it now
    await until_awaited(lambda: "rte-2 " in (haproxy.place / "muster.cfg").read_text())
    haproxy.start()
    assert has(haproxy, ["rte-1", "rte-2"])
    async with Load(haproxy.port).running("/chat") as load:
        await served(load)
    assert load.failures == []
    haproxy.kill()
    (haproxy.place / "muster.map").write_text("")
    (haproxy.place / "muster.cfg").write_text("backend muster-x\n    server rte-9 127.0.0.1:1\n")
    haproxy.start()  # from a copy of somebody's, say
    publish(service("chat", two.target(), four.target()))
    await has_awaited(haproxy, two, four)
    await until_awaited(lambda: haproxy.leads("/chat"))
    async with Load(haproxy.port).running("/chat") as load:
        await served(load)
    assert load.failures == []


async def test_haproxy_that_is_killed_while_changes_come_is_right_once_they_have_ended(
    haproxy: Haproxy, publish: Published, replicas: list[Replica]
) -> None:
    one, two, three, four = replicas
    always = service("always", one.target())
    for number in range(40):
        changing = [each.target(1 + number) for each in (two, three, four)[number % 3 :]]
        publish(always, service("chat", *changing))
        if number % 13 == 6:
            haproxy.kill()
            haproxy.start()
        await asyncio.sleep(0.02)
    publish(always, service("chat", two.target(), four.target()))
    await has_awaited(haproxy, one, two, four)
    await until_awaited(haproxy.has_its_file)
    async with Load(haproxy.port).running("/chat", "/always") as load:
        await served(load)
    assert load.failures == []
    assert set(load.by) == {"rte-0", "rte-1", "rte-3"}


async def test_replicas_stay_where_they_are_while_names_of_machines_are_not_found(
    haproxy: Haproxy, publish: Published, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three, _ = replicas

    def named(replica: Replica, host: str, weight: int = 1) -> Target:
        return Target(route=replica.name, host=host, port=replica.port, revision=1, weight=weight)

    publish(service("chat", named(one, "localhost"), named(two, "localhost")))
    await has_awaited(haproxy, one, two)
    await until_awaited(lambda: "rte-1 " in (haproxy.place / "muster.cfg").read_text())
    publish.performer.close()
    found, asked = socket.getaddrinfo, set[object]()

    def hanging(host: str, *more: Any, **named: Any) -> Any:
        if host in ("localhost", "elsewhere"):
            asked.add(host)
            time.sleep(0.3)
            raise socket.gaierror("the name server is away")
        return found(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    after = Published(TrafficSettings(haproxy=haproxy.settings()))  # of a controller that begins
    try:
        async with Load(haproxy.port).running("/chat") as load:
            targets = [
                named(one, "localhost", 7),
                named(two, "localhost"),
                named(three, "elsewhere"),
            ]
            after(service("chat", *targets))
            await until_awaited(lambda: haproxy.servers()["rte-0"].server.weight == 7)
            assert asked == {"localhost", "elsewhere"}
            assert has(haproxy, ["rte-0", "rte-1"])
            await served(load)
            after(service("chat", *targets[:2], three.target()))
            await has_awaited(haproxy, one, two, three)
    finally:
        after.performer.close()
    assert load.failures == []


def test_a_change_of_one_service_is_no_work_over_all(
    haproxy: Haproxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(haproxy_sink, "PERIOD_S", 3600.0)
    monkeypatch.setattr(haproxy_sink, "LOAD_PERIOD_S", 3600.0)
    ask, asked = RuntimeApi.ask, list[str]()

    def asking(self: RuntimeApi, command: str) -> str:
        asked.append(command)
        return ask(self, command)

    target = Target(route="rte-1", host="127.0.0.1", port=1, revision=1)
    services = [service(f"s{number}", target) for number in range(20)]
    sink = haproxy_sink.HaproxySink(haproxy.settings(), lambda _: None)

    def follows() -> bool:
        try:
            return not sink.publish(services).complaint and haproxy.has_its_file()
        except SinkError:  # it is being reloaded
            return False

    until(follows)
    sink.publish(services)
    monkeypatch.setattr(RuntimeApi, "ask", asking)
    sink.publish(services)
    assert asked == ["prompt"]
    asked.clear()
    services[7] = service("s7", msgspec.structs.replace(target, weight=5))
    sink.publish(services)
    (name,) = [word for word in asked[1].split() if word.startswith("muster-s7-")]
    assert asked == [
        "prompt",
        f"show servers state {name}",
        f"set server {name}/rte-1 weight 5",
    ]
    asked.clear()
    services[7] = service("s7", drain_s=0.0)
    sink.publish(services)
    sink.publish(services)
    assert all(name in command for command in asked if command != "prompt")
    assert "rte-1" in {route for (backend, route) in running(haproxy) if backend != name}
    assert (name, "rte-1") not in running(haproxy)


def running(haproxy: Haproxy) -> set[tuple[str, str]]:
    with RuntimeApi(f"{haproxy.place}/admin.sock") as api:
        return set(api.servers())


async def test_a_controller_that_was_overtaken_does_not_contradict_the_next_one(
    haproxy: Haproxy, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(haproxy_sink, "PERIOD_S", 0.02)
    one, two, _, _ = replicas
    settings = TrafficSettings(haproxy=haproxy.settings())
    in_charge, looks = threading.Event(), list[bool]()

    def known_in_charge() -> bool:
        looks.append(in_charge.is_set())
        return looks[-1]

    in_charge.set()
    former = TrafficPublisher(settings, lambda _: None, known_in_charge)
    after = TrafficPublisher(settings, lambda _: None)
    try:
        former.perform([PublishServices(7, (service("chat", one.target()),))])
        await has_awaited(haproxy, one)
        in_charge.clear()  # it is cut off from its database
        await until_awaited(lambda: not looks[-1])
        after.perform([PublishServices(1, (service("chat", two.target()),))])
        await has_awaited(haproxy, two)
        looks.clear()
        while len(looks) < 2:
            assert has(haproxy, ["rte-1"])
            await asyncio.sleep(0)
    finally:
        former.close()
        after.close()


async def test_services_that_ask_for_tokens_and_words_that_are_no_names_are_not_published(
    haproxy: Haproxy, publish: Published, replicas: list[Replica]
) -> None:
    one, two, three, four = replicas
    publish(
        service("open", one.target(), affinity="X' \n server"),
        service("private", two.target(), public=False),
        service("bad\n    server x", three.target()),
        service("host", three.target(), host="a b"),
        service("later", three.target(), host="open.example.org"),
        service("twice", four.target(), host="open.example.org"),
    )
    await has_awaited(haproxy, one, three)
    text = (haproxy.place / "muster.cfg").read_text()
    assert "X'" not in text
    assert "private" not in text
    assert "rte-3" not in text
    publish()
    await has_awaited(haproxy)
    assert (haproxy.place / "muster.map").read_text() == ""


async def test_an_haproxy_of_a_tcp_socket_is_reloaded_by_a_command_that_nobody_feels(
    haproxy: Haproxy, replicas: list[Replica]
) -> None:
    one, two, three, _ = replicas
    port = free_port()
    frame = haproxy.place / "frame.cfg"
    second = f"global\n    stats socket ipv4@127.0.0.1:{port} level admin\n"
    frame.write_text(frame.read_text().replace("global\n", second, 1))
    haproxy.kill()
    haproxy.start()
    given = {"socket": f"127.0.0.1:{port}", "file": f"{haproxy.place}/muster.cfg"}
    reload = ["kill", "-USR2", str(haproxy.pid)]
    publish = Published(TrafficSettings.model_validate({"haproxy": given | {"reload": reload}}))
    try:
        publish(service("chat", one.target()))
        await has_awaited(haproxy, one)
        async with Load(haproxy.port).running("/chat") as load:
            await served(load)
            publish(service("chat", one.target(), two.target()), service("new", three.target()))
            await has_awaited(haproxy, one, two, three)
            await served(load)
    finally:
        publish.performer.close()
    assert load.failures == []


async def test_what_haproxy_no_longer_has_makes_it_be_compared_anew(
    haproxy: Haproxy, publish: Published, replicas: list[Replica]
) -> None:
    publish(service("chat", replicas[0].target()))
    await has_awaited(haproxy, replicas[0])
    with RuntimeApi(f"{haproxy.place}/admin.sock") as api:
        (backend,) = api.backends()
        for command in (
            f"set server {backend}/gone state ready",
            "set server muster-gone/gone state ready",
            "add server muster-gone/gone 127.0.0.1:1",
            f"add server {backend}/rte-0 127.0.0.1:1",
            f"set map {haproxy.place}/muster.map /x y",
        ):
            with pytest.raises(SinkError, match="changed meanwhile"):
                api.have(command)
        assert "weight 300" in api.have(f"set server {backend}/rte-0 weight 300")
        assert api.have(f"set server {backend}/rte-0 addr 127.0.0.2 port 1") == ""
    await until_awaited(
        lambda: haproxy.servers()["rte-0"].server.port == replicas[0].port
    )  # somebody else's change is mended


async def test_load_through_haproxy_is_told(
    haproxy: Haproxy, publish: Published, replicas: list[Replica]
) -> None:
    one, two, _, _ = replicas
    slow = Replica("rte-slow", 60.0)
    await slow.start()
    chat = service("chat", one.target(), two.target())
    publish(chat, service("slow", slow.target()))
    await has_awaited(haproxy, one, two, slow)
    await until_awaited(lambda: bool(publish.reports))

    def told(route: str) -> list[RouteLoad]:
        services = [service for each in publish.reports for service in each.services]
        return [each for service in services for each in service.routes if each.route == route]

    async with Load(haproxy.port).running("/slow", clients=2):
        await until_awaited(lambda: any(each.in_flight == 2 for each in told("rte-slow")))
    await slow.stop()
    async with Load(haproxy.port).running("/chat") as load:
        await served(load)
    requests = one.answered + two.answered
    both = [one.name, two.name]
    await until_awaited(
        lambda: sum(each.requests for name in both for each in told(name)) >= requests
    )
    ended = [each for name in both for each in told(name) if each.requests]
    assert all(sum(each.latencies[2:7]) == each.requests for each in ended)  # 5 ms of pause
    assert sum(each.failures for each in ended) == 0
