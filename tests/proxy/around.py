"""A proxy between real clients and real replicas, in the loop of the test."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field

from muster.core.owner import Role
from muster.core.serving.traffic import Identity, Target, TrafficService, TrafficView
from muster.proxy.access import Authorise
from muster.proxy.limits import Limits
from muster.proxy.proxy import Proxy

ANN = "a" * 43
"""Ann's token; she owns the services."""
EVE = "e" * 43
LOOKER = "l" * 43
ADMIN = "r" * 43

CALLERS = {
    ANN: Identity(domain="d", user="ann", projects=("p",)),
    EVE: Identity(domain="d", user="eve", projects=("q",)),
    LOOKER: Identity(domain="d", user="ann", projects=("p",), role=Role.VIEWER),
    ADMIN: Identity(domain="other", user="root", role=Role.ADMIN),
}

Respond = Callable[["Request", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Request:
    """A request as a replica got it; names of headers in lower case."""

    line: str
    headers: list[tuple[str, str]]
    reader: asyncio.StreamReader
    body: bytes = b""

    def __getitem__(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name]
        assert len(values) < 2, f"{name} came twice"
        return values[0] if values else None


@dataclass
class Backend:
    """A replica. ``respond`` writes the answers; it raises EOFError to end the connection."""

    respond: Respond
    reads_body: bool = True
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator["Backend"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in [*self.writers]:
                writer.transport.abort()
            await asyncio.sleep(0.01)

    def target(self, route: str = "r1", weight: int = 1) -> Target:
        return Target(route=route, host="127.0.0.1", port=self.port, revision=1, weight=weight)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        with suppress(EOFError, ConnectionError):
            while True:
                request = await read_request(reader, reads_body=self.reads_body)
                self.requests.append(request)
                await self.respond(request, writer)
        self.writers.discard(writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def read_request(reader: asyncio.StreamReader, *, reads_body: bool) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.strip().split("\r\n")
    headers = [(name.lower(), value) for name, _, value in (each.partition(": ") for each in lines)]
    request = Request(line, headers, reader)
    if not reads_body:
        return request
    if request["transfer-encoding"]:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            request.body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    elif length := request["content-length"]:
        request.body = await reader.readexactly(int(length))
    return request


def saying(text: str) -> Respond:
    """Answers with the text."""

    async def respond(_request: Request, writer: asyncio.StreamWriter) -> None:
        body = text.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    return respond


async def ends_at_once(_request: Request, _writer: asyncio.StreamWriter) -> None:
    raise EOFError


async def authorise(token: str) -> Identity | None:
    return CALLERS.get(token)


def service(*targets: Target, name: str = "web", public: bool = True, holds: bool = False,
            affinity: str | None = None, cookie: str | None = None, host: str | None = None,
            drain_s: float = 30.0,
            users: tuple[str, ...] = (), projects: tuple[str, ...] = (),
            secret: str = "") -> TrafficService:  # fmt: skip
    return TrafficService(
        id=f"id-{name}",
        name=name,
        host=host,
        domain="d",
        project="p",
        user="ann",
        public=public,
        users=users,
        projects=projects,
        affinity=affinity,
        affinity_cookie=cookie,
        drain_s=drain_s,
        holds=holds,
        secret=secret,
        targets=targets,
    )


class Served:
    """A proxy that serves, and ways to ask it."""

    def __init__(self, proxy: Proxy, port: int) -> None:
        self.proxy = proxy
        self.port = port
        self._version = 0

    def set(self, *services: TrafficService) -> None:
        self._version += 1
        self.proxy.set_table(TrafficView(version=self._version, services=services))

    async def raw(self, data: bytes) -> bytes:
        """All that comes back for these bytes until the proxy ends the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            async with asyncio.timeout(10):
                return await reader.read()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def get(
        self, path: str, *headers: str, method: str = "GET", body: bytes = b""
    ) -> "Reply":
        lines = [f"{method} {path} HTTP/1.1", *headers, "Connection: close"]
        if not any(each.lower().startswith("host:") for each in headers):
            lines.append("Host: proxy")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return Reply.of(await self.raw("\r\n".join([*lines, "", ""]).encode("latin-1") + body))


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @staticmethod
    def of(data: bytes) -> "Reply":
        head, _, body = data.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        split = (each.partition(": ") for each in lines)
        headers = {name.lower(): value for name, _, value in split}
        if headers.get("transfer-encoding") == "chunked":
            rest, body = body, b""
            while rest:
                size, _, rest = rest.partition(b"\r\n")
                body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        return Reply(int(line.split(" ")[1]), headers, body)


def serving(
    authorise: Authorise = authorise, **limits: float
) -> AbstractAsyncContextManager[Served]:
    """A proxy with other limits than the usual ones."""
    return _serving(None, authorise, limits)


def serving_tls(tls: ssl.SSLContext, **limits: float) -> AbstractAsyncContextManager[Served]:
    """The same, whose clients come by TLS."""
    return _serving(tls, authorise, limits)


@asynccontextmanager
async def _serving(
    tls: ssl.SSLContext | None, authorise: Authorise, limits: Mapping[str, float]
) -> AsyncIterator[Served]:
    proxy = Proxy("test", authorise, limits=Limits(**{"look_s": 0.02, "stop_s": 0.5, **limits}))  # type: ignore[arg-type]
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    async with proxy.serving(listener, tls):
        yield Served(proxy, listener.getsockname()[1])
    await asyncio.sleep(0)
