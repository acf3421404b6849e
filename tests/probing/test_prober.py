"""The prober, its process, and servers of all kinds."""

import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.patience import until
from tests.probing.servers import (
    OK,
    Talk,
    answer_100_mb,
    answering,
    close_at_once,
    closed_port,
    hang,
    redirect_for_ever,
    send_a_byte_a_second,
    send_headers_for_ever,
    send_informational_for_ever,
    serving,
)
from tests.probing.told import Told, quick, watched

from muster.control.deployment.probing.orders import order_of
from muster.core.serving.probes import ProbeOrder
from muster.probing import prober as module
from muster.probing.prober import Prober

MISSING_METRIC = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def prober(told: Told, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prober]:
    monkeypatch.setattr(module, "AGAIN_S", 0.2)
    prober = Prober(told)
    yield prober
    prober.close()


def process_of(prober: Prober) -> "subprocess.Popen[bytes]":
    return until(lambda: prober._process)


def test_good_answers_are_counted_one_by_one(prober: Prober, told: Told) -> None:
    with serving(answering(OK)) as server:
        prober.obey([order_of(watched("rou-1", server.port, generation=7))])
        told.last("rou-1", 4)
    first = told.of("rou-1")[:4]
    assert [(each.generation, each.good, each.streak) for each in first] == [
        (7, True, 1),
        (7, True, 2),
        (7, True, 3),
        (7, True, 4),
    ]
    assert {each.detail for each in first} == {"HTTP 200"}
    assert all(0 <= each.age_s < 5 and each.value is None for each in first)


def test_servers_that_behave_badly_are_told_apart_in_time(prober: Prober, told: Told) -> None:
    redirected = f"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:{closed_port()}/\r\n\r\n"
    cases: dict[str, tuple[Callable[[Talk], None], bool, str]] = {
        "never answers": (hang, False, "no answer within 0.4 s"),
        "closes at once": (close_at_once, False, "closed without an answer"),
        "a byte a second": (send_a_byte_a_second, False, "no answer within 0.4 s"),
        "garbage": (answering(b"SSH-2.0-OpenSSH_9.2\r\n"), False, "the answer is not HTTP/1.1"),
        "no status": (answering(b"HTTP/1.1 OK\r\n\r\n"), False, "the answer is not HTTP/1.1"),
        "huge headers": (
            send_headers_for_ever,
            False,
            "the answer has a head of more than 16 KiB",
        ),
        "informational": (
            send_informational_for_ever,
            False,
            "the answer does not come to its end: one informational answer follows another",
        ),
        "cut off": (answering(b"HTTP/1.1 200 OK\r\nX: "), False, "closed without an answer"),
        "busy": (answering(b"HTTP/1.1 503 No\r\n\r\n"), False, "HTTP 503"),
        "redirects": (redirect_for_ever, True, "HTTP 302"),
        "redirects elsewhere": (answering(redirected.encode()), True, "HTTP 307"),
        "100 MB": (answer_100_mb, True, "HTTP 200"),
        "early hints": (answering(b"HTTP/1.1 103 E\r\n\r\n" + OK), True, "HTTP 200"),
        "bare line feeds": (answering(b"HTTP/1.0 204 No\nX: y\n\n"), True, "HTTP 204"),
    }
    with ExitStack() as stack:
        stack.callback(prober.close)
        servers = {name: stack.enter_context(serving(case[0])) for name, case in cases.items()}
        prober.obey([order_of(watched(name, each.port)) for name, each in servers.items()])
        found = {name: told.last(name, 3) for name in cases}
    assert {name: (each.good, each.detail) for name, each in found.items()} == {
        name: (good, detail) for name, (_, good, detail) in cases.items()
    }
    redirects = servers["redirects"].requests
    assert {request.split(b"\r\n")[0] for request in redirects} == {b"GET / HTTP/1.1"}
    large = servers["100 MB"]
    assert large.sent < 8_000_000 * large.accepted


def test_port_on_which_nothing_listens_is_told_at_once(prober: Prober, told: Told) -> None:
    port = closed_port()
    slow = quick(timeout=20)
    by_tcp = quick(timeout=20, kind="tcp")
    prober.obey([order_of(watched("http", port, slow)), order_of(watched("tcp", port, by_tcp))])
    for route in ("http", "tcp"):
        result = told.last(route, 2)
        assert (result.good, result.detail) == (False, "connection refused")
        assert result.reached is True


def test_machine_that_says_nothing_to_a_connection_is_not_reached(
    prober: Prober, told: Told
) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = full.getsockname()
        for _ in range(3):  # whoever comes when the queue is full gets no answer from the kernel
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        hangs = stack.enter_context(serving(hang))
        nowhere = "-none.invalid"  # of which no name server is asked, because of the hyphen
        watches = {
            "http": watched("http", address[1], quick()),
            "tcp": watched("tcp", address[1], quick(kind="tcp")),
            "no such host": watched("no such host", 1, quick(), host=nowhere),
            "hangs": watched("hangs", hangs.port, quick()),
        }
        stack.callback(prober.close)
        prober.obey([order_of(each) for each in watches.values()])
        found = {route: told.last(route, 2) for route in watches}
    assert {route: (each.good, each.detail, each.reached) for route, each in found.items()} == {
        "http": (False, "not connected within 0.4 s", False),
        "tcp": (False, "not connected within 0.4 s", False),
        "no such host": (False, "there is no such host", False),
        "hangs": (False, "no answer within 0.4 s", True),
    }


def test_connection_is_enough_for_a_probe_by_tcp(prober: Prober, told: Told) -> None:
    heard = []

    def listen(talk: Talk) -> None:
        heard.append(talk.connection.recv(100))

    with serving(listen) as server:
        prober.obey([order_of(watched("rou-1", server.port, quick(kind="tcp")))])
        result = told.last("rou-1", 3)
    assert (result.good, result.detail) == (True, "connected")
    assert set(heard) == {b""}


def test_request_carries_the_secret_of_its_deployment_and_no_other() -> None:
    probe = quick(headers={"muster-secret": "guessed", "X-Own": "1"})
    order = order_of(replace(watched("rou-1", 80, probe, metric="load"), secret="known"))
    assert order.target is not None
    for request in (order.target.request, order.target.metric_request):
        assert b"\r\nMuster-Secret: known\r\n" in request
        assert b"guessed" not in request
    assert "known" not in repr(order), "it is in no log"
    plain = order_of(watched("rou-1", 80)).target
    assert plain is not None
    assert b"Muster-Secret" not in plain.request


def test_request_is_as_the_spec_says(prober: Prober, told: Told) -> None:
    def echo(talk: Talk) -> None:
        request = talk.request()
        while not request.endswith(b"{}\xc3\xa9"):
            request += talk.connection.recv(100)
        talk.server.requests[-1] = request
        talk.send(OK)

    probe = quick(
        path="/ready?deep=1",
        method="POST",
        headers={"X-Model": "größe", "HOST": "chat.example.org"},
        body="{}é",
        status=[201, "204-299"],
    )
    with serving(echo) as server:
        prober.obey([order_of(watched("rou-1", server.port, probe))])
        assert not told.last("rou-1").good
    assert (
        server.requests[0]
        == (
            "POST /ready?deep=1 HTTP/1.1\r\nHOST: chat.example.org\r\nUser-Agent: muster-probe\r\n"
            "Accept: */*\r\nX-Model: größe\r\nContent-Length: 4\r\nConnection: close\r\n\r\n{}é"
        ).encode()
    )


def test_change_is_told_at_once_with_a_streak_that_begins_anew(prober: Prober, told: Told) -> None:
    with serving(answering(OK)) as server:
        prober.obey([order_of(watched("rou-1", server.port))])
        told.last("rou-1", 3)
        server.behave = answering(b"HTTP/1.1 500 No\r\n\r\n")
        until(lambda: not told.of("rou-1")[-1].good)
        bad = next(each for each in told.of("rou-1") if not each.good)
        assert bad.streak == 1
        server.behave = answering(OK)
        until(lambda: told.of("rou-1")[-1].good)


def test_route_that_is_unwatched_is_probed_no_more(prober: Prober, told: Told) -> None:
    with serving(answering(OK)) as gone, serving(answering(OK)) as kept:
        effects = [order_of(watched("gone", gone.port)), order_of(watched("kept", kept.port))]
        prober.obey(effects)
        told.last("gone", 2)
        prober.obey([ProbeOrder("gone", 0), ProbeOrder("unknown", 1)])  # too old, never known
        told.last("gone", len(told.of("gone")) + 2)
        prober.obey([ProbeOrder("gone", 1)])
        heard = len(told.of("gone"))
        streak = told.last("kept").streak
        told.last("kept", streak + 2)  # the process has heard of it
        accepted = gone.accepted
        told.last("kept", streak + 6)
        assert gone.accepted == accepted
        assert len(told.of("gone")) == heard


def test_newer_generation_takes_the_place_of_an_older_one(prober: Prober, told: Told) -> None:
    with serving(answering(OK)) as old, serving(answering(OK)) as new:
        prober.obey([order_of(watched("rou-1", old.port, generation=2))])
        told.last("rou-1", 2)
        prober.obey([order_of(watched("rou-1", new.port, generation=3))])
        until(lambda: told.of("rou-1")[-1].generation == 3)
        prober.obey([order_of(watched("rou-1", old.port, generation=2))])
        told.last("rou-1", 1 + max(each.streak for each in told.of("rou-1")))
        later = [each for each in told.of("rou-1") if each.generation == 3]
        assert [each.streak for each in later[:2]] == [1, 2]
        assert told.of("rou-1")[-1].generation == 3


def test_effect_that_comes_again_changes_nothing(prober: Prober, told: Told) -> None:
    with serving(answering(OK)) as server:
        effect = order_of(watched("rou-1", server.port))
        prober.obey([effect, effect])
        for streak in range(2, 5):
            told.last("rou-1", streak)
            prober.obey([order_of(watched("rou-1", server.port))])
        streaks = [each.streak for each in told.of("rou-1")]
    assert streaks == sorted(set(streaks))


def test_metric_is_read_beside_the_probe(prober: Prober, told: Told) -> None:
    def tell(talk: Talk) -> None:
        request = talk.request()
        body = b'# HELP queue\nqueue{a="1"} 2\nqueue_total 9\nqueue{a="}2"} 3.5 1700000000\n'
        if request.startswith(b"GET /numbers "):
            talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            talk.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            talk.wait(0.05)
        else:
            talk.send(OK)

    with serving(tell) as server:
        prober.obey([order_of(watched("rou-1", server.port, metric="queue"))])
        until(lambda: any(each.value is not None for each in told.of("rou-1")))
        assert told.of("rou-1")[-1].value == 5.5
        server.behave = answering(MISSING_METRIC)
        until(lambda: told.of("rou-1")[-1].value is None)


def test_metric_that_cannot_be_read_is_missing_and_the_probe_counts(
    prober: Prober, told: Told
) -> None:
    def too_long(talk: Talk) -> None:
        if b"/numbers" in talk.request():
            talk.send(b"HTTP/1.1 200 OK\r\n\r\nqueue 1\n")
            for _ in range(1000):
                talk.send(b"queue 1\n" * 1000)
        else:
            talk.send(OK)

    def silent(talk: Talk) -> None:
        if b"/numbers" in talk.request():
            talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nqueue 1")
            talk.wait(20)
        else:
            talk.send(OK)

    said = {
        "nan": (answering(b"HTTP/1.1 200 OK\r\n\r\nqueue NaN\n"), "no such number"),
        "too long": (too_long, "the answer has a body of more than 256 KiB"),
        "silent": (silent, "no answer within 0.4 s"),
    }
    with ExitStack() as stack:
        stack.callback(prober.close)
        servers = {name: stack.enter_context(serving(case[0])) for name, case in said.items()}
        prober.obey(
            [order_of(watched(name, each.port, metric="queue")) for name, each in servers.items()]
        )
        for name, (_, why) in said.items():
            told.until_said(name, f"HTTP 200; queue: {why}")
            assert all(each.good and each.value is None for each in told.of(name))


def test_process_that_is_killed_is_replaced_and_told_all_again(
    prober: Prober, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(answering(OK)) as server:
        prober.obey([order_of(watched("rou-1", server.port))])
        told.last("rou-1", 3)
        process = process_of(prober)
        process.kill()
        until(lambda: [each.streak for each in told.of("rou-1")].count(1) == 2)
        assert process.returncode == -signal.SIGKILL
        assert process_of(prober).pid != process.pid
    assert "the probing process ended with -9" in caplog.text


def test_process_that_hangs_is_replaced(
    prober: Prober, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 1.5)
    with serving(answering(OK)) as server:
        prober.obey([order_of(watched("rou-1", server.port))])
        told.last("rou-1", 2)
        os.kill(process_of(prober).pid, signal.SIGSTOP)
        until(lambda: [each.streak for each in told.of("rou-1")].count(1) == 2)


def test_time_in_which_the_process_could_not_run_makes_nobody_unhealthy(
    prober: Prober, told: Told
) -> None:
    def answer_late(talk: Talk) -> None:
        talk.request()
        talk.wait(0.15)
        talk.send(OK)

    with serving(answer_late) as server:
        prober.obey([order_of(watched(f"rou-{n}", server.port)) for n in range(20)])
        told.last("rou-1", 2)
        for _ in range(2):
            os.kill(process_of(prober).pid, signal.SIGSTOP)
            time.sleep(0.7)
            os.kill(process_of(prober).pid, signal.SIGCONT)
            told.last("rou-1", told.of("rou-1")[-1].streak + 3)
    assert [each for report in told.reports for each in report if not each.good] == []


def test_nothing_is_left_open(told: Told) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with serving(answering(OK)) as server:
        files, threads = open_files(), threading.active_count()
        prober = Prober(told)
        prober.close()
        prober = Prober(told)
        prober.obey([order_of(watched("rou-1", server.port))])
        told.last("rou-1", 2)
        process = process_of(prober)
        prober.close()
        prober.obey([order_of(watched("rou-2", server.port))])
        assert process.returncode is not None
        until(lambda: open_files() <= files and threading.active_count() <= threads)


def test_process_gets_no_secrets_and_no_proxy(
    prober: Prober, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "MUSTER_TOKEN"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serving(answering(OK)) as server:
        prober.obey([order_of(watched("rou-1", server.port))])
        assert told.last("rou-1").good
        environment = Path(f"/proc/{process_of(prober).pid}/environ").read_text().lower()
    assert "proxy" not in environment
    assert "token" not in environment


def test_more_than_can_be_watched_is_refused_and_said_once(
    prober: Prober, told: Told, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prober._most = 2
    with serving(answering(OK)) as server, caplog.at_level(logging.WARNING):
        prober.obey([order_of(watched(f"rou-{n}", server.port)) for n in range(5)])
        told.last("rou-1")
        assert caplog.messages == ["route rou-2 is not probed: 2 are watched"]
        prober.obey([ProbeOrder("rou-0", 1), order_of(watched("rou-9", server.port))])
        told.last("rou-9")


def test_results_that_cannot_be_reported_are_reported_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()

    def report(results: object) -> None:
        if caplog.messages.count("results of probes are lost") < 3:
            raise RuntimeError("the inbox is full")
        told(results)  # type: ignore[arg-type] # what the prober gives

    prober = Prober(report)
    try:
        prober.obey([order_of(watched("rou-1", closed_port()))])
        assert told.last("rou-1", 4).streak >= 4
    finally:
        prober.close()
    assert caplog.messages.count("results of probes are lost") == 3
