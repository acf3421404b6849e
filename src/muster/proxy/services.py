"""The services as the proxy works with them: their replicas, and the requests that wait for one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.core.host_port import joined
from muster.core.serving.traffic import (
    LATENCY_BOUNDS_S,
    RouteLoad,
    ServiceLoad,
    Target,
    TrafficService,
    TrafficView,
    is_of_machine,
    latency_class,
)
from muster.proxy.balance import Share, next_by_weight, of_session

if TYPE_CHECKING:
    from muster.proxy.exchange import Exchange
    from muster.proxy.replica import ReplicaConnection

_CLASSES = len(LATENCY_BOUNDS_S) + 1
MAX_SESSION_BYTES = 1024
"""How much of the value that decides the replica is looked at."""


@dataclass(slots=True, eq=False)
class ProxiedReplica(Share):
    """A replica with its connections and requests.

    Args:
        idle: connections that wait for a request, the one used last at the end.
        under_way: requests that it has, or that wait for a connection to it.
        aside_until_s: until when it gets a request only if no other replica can.
        cut_at_s: when its last requests are cut; None while it gets requests.
    """

    host: str = ""
    port: int = 0
    idle: list[ReplicaConnection] = field(default_factory=list)
    under_way: set[Exchange] = field(default_factory=set)
    aside_until_s: float = 0.0
    cut_at_s: float | None = None
    requests: int = 0
    failures: int = 0
    latencies: list[int] = field(default_factory=lambda: [0] * _CLASSES)

    @property
    def address(self) -> bytes:
        return joined(self.host, self.port).encode()

    def began(self, exchange: Exchange) -> None:
        self.under_way.add(exchange)
        self.in_flight += 1

    def left(self, exchange: Exchange) -> None:
        """Forget a request that never reached the replica."""
        self.under_way.discard(exchange)
        self.in_flight = len(self.under_way)

    def ended(self, exchange: Exchange, seconds: float, *, failed: bool) -> None:
        self.left(exchange)
        self.requests += 1
        self.failures += failed
        self.latencies[latency_class(seconds)] += 1

    def withdraw(self, cut_at_s: float) -> None:
        """Give it no request any more."""
        self.weight = 0
        if self.cut_at_s is None:
            self.cut_at_s = cut_at_s
        self.forget_idle()

    def forget_idle(self) -> None:
        """Close its connections without a request."""
        for connection in self.idle:
            connection.leave()
        self.idle.clear()

    def take_load(self) -> RouteLoad:
        """The load since the last call."""
        load = RouteLoad(
            route=self.route,
            in_flight=self.in_flight,
            requests=self.requests,
            failures=self.failures,
            latencies=tuple(self.latencies) if self.requests else (),
        )
        self.requests, self.failures, self.latencies = 0, 0, [0] * _CLASSES
        return load


class LiveService:
    """A service, its replicas, and the requests that wait for one, in their order."""

    def __init__(self, service: TrafficService) -> None:
        self.service = service
        self.waiting: dict[Exchange, None] = {}
        self.releasing = False
        self.refused = 0
        self.gone = False
        self._replicas: dict[tuple[str, str, int], ProxiedReplica] = {}
        self._open: list[ProxiedReplica] = []

    @property
    def has_replicas(self) -> bool:
        """Whether there is a replica that gets new requests."""
        return bool(self._open)

    @property
    def open(self) -> Sequence[ProxiedReplica]:
        """The replicas that get new requests."""
        return self._open

    @property
    def affinity(self) -> bytes | None:
        """The header whose value decides the replica, in lower case."""
        name = self.service.affinity
        return name.lower().encode("latin-1", "replace") if name else None

    @property
    def cookie(self) -> bytes | None:
        """The name of the cookie whose value decides the replica."""
        name = self.service.affinity_cookie
        return name.encode("latin-1", "replace") if name else None

    @property
    def replicas(self) -> Iterable[ProxiedReplica]:
        """All replicas, those included that only end what they have begun."""
        return self._replicas.values()

    def update(self, service: TrafficService | None, now_s: float) -> None:
        """Take the service as it is now; None once it is gone."""
        before = [(each, each.weight) for each in self._open]
        self.gone = service is None
        if service is not None:
            self.service = service
        targets = {} if service is None else {_key(each): each for each in service.targets}
        cut_at_s = now_s + self.service.drain_s
        for key, target in targets.items():
            replica = self._replicas.get(key)
            if replica is None:
                replica = ProxiedReplica(target.route, 0, host=target.host, port=target.port)
                self._replicas[key] = replica
            if target.weight > 0:
                replica.weight, replica.cut_at_s = target.weight, None
            else:
                replica.withdraw(cut_at_s)
        for key, replica in [*self._replicas.items()]:
            if key not in targets:
                replica.withdraw(cut_at_s)
                if not replica.under_way and not replica.requests:
                    del self._replicas[key]
        self._open = [each for each in self._replicas.values() if each.weight > 0]
        if [(each, each.weight) for each in self._open] != before:
            for replica in self._open:
                replica.credit = 0  # it counts in the former weights, which may be far larger

    def pick(
        self, session: bytes | None, tried: Collection[ProxiedReplica], now_s: float
    ) -> ProxiedReplica | None:
        """The replica for a request that those in ``tried`` could not serve; None if there is none
        left."""
        choice = self._open
        if tried or any(each.aside_until_s > now_s for each in choice):
            left = [each for each in choice if each not in tried]
            choice = [each for each in left if each.aside_until_s <= now_s] or left
        if session:
            return of_session(session[:MAX_SESSION_BYTES], choice)
        return next_by_weight(choice)

    def forget_drained(self) -> None:
        """Drop withdrawn replicas that have ended all they had begun, and whose last requests have
        been reported."""
        for key, replica in [*self._replicas.items()]:
            if replica.weight == 0 and not replica.under_way and not replica.requests:
                del self._replicas[key]

    def take_load(self) -> ServiceLoad:
        """The load since the last call; replicas without requests are left out."""
        refused, self.refused = self.refused, 0
        return ServiceLoad(
            service=self.service.id,
            held=len(self.waiting),
            refused=refused,
            routes=tuple(
                each.take_load()
                for each in self._replicas.values()
                if each.in_flight or each.requests
            ),
        )


@dataclass(frozen=True, slots=True)
class NamedService:
    """A service that a request names.

    Args:
        path: path and query, as the replica gets them.
        prefix: what was taken off the path.
        whole: path and query with which the service is reached, where the request's path is its
            name without a slash at the end, below which relative links lead nowhere; else None.
    """

    live: LiveService
    path: bytes
    prefix: bytes
    whole: bytes | None = None


class ProxiedServices:
    """All services, by their names and hosts; also those that are gone and end what they have
    begun.

    Args:
        own: hosts of the proxy itself, by which requests name services by their paths.
    """

    def __init__(self, own: Collection[str] = ()) -> None:
        self._own = own
        self.version: int | None = None
        self._by_id: dict[str, LiveService] = {}
        self._by_name: dict[str, LiveService] = {}
        self._by_host: dict[str, LiveService] = {}

    def __iter__(self) -> Iterator[LiveService]:
        return iter(self._by_id.values())

    def set(self, view: TrafficView, now_s: float) -> None:
        """Take the services as they are now. Of two with the same name or host the first counts."""
        self.version = view.version
        self._by_name, self._by_host = {}, {}
        there = set()
        for service in view.services:
            live = self._by_id.get(service.id)
            if live is None:
                live = self._by_id[service.id] = LiveService(service)
            live.update(service, now_s)
            there.add(service.id)
            self._by_name.setdefault(service.name, live)
            host = (service.host or "").lower()
            if host and host not in self._own and not is_of_machine(host):
                self._by_host.setdefault(host, live)
        for id, live in self._by_id.items():
            if id not in there:
                live.update(None, now_s)

    def find(self, hostname: str, target: bytes) -> NamedService | None:
        """The service that a request means: by its host, or else by the first part of its path."""
        if (live := self._by_host.get(hostname)) is not None:
            return NamedService(live, target, b"")
        path, mark, query = target.partition(b"?")
        name, slash, rest = path[1:].partition(b"/")
        live = self._by_name.get(name.decode("latin-1"))
        if live is None:
            return None
        path = b"/" + rest + mark + query
        return NamedService(live, path, b"/" + name, None if slash else b"/" + name + path)

    def forget_gone(self) -> None:
        """Drop what has ended."""
        for id, live in [*self._by_id.items()]:
            live.forget_drained()
            if live.gone and not live.waiting and not any(live.replicas):
                del self._by_id[id]


def _key(target: Target) -> tuple[str, str, int]:
    return target.route, target.host, target.port
