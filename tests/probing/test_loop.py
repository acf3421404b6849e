"""The loop of the probing process, on a thread, with names and limits of the tests' own."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from tests.patience import until
from tests.probing.servers import (
    OK,
    Talk,
    answering,
    closed_port,
    hang,
    serving,
)
from tests.probing.told import quick, watched

from muster.control.deployment.probing.orders import order_of
from muster.core.serving.probes import ProbeOrder, Watched
from muster.probing import loop, names
from muster.probing.loop import ProbeLoop
from muster.probing.names import Address, LookUp, Names, look_up
from muster.probing.prober import write_order


class Running:
    """A loop on a thread."""

    def __init__(self, found: Names, at_once: int = 100) -> None:
        orders, self.orders = os.pipe()
        self.results, results = os.pipe()
        self._ends = (orders, results)
        self._thread = threading.Thread(target=ProbeLoop(orders, results, found, at_once).run)
        self._unread = b""
        self.lines: list[list[Any]] = []

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def watch(self, targets: Sequence[Watched]) -> None:
        for each in targets:
            os.write(self.orders, write_order(order_of(each)))

    def of(self, route: str) -> list[tuple[bool, int, str]]:
        """Goodness, streak and detail of the results so far of a route."""
        if self.is_alive:
            os.set_blocking(self.results, False)
            with suppress(BlockingIOError):
                while read := os.read(self.results, 1 << 20):
                    *lines, self._unread = (self._unread + read).split(b"\n")
                    self.lines += map(json.loads, lines)
        rows = [row for line in self.lines for row in line if isinstance(row, list)]
        return [(row[2], row[3], row[5]) for row in rows if row[0] == route]

    def warnings(self) -> list[str]:
        self.of("")
        return [row for line in self.lines for row in line if isinstance(row, str)]

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.orders)
        self._thread.join(20)
        for end in (*self._ends, self.results):
            os.close(end)
        assert not self._thread.is_alive()


def named(**addresses: str) -> LookUp:
    """Finds these hosts, which have addresses with commas between."""

    def look(host: str, flags: int) -> list[Address]:
        return [each for text in addresses[host].split(",") for each in look_up(text, flags)]

    return look


@contextmanager
def hanging() -> Iterator[tuple[LookUp, threading.Event]]:
    over = threading.Event()

    def look(host: str, flags: int) -> list[Address]:
        over.wait(60)
        return look_up("127.0.0.1", flags)

    yield look, over
    over.set()


def test_names_that_are_never_resolved_hold_up_nobody_and_tell_nothing() -> None:
    with serving(answering(OK)) as server, hanging() as (look, over):
        with Running(Names(look)) as running:
            routes = [watched(f"rou-{n}", server.port, host=f"host-{n}") for n in range(20)]
            running.watch([*routes, watched("known", server.port)])
            until(lambda: len(running.of("known")) >= 12)
            assert all(not running.of(each.route) for each in routes)
            until(lambda: running.warnings() == ["a host's name is not resolved"])
            over.set()
            until(lambda: all(running.of(each.route) for each in routes))
        assert all(good for good, _, _ in running.of("rou-1"))


def test_names_that_are_never_resolved_hold_up_no_other_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names, "MAX_THREADS", 24)
    monkeypatch.setattr(names, "MAX_SLOW", 4)
    monkeypatch.setattr(names, "SLOW_S", 0.01)
    asked: list[str] = []
    is_stuck = threading.Event()
    with hanging() as (hang, _):

        def look(host: str, flags: int) -> list[Address]:
            asked.append(host)
            if host.startswith("bad"):
                if is_stuck.is_set():
                    hang(host, flags)
                time.sleep(0.02)
            return look_up("127.0.0.1", flags)

        found = Names(look)
        bad = [f"bad-{n}" for n in range(20)]
        # None is known to take long yet: each has a thread.
        until(lambda: all(found.find(host, 1000.0) for host in bad))
        until(lambda: not any(each.is_sought for each in found._hosts.values()))
        is_stuck.set()
        for host in bad:
            assert found.find(host, 1031.0) is not None, "the former address holds"
        until(lambda: len(asked) == 24)
        good = [f"good-{n}" for n in range(100)]
        until(lambda: all(found.find(host, 1032.0) for host in good))
        assert len(asked) == 124
        assert found._threads <= 24


def test_names_that_hang_the_first_time_hold_up_no_other_name() -> None:
    with hanging() as (hang, _):

        def look(host: str, flags: int) -> list[Address]:
            return look_up("127.0.0.1", flags) if host == "good" else hang(host, flags)

        found = Names(look)
        for n in range(20):
            assert found.find(f"bad-{n}", 1000.0) is None
        until(lambda: found.find("good", 1000.0) is not None)


def test_host_that_does_not_exist_is_bad() -> None:
    def look(host: str, flags: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    with Running(Names(look)) as running:
        running.watch([watched("name", 80, host="nowhere"), watched("none", 80, host="a b\r\nc")])
        for route in ("name", "none"):
            until(lambda route=route: len(running.of(route)) >= 2)  # type: ignore[misc]
            assert running.of(route)[0] == (False, 1, "there is no such host")


def test_former_address_holds_while_a_name_cannot_be_resolved() -> None:
    is_away = threading.Event()
    asked = 0

    def look(host: str, flags: int) -> list[Address]:
        nonlocal asked
        asked += 1
        if is_away.is_set():
            raise socket.gaierror(socket.EAI_AGAIN, "nobody answers")
        return look_up("127.0.0.1", flags)

    found = Names(look)
    until(lambda: found.find("host", 1000.0) is not None)
    known = found.find("host", 1001.0)
    is_away.set()
    assert found.find("host", 1029.0) == known
    assert asked == 1
    assert found.find("host", 1031.0) == known
    until(lambda: asked == 2)
    assert found.find("host", 1032.0) == known


def test_next_address_is_tried_where_one_refuses() -> None:
    with serving(answering(OK)) as server:
        with Running(Names(named(both="127.0.0.77,127.0.0.1"))) as running:
            running.watch([watched("rou-1", server.port, host="both")])
            until(lambda: len(running.of("rou-1")) >= 3)
        assert all(good for good, _, _ in running.of("rou-1"))


def test_fault_of_this_machine_completes_no_probe() -> None:
    # TCP has no way to a broadcast address, as if this machine had lost its network.
    with serving(answering(OK)) as server, Running(Names()) as running:
        lost = watched("lost", server.port, host="255.255.255.255")
        running.watch([lost, watched("known", server.port)])
        until(lambda: len(running.of("known")) >= 5)
        until(lambda: running.warnings() == ["probes are kept from beginning: ENETUNREACH"])
        assert running.of("lost") == []


def test_targets_that_hang_take_no_turn_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_UNDER_WAY", 8)
    monkeypatch.setattr(loop, "MAX_SLOW", 4)
    with serving(hang) as dead, serving(answering(OK)) as server, Running(Names()) as running:
        bad = [watched(f"bad-{n}", dead.port) for n in range(24)]
        good = [watched(f"good-{n}", server.port) for n in range(4)]
        running.watch(bad)
        until(lambda: all(running.of(each.route) for each in bad))
        running.watch(good)
        began_s = time.monotonic()
        until(lambda: all(len(running.of(each.route)) >= 10 for each in good))
        assert time.monotonic() - began_s < 8.0
        # Those that hang go on too, each in its turn.
        until(lambda: all(len(running.of(each.route)) >= 2 for each in bad))
        counts = [len(running.of(each.route)) for each in bad]
        assert max(counts) - min(counts) <= 1


def test_targets_that_hang_the_first_time_take_all_turns_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "MAX_UNDER_WAY", 8)
    monkeypatch.setattr(loop, "MAX_SLOW", 4)
    with serving(hang) as dead, serving(answering(OK)) as server, Running(Names()) as running:
        running.watch([watched(f"bad-{n}", dead.port, quick(timeout=60)) for n in range(24)])
        until(lambda: len(dead.requests) >= 8)
        running.watch([watched("good", server.port)])
        until(lambda: len(running.of("good")) >= 10)


def test_results_that_change_nothing_are_told_once_a_second() -> None:
    with serving(answering(OK)) as server, Running(Names(), at_once=3) as running:
        routes = [f"rou-{n}" for n in range(5)]
        running.watch([watched(route, server.port) for route in routes])
        until(lambda: all(running.of(route)[-1:] > [(True, 25, "")] for route in routes))
        for route in routes:
            streaks = [streak for _, streak, _ in running.of(route)]
            assert streaks[:3] == [1, 2, 3]
            assert len(streaks) <= 3 + 4
        together = [line for line in running.lines if len(line) >= len(routes)]
        assert together
        server.behave = answering(b"HTTP/1.1 500 No\r\n\r\n")
        until(lambda: not running.of("rou-1")[-1][0])
        first_bad = next(each for each in running.of("rou-1") if not each[0])
        assert first_bad[1] == 1


def test_performer_that_reads_nothing_holds_up_no_probe_and_gets_the_last_results() -> None:
    with serving(answering(OK)) as server, Running(Names()) as running:
        os.set_blocking(running._ends[1], False)
        for size in (1000, 1):  # fills the pipe
            with suppress(BlockingIOError):
                while True:
                    os.write(running._ends[1], b"[]\n" * size)
        running.watch([watched("rou-1", server.port)])
        until(lambda: server.accepted >= 15)
        until(lambda: len(running.of("rou-1")) >= 3)
        # One had been begun to be told; all others until then are told together.
        assert running.of("rou-1")[1][1] >= 10


def test_order_that_is_none_is_left_out() -> None:
    with serving(answering(OK)) as server, Running(Names()) as running:
        os.write(running.orders, b'{"route": 5, "host": []}\nnothing\n{}\n')
        running.watch([watched("rou-1", server.port)])
        until(lambda: running.of("rou-1"))


def test_connection_of_a_port_with_itself_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lends ports of connections from the range in which a dead replica's may be."""
    port = closed_port()
    with ExitStack() as stack:
        made: Callable[..., socket.socket] = socket.socket

        def bound(family: int, kind: int) -> socket.socket:
            connection = made(family, kind)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.bind(("127.0.0.1", port))
            return connection

        monkeypatch.setattr("muster.probing.attempts.socket.socket", bound)
        running = stack.enter_context(Running(Names()))
        running.watch([watched("rou-1", port, quick(kind="tcp"))])
        until(lambda: len(running.of("rou-1")) >= 2)
        assert running.of("rou-1")[0] == (False, 1, "connection refused")


def test_connection_of_a_route_that_is_unwatched_is_closed() -> None:
    closed = threading.Event()

    def wait_for_the_end(talk: Talk) -> None:
        talk.request()
        with suppress(ConnectionResetError):
            talk.connection.recv(1)
        closed.set()

    with serving(wait_for_the_end) as server, Running(Names()) as running:
        running.watch([watched("rou-1", server.port, quick(timeout=60))])
        until(lambda: server.requests)
        os.write(running.orders, write_order(ProbeOrder("rou-1", 1)))
        assert closed.wait(20)
        assert running.of("rou-1") == []


def test_loop_without_targets_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "IDLE_S", 1.0)
    with serving(answering(OK)) as server, Running(Names()) as running:
        running.watch([watched("rou-1", server.port)])
        until(lambda: len(running.of("rou-1")) >= 15)  # it is not idle meanwhile
        os.write(running.orders, write_order(ProbeOrder("rou-1", 1)))
        until(lambda: not running.is_alive)
