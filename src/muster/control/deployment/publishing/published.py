"""The services that balancers outside Muster may serve, checked before their words get into any
configuration."""

import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address

from muster.core.serving.traffic import Service, Target
from muster.core.text import NAME

RESOLVE_S = 1.0
"""How long the name of a replica's machine is looked up before the replica is left out."""
UNKNOWN_S = 10.0
"""How long a name that was not found is not looked up again."""
_NAME = re.compile(NAME)
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_MACHINE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?|::[0-9a-f:]{0,40}")
_HEADER = re.compile(r"[A-Za-z0-9_-]{1,100}")


def published(services: Sequence[Service], *, everything: bool) -> Iterator[Service]:
    """The services whose words are safe, each name and each host once: the oldest has it.

    Args:
        everything: whether those are among them that ask for a token, which no balancer outside
            Muster knows.
    """
    taken: set[str] = set()
    for service in sorted(services, key=lambda each: each.id):
        words = _words(service)
        if (
            (service.public or everything)
            and _NAME.fullmatch(service.name)
            and (service.host is None or _HOST.fullmatch(service.host))
            and taken.isdisjoint(words)
        ):
            taken.update(words)
            yield service


def _words(service: Service) -> list[str]:
    """The words by which requests name a service."""
    return [f"/{service.name}"] + ([] if service.host is None else [service.host])


def sound(targets: Iterable[Target]) -> Iterator[Target]:
    """The replicas whose words are safe."""
    for target in targets:
        if (
            _NAME.fullmatch(target.route)
            and _MACHINE.fullmatch(target.host)
            and 0 < target.port < 65536
        ):
            yield target


def header_of(service: Service) -> str | None:
    """The header that decides the replica, if its name can be put into a configuration."""
    if service.affinity is None or _HEADER.fullmatch(service.affinity) is None:
        return None
    return service.affinity


class Addresses:
    """The addresses of machines, by their names. A name is looked up once while replicas are on
    its machine, beside the thread that asks, because nothing ends a look-up that hangs."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._unknown: dict[str, float] = {}

    def of(self, host: str) -> str | None:
        """The IP address of a machine; None if it is not known for now."""
        known = self._known.get(host)
        if known is not None:
            return known
        try:
            self._known[host] = str(ip_address(host))
        except ValueError:
            if time.monotonic() < self._unknown.get(host, 0.0):
                return None
            thread = threading.Thread(target=self._look_up, args=(host,), daemon=True)
            thread.start()
            thread.join(RESOLVE_S)
            if host not in self._known:
                self._unknown[host] = time.monotonic() + UNKNOWN_S
        return self._known.get(host)

    def keep(self, hosts: set[str]) -> None:
        """Forget all machines but these."""
        for known in (self._known, self._unknown):
            for host in set(known) - hosts:
                del known[host]

    def _look_up(self, host: str) -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        self._known[host] = str(found[0][4][0])
