"""HAProxy's view of services: backends with servers, and a map from hosts and names to them.

A backend cannot be changed while HAProxy runs, but for its servers. So what is in its other lines
is in its name: a backend with other lines is another one, to which the map is turned over once
HAProxy has it.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from muster.control.deployment.publishing.published import (
    Addresses,
    header_of,
    published,
    sound,
)
from muster.control.deployment.publishing.settings import HaproxySettings
from muster.core.serving.traffic import Service, Target

PREFIX = "muster-"
"""Of all backends that are Muster's."""
MAX_WEIGHT = 256
DRAIN_S = 30.0
"""For servers of which nobody knows any more how long they may take."""
_SERVER = re.compile(
    r"^    server (?P<route>[A-Za-z0-9-]+) (?:(?P<four>[0-9.]+)|\[(?P<six>[0-9a-f:]+)\]):[0-9]+ ",
    re.MULTILINE,
)
_FIRST_LINE = "# Written by Muster; whatever else is written here is lost.\n"


class Server(NamedTuple):
    """A replica, as HAProxy has it."""

    address: str
    port: int
    weight: int

    @property
    def at(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Backend:
    """A service, as HAProxy has it.

    Args:
        lines: all but the servers.
        servers: by the ids of their routes.
        drain_s: how long requests under way may take at a server that is taken away.
    """

    name: str
    lines: tuple[str, ...]
    servers: dict[str, Server]
    drain_s: float


@dataclass(frozen=True, slots=True)
class Wished:
    """All that HAProxy should have: its backends by their names, and the backend of each host, and
    of each name as the first part of a path."""

    backends: dict[str, Backend]
    keys: dict[str, str]

    def config(self) -> str:
        """The text of the file."""
        parts = [_FIRST_LINE]
        for backend in self.backends.values():
            parts.append(f"\nbackend {backend.name}\n")
            parts += [f"    {line}\n" for line in backend.lines]
            parts += [
                f"    server {name} {server.at} weight {server.weight}\n"
                for name, server in backend.servers.items()
            ]
        return "".join(parts)

    def map(self) -> str:
        """The text of the map."""
        return "".join(f"{key} {name}\n" for key, name in self.keys.items())


def wished(services: Sequence[Service], settings: HaproxySettings, addresses: Addresses) -> Wished:
    """All that HAProxy should have for these services."""
    backends, keys = {}, {}
    addresses.follow({target.host for service in services for target in sound(service.targets)})
    for service in published(services, everything=settings.all):
        lines = _lines(service, settings)
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:6]
        name = f"{PREFIX}{service.name}-{digest}"
        targets = list(sound(service.targets))
        servers = {}
        for target, weight in zip(targets, _weights(targets), strict=True):
            address = addresses.of(target)
            if address is not None:
                servers[target.route] = Server(address, target.port, weight)
        backends[name] = Backend(name, lines, servers, service.drain_s)
        keys[f"/{service.name}"] = name
        if service.host is not None:
            keys[service.host] = name
    return Wished(backends, keys)


def addresses_in(config: str) -> dict[str, str]:
    """The addresses of the servers in a text of ``Wished.config``, by their routes; of another text
    those that can be read."""
    return {found["route"]: found["four"] or found["six"] for found in _SERVER.finditer(config)}


def _lines(service: Service, settings: HaproxySettings) -> tuple[str, ...]:
    balance: tuple[str, ...] = (f"balance {settings.balance}",)
    if (header := header_of(service)) is not None:
        balance = (f"balance hdr({header})", "hash-type consistent")
    return ("mode http", *balance, "option redispatch 1", "retries 3")


def _weights(targets: list[Target]) -> list[int]:
    """Weights that HAProxy takes, in the same proportions; one that is not 0 stays so."""
    largest = max((target.weight for target in targets), default=0)
    if largest <= MAX_WEIGHT:
        return [max(target.weight, 0) for target in targets]
    return [
        max(1, target.weight * MAX_WEIGHT // largest) if target.weight > 0 else 0
        for target in targets
    ]
