"""The built-in proxy: how many small requests it hands on, and what it adds to each.

The load, the proxy and the replica are processes of their own, and share the machine's cores.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import cast

import msgspec
import psutil
import uvloop
from benchmarks.results import Figure, MeaninglessFigures, Results
from tests.patience import until

from muster.app.proxy_config import ProxyConfig, dump_proxy
from muster.core.serving.traffic import Target, TrafficService, TrafficView

TITLE = "The proxy: small requests"
CONNECTIONS = 32
PACE_PER_S = 2_000
BODY = b'{"answer": "%s"}' % (b"x" * 100)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)
REQUEST = (
    b"GET %b HTTP/1.1\r\nHost: localhost:8282\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    b"Connection: keep-alive\r\nUser-Agent: python-httpx/0.28.1\r\nX-Request-Id: 1234567890\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Answered:
    """Requests that were answered in a window, and their latencies in seconds."""

    count: int
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    window_s: float
    runs: int = 5
    pace_per_s: int = PACE_PER_S
    least_part: float = 0.95  # of the paced requests; fewer answered say nothing


FULL = Plan(window_s=10.0)
SHORT = Plan(window_s=3.0, runs=3)


def measure(plan: Plan) -> Results:
    """
    Raises:
        MeaninglessFigures: something did not happen that was to be measured.
    """
    with (
        tempfile.TemporaryDirectory(prefix="muster-bench-") as directory,
        _part("replica") as replica,
        _proxy(Path(directory), replica) as (port, process),
    ):
        rates, cpu_us, direct, added, added_p99 = [], [], [], [], []
        for _ in range(plan.runs):
            before_s = sum(process.cpu_times()[:2])
            found = _load(port, b"/web/predict", plan.window_s, 0)
            rates.append(found.count / plan.window_s)
            cpu_us.append((sum(process.cpu_times()[:2]) - before_s) / found.count * 1e6)
            wanted = int(plan.pace_per_s * plan.window_s * plan.least_part)
            alone = _load(replica, b"/predict", plan.window_s, plan.pace_per_s, wanted)
            through = _load(port, b"/web/predict", plan.window_s, plan.pace_per_s, wanted)
            direct.append(alone.p50_s * 1000)
            added.append((through.p50_s - alone.p50_s) * 1000)
            added_p99.append((through.p99_s - alone.p99_s) * 1000)
    return Results(
        plan.runs,
        [
            Figure(
                "requests_per_s",
                median(rates),
                f"by {CONNECTIONS} connections that each ask again once they are answered",
                "≥ 2,000",
            ),
            Figure("cpu_us", median(cpu_us), "µs of processor time of the proxy a request"),
            Figure(
                "added_ms_p50",
                median(added),
                f"at {plan.pace_per_s:,} requests a second, against the same without the proxy",
                "≤ 3",
            ),
            Figure("added_ms_p99", median(added_p99), "the same"),
            Figure("direct_ms_p50", median(direct), "without the proxy"),
        ],
    )


@contextmanager
def _proxy(directory: Path, replica: int) -> Iterator[tuple[int, psutil.Process]]:
    """The port and process of a proxy whose controller is away."""
    target = Target(route="r1", host="127.0.0.1", port=replica, revision=1)
    web = TrafficService(
        id="s1", name="web", domain="d", project="p", user="u", public=True, targets=(target,)
    )
    services = msgspec.json.encode(TrafficView(version=1, services=(web,)))
    (directory / "services.json").write_bytes(services)
    settings = dump_proxy(ProxyConfig(directory, directory / "no-controller.json", port=0))
    process = subprocess.Popen(
        [sys.executable, "-m", "muster.app.proxy_process"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdin is not None
        with process.stdin:
            process.stdin.write(settings.encode())
        running = directory / "proxy.json"
        until(running.exists)
        yield json.loads(running.read_text())["port"], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _part(*words: str) -> Iterator[int]:
    """A part of this module as a process, and the number that it says first."""
    command = [sys.executable, "-m", "benchmarks.proxy", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        with process.stdout:
            yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(30)


def _load(port: int, path: bytes, window_s: float, pace_per_s: int, wanted: int = 2) -> Answered:
    """The requests that were answered during a window.

    Args:
        pace_per_s: of requests; 0 means as fast as they are answered.

    Raises:
        MeaninglessFigures: fewer were answered than are wanted.
    """
    words = ["load", str(port), path.decode(), str(window_s), str(pace_per_s)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.proxy", *words],
        stdout=subprocess.PIPE,
        timeout=window_s + 60,
        check=True,
    )
    answered = Answered(*json.loads(done.stdout))
    if answered.count < wanted:
        raise MeaninglessFigures(f"{answered.count} requests were answered, not {wanted}")
    return answered


# -- the other processes -----------------------------------------------------------------------


class _Replica(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *heads, self._rest = (self._rest + data).split(b"\r\n\r\n")
        self._transport.write(ANSWER * len(heads))


class _Client(asyncio.Protocol):
    """A connection that sends a request and takes its answer."""

    def __init__(self, load: "_Load") -> None:
        self._load = load
        self._got = b""
        self._since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, since_s: float) -> None:
        self._since_s = since_s
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if self._got.endswith(BODY):
            if not self._got.startswith(b"HTTP/1.1 200"):
                sys.exit(f"an answer that is none: {self._got[:200]!r}")
            self._got = b""
            self._load.answered(self, self._since_s)


class _Load:
    """A paced load waits for no answer: a request that finds no free connection has waited since it
    was due."""

    def __init__(self, path: bytes, pace_per_s: int) -> None:
        self.request = REQUEST % path
        self.latencies: list[float] = []
        self._pace_per_s = pace_per_s
        self._free: list[_Client] = []
        self._ends_s = 0.0

    def answered(self, client: _Client, since_s: float) -> None:
        now_s = time.perf_counter()
        if now_s < self._ends_s:
            self.latencies.append(now_s - since_s)
        if self._pace_per_s:
            self._free.append(client)
        elif now_s < self._ends_s:
            client.ask(now_s)

    async def run(self, port: int, window_s: float) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, client = await loop.create_connection(lambda: _Client(self), "127.0.0.1", port)
            self._free.append(client)
        began_s = time.perf_counter()
        self._ends_s = began_s + window_s
        if not self._pace_per_s:
            for client in self._free:
                client.ask(time.perf_counter())
            await asyncio.sleep(window_s)
            return
        due = 0
        while time.perf_counter() < self._ends_s:
            while self._free and (at_s := began_s + due / self._pace_per_s) < time.perf_counter():
                self._free.pop(0).ask(at_s)
                due += 1
            await asyncio.sleep(0.0005)


async def _replica() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Replica, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def _main(words: list[str]) -> None:
    if words == ["replica"]:
        uvloop.run(_replica())
        return
    _, port, path, window_s, pace_per_s = words
    load = _Load(path.encode(), int(pace_per_s))
    uvloop.run(load.run(int(port), float(window_s)))
    found = load.latencies
    parts = quantiles(found, n=100) if len(found) > 1 else [0.0] * 99
    sys.stdout.write(json.dumps([len(found), parts[49], parts[98]]))


if __name__ == "__main__":
    _main(sys.argv[1:])
