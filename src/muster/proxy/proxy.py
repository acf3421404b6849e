"""The proxy, put together: a table of services in, connections of clients, a report of load out."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

from muster.core.serving.traffic import LoadReport, TrafficView
from muster.proxy.access import Access, Authorise
from muster.proxy.answers import Refused
from muster.proxy.connections import Connections
from muster.proxy.front import Front
from muster.proxy.heads import RequestHead
from muster.proxy.hold import HeldRequests
from muster.proxy.limits import Limits
from muster.proxy.services import LiveService, ProxiedServices
from muster.proxy.tls_server import TlsServer

log = logging.getLogger(__name__)
_access = logging.getLogger("muster.proxy.access")

TELL_EVERY_S = 60.0
"""How often the log tells of connections that were too many."""


class Proxy:
    """
    Args:
        name: under which it reports its load.
        url: its own, for clients.
        authorise: tells whose a token is.
        secure: whether clients come by TLS.
        logs_requests: whether each request makes a line in the log.
        waited_for: is set when a service without a replica gets its first waiting request.
        stopping: whether connections end with their present answer.
    """

    def __init__(
        self,
        name: str,
        authorise: Authorise,
        *,
        url: str = "",
        limits: Limits | None = None,
        secure: bool = False,
        logs_requests: bool = False,
    ) -> None:
        self.limits = limits or Limits()
        self.services = ProxiedServices(
            {urlsplit(url).hostname or "", socket.gethostname().lower()}
        )
        self.access = Access(authorise, self.limits)
        self.connections = Connections(
            self.limits.connections, self.limits.of_one_address, self._count_too_many
        )
        self.waited_for = asyncio.Event()
        self.hold = HeldRequests(self.limits, self.waited_for.set)
        self.scheme = b"https" if secure else b"http"
        self.stopping = False
        self._name = name
        self._url = url
        self._logs_requests = logs_requests
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._taken_at_s = self.now()
        self._fronts: set[Front] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._too_many = 0

    # -- from and to the controller --------------------------------------------------------------

    def set_table(self, view: TrafficView) -> None:
        """Take the services as they are now. Requests that waited for a replica go to it."""
        self.services.set(view, self.now())
        for live in self.services:
            self.hold.release(live)

    def take_load(self) -> LoadReport:
        """The load since the last call."""
        now_s = self.now()
        seconds, self._taken_at_s = now_s - self._taken_at_s, now_s
        loads = tuple(live.take_load() for live in self.services)
        self.services.forget_gone()
        return LoadReport(proxy=self._name, url=self._url, seconds=seconds, services=loads)

    # -- connections -----------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(
        self, listener: socket.socket, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[None]:
        """Serve clients on a socket that listens already. At the end requests under way get
        ``Limits.stop_s``."""
        make = partial(Front, self)
        server: asyncio.Server | TlsServer
        if tls is None:
            server = await self._loop.create_server(make, sock=listener, backlog=1024)
        else:
            server = TlsServer(listener, tls, self.connections, make, self.limits.handshake_s)
        looking = asyncio.create_task(self._look(), name="look")
        try:
            yield
        finally:
            server.close()
            await self._stop()
            looking.cancel()

    async def _stop(self) -> None:
        self.stopping = True
        for live in self.services:
            self.hold.refuse_all(live, Refused(503, "the proxy ends", retry_s=1))
            for replica in live.replicas:
                replica.forget_idle()
        for front in [*self._fronts]:
            front.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.stop_s):
                await self._empty.wait()
        for front in [*self._fronts]:
            front.abort()
        await asyncio.sleep(0)
        for task in [*self._tasks]:
            task.cancel()

    async def _look(self) -> None:
        """End, now and then, whatever has taken too long."""
        while True:
            await asyncio.sleep(self.limits.look_s)
            now_s = self.now()
            for front in [*self._fronts]:
                self._guarded(front.look, now_s)
            for live in [*self.services]:
                self._guarded(self._look_at, live, now_s)

    def _look_at(self, live: LiveService, now_s: float) -> None:
        self.hold.look(live, now_s)
        for replica in live.replicas:
            if replica.cut_at_s is not None and now_s > replica.cut_at_s:
                for exchange in [*replica.under_way]:
                    exchange.cut()
            while replica.idle and now_s - replica.idle[0].idle_since_s > self.limits.pooled_s:
                replica.idle.pop(0).leave()

    def _guarded(self, look: Callable[..., None], *args: object) -> None:
        """Look at one; a defect there must not lift the limits of all others."""
        try:
            look(*args)
        except Exception:
            log.exception("a limit was not kept")

    # -- of the parts ----------------------------------------------------------------------------

    def opened(self, front: Front) -> None:
        self._fronts.add(front)
        self._empty.clear()
        self.connections.opened(front)

    def closed(self, front: Front) -> None:
        self._fronts.discard(front)
        if not self._fronts:
            self._empty.set()
        self.connections.closed(front)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Let something run that takes time; it ends by itself, and its limits are its own."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def told(self, head: RequestHead, address: str, status: int) -> None:
        """Log a request that has ended, without its query, which may hold secrets."""
        if self._logs_requests:
            path = head.target.partition(b"?")[0].decode("latin-1")[:200]
            _access.info("%s %s %s %s", address, head.method.decode(), path, status)

    def _count_too_many(self) -> None:
        if not self._too_many:
            self._loop.call_later(TELL_EVERY_S, self._tell_too_many)
        self._too_many += 1

    def _tell_too_many(self) -> None:
        log.warning("%d connections too many in the last %.0f s", self._too_many, TELL_EVERY_S)
        self._too_many = 0
