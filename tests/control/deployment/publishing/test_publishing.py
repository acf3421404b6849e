"""Settings, the threads of sinks, and the performer's hollow twin."""

import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from proving.hollow.performers.publishing import HollowPublisher, PublishFaults
from proving.hollow.virtual_clock import VirtualClock
from tests.control.deployment.publishing.balancers import service
from tests.patience import until

from muster.control.deployment.publishing import sink as publishing_sink
from muster.control.deployment.publishing.effects import PublishServices
from muster.control.deployment.publishing.performer import TrafficPublisher
from muster.control.deployment.publishing.published import Addresses
from muster.control.deployment.publishing.settings import FILE, load_settings
from muster.control.deployment.publishing.sink import Sink, SinkError, SinkLine, Tended
from muster.core.errors import InvalidSpec
from muster.core.serving.traffic import Target, TrafficService


def test_without_a_file_nobody_is_told(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        settings = load_settings(folder)
        assert settings.haproxy is None
        assert settings.etcd is None


def test_settings_are_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        f"haproxy: {{socket: '127.0.0.1:9999', file: {tmp_path}/muster.cfg, reload: [/bin/true]}}\n"
        "etcd: {endpoints: ['https://[::1]:2379'], lease: 1m}\n"
        "hosts: [Services.Example.org]\n"
    )
    settings = load_settings(tmp_path)
    assert settings.haproxy is not None
    assert settings.etcd is not None
    assert settings.etcd.lease == 60.0
    assert settings.hosts == {"services.example.org"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "haproxy: {socket: admin.sock, file: /etc/x.txt}\netcd: {endpoints: [a]}",
            ["haproxy.socket", "haproxy.file", "etcd.endpoints"],
        ),
        (
            "haproxy: {socket: /a, file: /nowhere/x.cfg, master: /m, reload: [bin/x]}\n"
            "etcd: {endpoints: ['http://10.0.0.1:1'], cert: /no, user: u, password_file: /no}",
            ["haproxy.file", "haproxy.reload", "etcd.cert", "etcd.endpoints", "password_file"],
        ),
        ("haproxy: {socket: '/a;b', file: '/x y.cfg'}", ["haproxy.socket", "haproxy.file"]),
        ("etcd: {endpoints: ['http://a:1'], prefix: routes, lease: 1}", ["prefix", "lease"]),
        ("haproxy: {socket: '10.0.0.1:0', file: /x.cfg}", ["haproxy.socket"]),
        ("haproxy: {socket: '10.0.0.1:65536', file: /x.cfg}", ["haproxy.socket"]),
        ("haproxy: {socket: 'a..b:9999', file: /x.cfg}", ["haproxy.socket"]),
        (
            "etcd: {endpoints: ['http://a..b:1', 'http://a']}",
            ["endpoints.0", "endpoints.1"],
        ),
        ("etcd: {endpoints: ['http://127.0.0.1:99999']}", ["endpoints.0"]),
        ("nginx: {}", ["nginx"]),
    ],
)
def test_wrong_settings_are_refused_with_all_that_is_wrong(
    tmp_path: Path, text: str, told: list[str]
) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(InvalidSpec) as caught:
        load_settings(tmp_path)
    for each in told:
        assert each in str(caught.value)


class Told(Sink):
    """A balancer that hangs, or refuses, until it may go on."""

    name = "told"

    def __init__(self, refusals: int = 0) -> None:
        self.may_go_on = threading.Event()
        self.refusals = refusals
        self.heard: list[int] = []
        self.rests = 0
        self.is_closed = False

    def publish(self, services: Sequence[TrafficService]) -> Tended:
        self.may_go_on.wait(30)
        if self.refusals:
            self.refusals -= 1
            raise SinkError("not now")
        self.heard.append(len(services))
        return Tended(60.0)

    def rest(self) -> None:
        self.rests += 1

    def close(self) -> None:
        self.is_closed = True


def sets(*sizes: int) -> list[PublishServices]:
    """Sets of so many services each, in the order of their versions."""
    return [
        PublishServices(version, tuple(service(f"s{each}") for each in range(size)))
        for version, size in enumerate(sizes)
    ]


def test_a_sink_that_hangs_holds_nobody_up_and_gets_the_newest_set_alone() -> None:
    hanging, quick = Told(), Told()
    quick.may_go_on.set()
    lines = [SinkLine(lambda: hanging, "hanging"), SinkLine(lambda: quick, "quick")]
    began_s = time.monotonic()
    first, second, third, fourth = sets(1, 2, 3, 4)
    for effect in (first, second, fourth, third):
        for line in lines:
            line.put(effect)
    assert time.monotonic() - began_s < 5.0
    until(lambda: quick.heard[-1:] == [4])
    assert hanging.heard == []
    hanging.may_go_on.set()
    until(lambda: hanging.heard == [1, 4] or hanging.heard == [4])
    for line in lines:
        line.close()
    until(lambda: hanging.is_closed and quick.is_closed)


def test_a_sink_that_refuses_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    sink = Told(refusals=3)
    sink.may_go_on.set()
    line = SinkLine(lambda: sink, "told")
    line.put(sets(5)[0])
    until(lambda: sink.heard == [5])
    line.close()
    assert [record.message for record in caplog.records] == ["told: not now"]


def test_complaint_about_a_balancer_is_known_until_it_follows(tmp_path: Path) -> None:
    """As `muster doctor` tells it."""
    socket_ = tmp_path / "haproxy.sock"
    (tmp_path / FILE).write_text(
        f"haproxy: {{socket: '{socket_}', file: {tmp_path}/muster.cfg, reload: [/bin/true]}}\n"
    )
    publisher = TrafficPublisher(load_settings(tmp_path), lambda report: None)
    assert publisher.complaints() == {}, "nothing was published yet"
    publisher.perform(sets(1))
    told = until(lambda: publisher.complaints().get("haproxy"))
    assert str(socket_) in told
    publisher.close()
    sink = Told(refusals=1)
    line = SinkLine(lambda: sink, "told")
    line.put(sets(1)[0])
    assert line.complaint is None
    sink.may_go_on.set()
    until(lambda: line.complaint == "")
    line.close()


def test_a_sink_rests_while_another_controller_may_be_in_charge(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing_sink, "REST_S", 0.01)
    told, in_charge = Told(), threading.Event()
    told.may_go_on.set()
    line = SinkLine(lambda: told, "told", in_charge.is_set)
    first, second = sets(1, 2)
    line.put(first)
    until(lambda: told.rests > 2)
    line.put(second)
    until(lambda: told.rests > 10)
    assert told.heard == []
    in_charge.set()
    until(lambda: told.heard == [2])
    line.close()
    assert [record.message for record in caplog.records][:1] == [
        "told: it stays as it is: without the database, another controller may be in charge"
    ]


def test_addresses_that_are_of_a_link_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """HAProxy does not start with a file that has one."""
    of = {"both": ["fe80::1%eth0", "fd00::1"], "link": ["fe80::1%eth0"]}

    def found(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (address, 0)) for address in of[host]]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    addresses = Addresses({})
    addresses.follow(of)
    targets = [Target(route=host, host=host, port=1, revision=1) for host in of]
    assert [addresses.of(each) for each in targets] == ["fd00::1", None]


@pytest.mark.parametrize(
    ("faults", "published"),
    [
        (PublishFaults(), [1, 2]),
        (PublishFaults(lost=1.0), []),
        (PublishFaults(doubled=1.0, late_s=0.0), None),
    ],
)
def test_hollow_sets_are_lost_doubled_and_never_replaced_by_older_ones(
    faults: PublishFaults, published: list[int] | None
) -> None:
    seen: list[PublishServices] = []
    clock = VirtualClock()
    hollow = HollowPublisher(clock, seen.append, faults=faults)
    for effect in sets(1, 2):
        hollow.perform([effect])
        hollow.tick()
    if published is not None:
        assert [len(each.services) for each in seen] == published
    else:
        assert len(seen) == 4


def test_hollow_sets_that_come_late_leave_the_newest(tmp_path: Path) -> None:
    for seed in range(20):
        clock = VirtualClock()
        hollow = HollowPublisher(clock, seed=seed, faults=PublishFaults(late_s=60.0))
        hollow.perform(sets(1, 2, 3))
        while (at := hollow.next_at) is not None:
            clock.advance_to(max(at, clock.now()))
            hollow.tick()
        assert (hollow.version, len(hollow.services)) == (2, 3)
