"""HAProxy's view of services: backends with servers, and a map from hosts and names to them.

A backend cannot be changed while HAProxy runs, but for its servers. So what is in its other lines
is in its name: a backend with other lines is another one, to which the map is turned over once
HAProxy has it.
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from muster.control.deployment.publishing.published import (
    Addresses,
    header_of,
    published,
    secret_of,
    sound,
)
from muster.control.deployment.publishing.settings import HaproxySettings
from muster.core.host_port import joined
from muster.core.serving.secret import SECRET_HEADER
from muster.core.serving.traffic import Target, TrafficService

PREFIX = "muster-"
"""Of all backends that are Muster's."""
MAX_WEIGHT = 256
DRAIN_S = 30.0
"""For servers of which nobody knows any more how long they may take."""
_SERVER = re.compile(
    r"^    server (?P<route>\S+) (?:(?P<four>[0-9.]+)|\[(?P<six>[0-9a-f:.]+)\]):[0-9]+ ",
    re.MULTILINE,
)
_SECTION = re.compile(r"^backend (?P<name>\S+)\n(?:[ \t].*\n)*", re.MULTILINE)
_SET_SECRET = f"http-request set-header {SECRET_HEADER} "
_FIRST_LINE = "# Written by Muster; whatever else is written here is lost.\n"


class Server(NamedTuple):
    """A replica, as HAProxy has it."""

    address: str
    port: int
    weight: int

    @property
    def at(self) -> str:
        return joined(self.address, self.port)


@dataclass(frozen=True)
class Backend:
    """A service, as HAProxy has it.

    Args:
        lines: all but the servers.
        servers: by the ids of their routes.
        drain_s: how long requests under way may take at a server that is taken away.
        service: what it was made of.
        hosts: the machines of its replicas; of some ``is_vague`` says that their addresses are not
            known, or may be former ones.
    """

    name: str
    lines: tuple[str, ...]
    servers: dict[str, Server]
    drain_s: float
    service: TrafficService
    hosts: frozenset[str]
    is_vague: bool

    @cached_property
    def takes_requests(self) -> bool:
        """Whether one of its servers is to take requests."""
        return any(server.weight for server in self.servers.values())

    @cached_property
    def text(self) -> str:
        """Its part of the file."""
        parts = [f"\nbackend {self.name}\n"]
        parts += [f"    {line}\n" for line in self.lines]
        parts += [
            f"    server {name} {server.at} weight {server.weight}\n"
            for name, server in self.servers.items()
        ]
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class Wished:
    """All that HAProxy should have: its backends by their names, and the backend of each host, and
    of each name as the first part of a path."""

    backends: dict[str, Backend]
    keys: dict[str, str]

    def part(self, names: Collection[str]) -> "Wished":
        """These backends alone, as far as they are among them."""
        backends = {name: self.backends[name] for name in names if name in self.backends}
        return Wished(backends, {key: name for key, name in self.keys.items() if name in backends})

    def config(self) -> str:
        """The text of the file."""
        return "".join([_FIRST_LINE, *(backend.text for backend in self.backends.values())])

    def config_with_former(self, written: str) -> str:
        """The text of the file, and of a file that was written before the backends that are not
        wished any more."""
        sections = (found for found in _SECTION.finditer(written))
        former = [found[0] for found in sections if found["name"] not in self.backends]
        return self.config() + "".join(f"\n{text.rstrip()}\n" for text in former)

    def map(self) -> str:
        """The text of the map."""
        return "".join(f"{key} {name}\n" for key, name in self.keys.items())


NOTHING = Wished({}, {})


def wished(
    services: Sequence[TrafficService],
    settings: HaproxySettings,
    addresses: Addresses,
    before: Wished = NOTHING,
) -> Wished:
    """All that HAProxy should have for these services.

    Args:
        before: the former answer, of which the backends stay whose services are the same: a change
            of one is no work over all.
    """
    made = {each.service.id: each for each in before.backends.values() if not each.is_vague}
    chosen = list(published(services, everything=settings.all))
    same = {each.id: made[each.id] for each in chosen if _is_same(made.get(each.id), each)}
    others = [each for each in chosen if each.id not in same]
    hosts = {target.host for each in others for target in sound(each.targets)}
    addresses.follow(hosts.union(*(each.hosts for each in same.values())))
    backends, keys = {}, {}
    for service in chosen:
        backend = same.get(service.id) or _backend(service, settings, addresses)
        backends[backend.name] = backend
        keys[f"/{service.name}"] = backend.name
        if service.host is not None:
            keys[service.host] = backend.name
    return Wished(backends, keys)


def _is_same(backend: Backend | None, service: TrafficService) -> bool:
    return backend is not None and backend.service is service


def _backend(service: TrafficService, settings: HaproxySettings, addresses: Addresses) -> Backend:
    lines = _lines(service, settings)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:6]
    targets = list(sound(service.targets))
    found = [(target, addresses.of(target)) for target in targets]
    there = [(target, address) for target, address in found if address is not None]
    weights = _weights([target for target, _ in there])
    if not any(weights) and any(target.weight > 0 for target in targets):
        # Those that are to take requests are not found yet: until then the others take them.
        weights = [1] * len(there)
    servers = {
        target.route: Server(address, target.port, weight)
        for (target, address), weight in zip(there, weights, strict=True)
    }
    hosts = frozenset(target.host for target in targets)
    return Backend(
        f"{PREFIX}{service.name}-{digest}",
        lines,
        servers,
        service.drain_s,
        service,
        hosts,
        is_vague=not addresses.knows(hosts),
    )


def addresses_in(config: str) -> dict[str, str]:
    """The addresses of the servers in a text of ``Wished.config``, by their routes; of another text
    those that can be read."""
    return {found["route"]: found["four"] or found["six"] for found in _SERVER.finditer(config)}


def _lines(service: TrafficService, settings: HaproxySettings) -> tuple[str, ...]:
    balance: tuple[str, ...] = (f"balance {settings.balance}",)
    if (header := header_of(service)) is not None:
        balance = (f"balance hdr({header})", "hash-type consistent")
    lines = ("mode http", *balance, "option redispatch 1", "retries 3")
    secret = secret_of(service) if settings.secrets else None
    return lines if secret is None else (*lines, f"{_SET_SECRET}{secret}")


def has_secrets(config: str) -> bool:
    """Whether a text of ``Wished.config`` is not for everybody to read."""
    return _SET_SECRET in config


def _weights(targets: list[Target]) -> list[int]:
    """Weights that HAProxy takes, in the same proportions; one that is not 0 stays so."""
    largest = max((target.weight for target in targets), default=0)
    if largest <= MAX_WEIGHT:
        return [max(target.weight, 0) for target in targets]
    return [
        max(1, target.weight * MAX_WEIGHT // largest) if target.weight > 0 else 0
        for target in targets
    ]
