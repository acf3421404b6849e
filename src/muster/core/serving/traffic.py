"""The ways of requests: the services that are published, their replicas, and the load that proxies
tell."""

from bisect import bisect_left
from typing import Annotated

from msgspec import Meta

from muster.core.host_port import joined
from muster.core.owner import Role
from muster.core.views.base import View

LATENCY_BOUNDS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    60.0,
)
"""Upper bounds of the classes in which latencies are counted; a last class has no bound."""


_URL = r"^(?:https?://[A-Za-z0-9.:\[\]-]+)?\Z"


class Target(View):
    """A replica that gets requests.

    Args:
        route: its id.
        host, port: where it listens.
        revision: the number of its revision.
        weight: its part of new requests, relative to the other targets; 0 for one that only ends
            what it has begun.
    """

    route: str
    host: str
    port: int
    revision: int
    weight: int = 1

    @property
    def address(self) -> str:
        """Host and port as in a URL."""
        return joined(self.host, self.port)


class Identity(View):
    """The owner of a token, and its rights.

    Args:
        projects: those for which the token is good.
    """

    domain: str
    user: str
    projects: tuple[str, ...] = ()
    role: Role = Role.USER


class TrafficService(View):
    """A deployment, as those see it who send requests to its replicas.

    Args:
        id, name: of the deployment.
        host: the name of a host by which requests reach it too.
        domain, project, user: its owner.
        public: whether requests need no token.
        users, projects: of the owner's domain who may send requests, beside the owner and admins.
        affinity: the header whose value decides the replica.
        affinity_cookie: the cookie whose value does; whoever sends none is given one.
        drain_s: longest time that requests under way may take once their replica is withdrawn.
        holds: whether requests wait for a replica while there is none: its number follows load.
        secret: what requests to its replicas carry (``muster.core.serving.secret``); empty for
            whoever is to send none.
        targets: its replicas.
    """

    id: str
    name: str
    host: str | None = None
    domain: str
    project: str
    user: str
    public: bool = False
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    affinity: str | None = None
    affinity_cookie: str | None = None
    drain_s: float = 30.0
    holds: bool = False
    secret: str = ""
    targets: tuple[Target, ...] = ()

    def is_known_to(self, identity: Identity) -> bool:
        """Whether the owner of a token may know of the service: its owner, whom it is open to, and
        admins."""
        if self.public or identity.role is Role.ADMIN:
            return True
        if identity.domain != self.domain:
            return False
        owns = identity.user == self.user and self.project in identity.projects
        return (
            owns
            or identity.user in self.users
            or any(project in self.projects for project in identity.projects)
        )

    def admits(self, identity: Identity) -> bool:
        """Whether the owner of a token may send requests: who knows of the service, but not with a
        token that is good for looking only."""
        return self.public or (self.is_known_to(identity) and identity.role.may_send_requests)


class TrafficView(View):
    """All services at one moment; ``version`` grows with each change."""

    version: int
    services: tuple[TrafficService, ...] = ()


class RouteLoad(View):
    """The load of one replica, as a proxy saw it in an interval.

    Args:
        route: its id.
        in_flight: requests under way at the interval's end.
        requests: requests that ended in the interval.
        failures: those that ended without an answer, or with a status of 500 or more.
        latencies: how many ended within each of ``LATENCY_BOUNDS_S``, and beyond the last.
    """

    route: str
    in_flight: int = 0
    requests: int = 0
    failures: int = 0
    latencies: tuple[int, ...] = ()


class ServiceLoad(View):
    """The load of one deployment, as a proxy saw it in an interval.

    Args:
        service: the deployment's id.
        held: requests that wait for a replica at the interval's end.
        refused: requests in the interval that found no replica, or no room to wait.
        routes: by replica.
    """

    service: str
    held: int = 0
    refused: int = 0
    routes: tuple[RouteLoad, ...] = ()


class LoadReport(View):
    """The load that one proxy saw in an interval of ``seconds``; ``proxy`` names it, so that the
    next report takes the place of its requests under way. ``url`` is the proxy's own for clients,
    empty if it does not tell it."""

    proxy: str
    seconds: float
    url: Annotated[str, Meta(max_length=300, pattern=_URL)] = ""
    services: tuple[ServiceLoad, ...] = ()


def is_of_machine(host: str) -> bool:
    """Whether a host in a URL is an address, or the machine itself. No deployment may have it: it
    is where clients reach a proxy's deployments by their paths."""
    last = host.rpartition(".")[2]
    return host == "localhost" or last.isdecimal() or last.startswith("0x")


def latency_class(seconds: float) -> int:
    """The index of the class in which a latency is counted."""
    return bisect_left(LATENCY_BOUNDS_S, seconds)


def quantile_s(latencies: tuple[int, ...], part: float) -> float | None:
    """The bound below which this part of the latencies lies; None where there are none."""
    total = sum(latencies)
    if not total:
        return None
    seen = 0
    for bound, count in zip((*LATENCY_BOUNDS_S, LATENCY_BOUNDS_S[-1]), latencies, strict=False):
        seen += count
        if seen >= part * total:
            return bound
    return LATENCY_BOUNDS_S[-1]
