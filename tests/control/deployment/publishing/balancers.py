"""Real HAProxys and etcds for tests, replicas that answer, and clients that never stop asking."""

import asyncio
import base64
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from demo import haproxy
from demo.haproxy import free_port

from muster.control.deployment.publishing.runtime_api import Running, RuntimeApi
from muster.control.deployment.publishing.settings import HaproxySettings
from muster.control.deployment.publishing.sink import SinkError
from muster.core.serving.traffic import Target, TrafficService
from muster.wire.transport import ServerTls

HAPROXY = haproxy.PROGRAM
ETCD = shutil.which("etcd")
needs_haproxy = pytest.mark.skipif(
    HAPROXY is None, reason="there is no haproxy: apt-get install haproxy, or run `make setup`"
)
needs_etcd = pytest.mark.skipif(
    ETCD is None, reason="there is no etcd: apt-get install etcd-server, or run `make setup`"
)


def service(name: str, *targets: Target, drain_s: float = 5.0, **more: object) -> TrafficService:
    given = {"public": True, **more}
    return TrafficService(
        id=f"dep-{name}",
        name=name,
        domain="default",
        project="default",
        user="ann",
        drain_s=drain_s,
        targets=targets,
        **given,  # type: ignore[arg-type] # of many types
    )


class Haproxy(haproxy.Haproxy):
    """An HAProxy that tells what it has."""

    @property
    def pid(self) -> int:
        """The id of its master process."""
        assert self._process is not None
        return self._process.pid

    def settings(self, **more: object) -> HaproxySettings:
        return HaproxySettings.model_validate(self.keys | more)

    def servers(self) -> dict[str, Running]:
        """The servers that it has, by the routes."""
        with RuntimeApi(f"{self.place}/admin.sock") as api:
            return {route: each for (_, route), each in api.servers().items()}

    def leads(self, path: str) -> bool:
        """Whether it knows a service for requests of this path."""
        with suppress(SinkError), RuntimeApi(f"{self.place}/admin.sock") as api:
            return path in api.ask(f"show map {self.place}/muster.map")
        return False

    def has_its_file(self) -> bool:
        """Whether it has the backends of the file."""
        lines = (self.place / "muster.cfg").read_text().splitlines()
        with RuntimeApi(f"{self.place}/admin.sock") as api:
            return api.backends() == {line.split()[1] for line in lines if line[:7] == "backend"}


def has(balancer: Haproxy, routes: Sequence[str]) -> bool:
    """Whether it has these servers, all of which take requests."""
    try:
        servers = balancer.servers()
    except SinkError:
        return False
    return set(servers) == set(routes) and not any(each.admin for each in servers.values())


@dataclass
class Replica:
    """A server that answers each request with its name after a moment."""

    name: str
    pause_s: float = 0.005
    port: int = 0
    answered: int = 0
    under_way: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End at once, with all connections."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def target(self, weight: int = 1) -> Target:
        return Target(route=self.name, host="127.0.0.1", port=self.port, revision=1, weight=weight)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._answer(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.under_way += 1
                await asyncio.sleep(self.pause_s)
                self.under_way -= 1
                self.answered += 1
                body = self.name.encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@dataclass
class Load:
    """Clients that ask again and again; ``by`` counts the answers by the replica."""

    port: int
    by: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def running(self, *paths: str, clients: int = 12) -> AsyncIterator["Load"]:
        # Clients are not cancelled: a connection that is being opened then would be left behind.
        stop = asyncio.Event()
        tasks = [
            asyncio.create_task(self._ask(paths[number % len(paths)], number % 3 == 0, stop))
            for number in range(clients)
        ]
        try:
            yield self
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    async def _ask(self, path: str, anew: bool, stop: asyncio.Event) -> None:
        """Ask for a path until it is to stop, on a connection that is kept or one for each
        request."""
        while not stop.is_set():
            writer: asyncio.StreamWriter | None = None
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                while await self._exchange(path, reader, writer) and not (anew or stop.is_set()):
                    pass
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
                self.failures.append(f"{path}: {error!r}")
                await asyncio.sleep(0.02)
            finally:
                if writer is not None:
                    writer.close()

    async def _exchange(
        self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Ask once; whether the connection may be used again."""
        writer.write(f"GET {path} HTTP/1.1\r\nHost: any\r\n\r\n".encode())
        async with asyncio.timeout(10):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if not head.startswith("http/1.1 200"):
                raise ValueError(head[:20])
            length = int(head.partition("content-length: ")[2].partition("\r")[0])
            self.by[(await reader.readexactly(length)).decode()] += 1
        return "connection: close" not in head


class Etcd:
    """An etcd of one member."""

    def __init__(self, place: Path, tls: ServerTls | None = None) -> None:
        self.place = place
        self.port = free_port()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._peer = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._tls: list[str] = []
        if tls is not None:
            self._tls = ["--cert-file", str(tls.certificate), "--key-file", str(tls.key)]

    def start(self) -> None:
        assert ETCD is not None
        words = ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        words += ["--listen-peer-urls", self._peer, "--initial-advertise-peer-urls", self._peer]
        words += ["--initial-cluster", f"default={self._peer}", "--data-dir", f"{self.place}/etcd"]
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen([ETCD, *words, *self._tls], stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def ask(etcd: Etcd, path: str, **request: Any) -> dict[str, Any]:
    answer = httpx.post(f"{etcd.url}/v3/{path}", json=request, trust_env=False)
    answer.raise_for_status()
    told: dict[str, Any] = answer.json()
    return told


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def keys(etcd: Etcd) -> dict[str, Any]:
    """The values of all keys; none while etcd is away."""
    try:
        rows = ask(etcd, "kv/range", key=coded("/"), range_end=coded("0")).get("kvs", [])
    except httpx.HTTPError:
        return {}
    decoded = [[base64.b64decode(row[part]).decode() for part in ("key", "value")] for row in rows]
    return {key: json.loads(value) for key, value in decoded}
