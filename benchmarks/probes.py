"""The cost at which replicas are probed: the prober's process, and its part of the controller's."""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import psutil
from benchmarks.results import Figure, MeaninglessFigures, Results

from muster.control.deployment.probing.orders import order_of
from muster.core.serving.probes import ProbeResult, Watched
from muster.core.specs.serving import ProbeKind, ProbeSpec
from muster.probing.prober import Prober

TITLE = "Probes: what it costs to watch replicas"
SETTLE_S = 3.0
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\nContent-Type: application/json\r\n"
    b"Content-Length: 15\r\nConnection: close\r\n\r\n"
    b'{"status":"ok"}'
)


@dataclass(frozen=True, slots=True)
class Plan:
    """``runs`` windows of ``window_s``, in which each of ``routes`` is probed once a second."""

    window_s: float
    routes: int = 1_000
    runs: int = 3


FULL = Plan(window_s=30.0)
SHORT = Plan(window_s=8.0)


@dataclass(frozen=True, slots=True)
class _Window:
    """Percent of a core, and results a second."""

    process: float
    controller: float
    told_per_s: float


def measure(plan: Plan) -> Results:
    """
    Raises:
        MeaninglessFigures: not every route was probed as often as it should have been.
    """
    with _server() as port:
        http = [_probed(plan, port, ProbeKind.HTTP) for _ in range(plan.runs)]
        tcp = [_probed(plan, port, ProbeKind.TCP) for _ in range(plan.runs)]
    return Results(plan.runs, list(_figures(plan, http, tcp)))


def _figures(plan: Plan, http: Sequence[_Window], tcp: Sequence[_Window]) -> Iterator[Figure]:
    yield Figure(
        "probes_cpu_percent",
        median(each.process + each.controller for each in http),
        f"of a core, by the probing process and the controller's threads for it: {plan.routes:,} "
        f"routes, each probed once a second by HTTP; {plan.runs} windows of {plan.window_s:g} s",
        "≤ 15",
    )
    yield Figure("process_cpu_percent", median(each.process for each in http), "the process alone")
    yield Figure(
        "results_per_s", median(each.told_per_s for each in http), "results that were reported"
    )
    yield Figure(
        "tcp_probes_cpu_percent",
        median(each.process + each.controller for each in tcp),
        "the same by TCP: connected, and closed",
    )


def _probed(plan: Plan, port: int, kind: ProbeKind) -> _Window:
    told: list[ProbeResult] = []
    prober = Prober(told.extend)
    probe = ProbeSpec(kind=kind, path="/health", interval=1.0, timeout=1.0)
    hosts = [f"127.1.{number // 250}.{1 + number % 250}" for number in range(plan.routes)]
    routes = [Watched(f"rou-{number}", 1, host, port, probe) for number, host in enumerate(hosts)]
    try:
        prober.obey([order_of(each) for each in routes])
        time.sleep(SETTLE_S)
        [process] = psutil.Process().children(recursive=True)[-1:]
        told.clear()
        before = sum(process.cpu_times()[:2]), time.process_time()
        began_s = time.monotonic()
        time.sleep(plan.window_s)
        after = sum(process.cpu_times()[:2]), time.process_time()
        passed_s = time.monotonic() - began_s
        found = list(told)
    finally:
        prober.close()
    bad = sum(not each.good for each in found)
    streaks = {each.route: each.streak for each in found}
    if bad or len(streaks) < plan.routes or min(streaks.values()) < plan.window_s:
        raise MeaninglessFigures(f"{bad} bad, {len(streaks)} routes")
    process_s, controller_s = (late - early for early, late in zip(before, after, strict=True))
    return _Window(100 * process_s / passed_s, 100 * controller_s / passed_s, len(found) / passed_s)


@contextmanager
def _server() -> Iterator[int]:
    """The port of a server in a process of its own, at all addresses of this machine's loopback."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.probes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def serve() -> None:
    """Answer every request with ``ANSWER``."""
    listening = socket.create_server(("0.0.0.0", 0), backlog=4096)
    listening.setblocking(False)
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    epoll = select.epoll()
    epoll.register(listening, select.EPOLLIN)
    connections: dict[int, socket.socket] = {}
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == listening.fileno():
                connection, _ = listening.accept()
                connections[connection.fileno()] = connection
                epoll.register(connection, select.EPOLLIN)
            else:
                connection = connections.pop(descriptor)
                try:
                    if connection.recv(4096):
                        connection.send(ANSWER)
                except OSError:
                    pass
                connection.close()


if __name__ == "__main__":
    serve()
