"""The services that balancers outside Muster may serve, checked before their words get into any
configuration."""

import re
import socket
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread

from muster.core.serving.traffic import Target, TrafficService
from muster.core.text import NAME

RESOLVE_S = 1.0
"""How long the names of replicas' machines are waited for, all together."""
UNKNOWN_S = 10.0
"""How long a name that was not found is not looked up again."""
LOOK_UPS = 32
"""How many names are looked up at once: each look-up may hang for long."""
_NAME = re.compile(NAME)
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_MACHINE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?|::[0-9a-f:]{0,40}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,100}")
_HEADER = re.compile(r"[A-Za-z0-9_-]{1,100}")


def published(services: Sequence[TrafficService], *, everything: bool) -> Iterator[TrafficService]:
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


def _words(service: TrafficService) -> list[str]:
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


def header_of(service: TrafficService) -> str | None:
    """The header that decides the replica, if its name can be put into a configuration."""
    if service.affinity is None or _HEADER.fullmatch(service.affinity) is None:
        return None
    return service.affinity


def secret_of(service: TrafficService) -> str | None:
    """The secret that its requests carry, if it can be put into a configuration."""
    return service.secret if _SECRET.fullmatch(service.secret) else None


class Addresses:
    """The addresses of machines, by their names. A name is looked up once while replicas are on
    its machine, beside the thread that asks, because nothing ends a look-up that hangs.

    Args:
        former: the addresses that replicas had before, by their routes: one whose machine's name is
            not found, as in an outage of the name server, stays where it was.
    """

    def __init__(self, former: Mapping[str, str]) -> None:
        self._former = former
        self._known: dict[str, str] = {}
        self._unknown: dict[str, float] = {}  # when they may be looked up again
        self._asked: set[str] = set()  # they wait for a look-up, or have one
        self._waiting: deque[str] = deque()
        self._threads: list[Thread] = []

    def of(self, target: Target) -> str | None:
        """The IP address of a replica's machine; None if it is not known for now."""
        return self._known.get(target.host) or self._former.get(target.route)

    def knows(self, hosts: Iterable[str]) -> bool:
        """Whether all of these machines were found."""
        return all(host in self._known for host in hosts)

    def follow(self, hosts: Collection[str]) -> None:
        """Look up those of these machines that are not known, and forget all others."""
        for known in (self._known, self._unknown):
            for host in set(known) - set(hosts):
                del known[host]
        now_s, is_new = time.monotonic(), False
        for host in set(hosts) - set(self._known) - self._asked:
            try:
                self._known[host] = str(ip_address(host))
            except ValueError:
                if now_s >= self._unknown.get(host, 0.0):
                    self._unknown[host], is_new = now_s + UNKNOWN_S, True
                    self._asked.add(host)
                    self._waiting.append(host)
        self._threads = [each for each in self._threads if each.is_alive()]
        for _ in range(min(LOOK_UPS - len(self._threads), len(self._waiting))):
            thread = Thread(target=self._look_up, name="look-up", daemon=True)
            thread.start()
            self._threads.append(thread)
        for thread in self._threads if is_new else ():
            thread.join(max(now_s + RESOLVE_S - time.monotonic(), 0.0))

    def _look_up(self) -> None:
        with suppress(IndexError):  # no machine waits any more
            while True:
                host = self._waiting.popleft()
                with suppress(OSError, UnicodeError, StopIteration):
                    rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                    found = [str(row[4][0]) for row in rows]
                    # One of a link (fe80::1%eth0) would keep HAProxy from starting with its file.
                    self._known[host] = next(each for each in found if "%" not in each)
                self._asked.discard(host)
