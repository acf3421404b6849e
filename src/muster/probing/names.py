"""Addresses of hosts, looked up beside the probes, so that no probe waits for a name.

It imports modules of the probing process only, which is to be small.
"""

import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

FRESH_S = 30.0
"""Seconds after which a name is looked up again; until there is an answer the former one holds."""
MAX_THREADS = 32
"""Threads that look names up, which nobody can end while they hang. There are as many as wait."""
MAX_SLOW = MAX_THREADS // 2
"""How many of them may look up names that took long before: the rest is for the others."""
SLOW_S = 1.0
"""Seconds after which a name counts as one that takes long."""
MAX_HOSTS = 40_000
MAX_ADDRESSES = 4

Address: TypeAlias = tuple[int, tuple[Any, ...]]
"""A family, and a socket's address with port 0."""
LookUp: TypeAlias = Callable[[str, int], list[Address]]
"""Finds the addresses of a host, with flags of ``getaddrinfo``, and raises ``OSError``."""

_HOST = re.compile(r"[A-Za-z0-9.:_%-]{1,253}")


def look_up(host: str, flags: int) -> list[Address]:
    """The addresses of a host, as the machine finds them.

    Raises:
        OSError: there are none, or nobody can tell.
    """
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]


@dataclass(slots=True)
class _Host:
    """Its addresses; None as long as nobody could tell, empty if it has none."""

    addresses: tuple[Address, ...] | None = None
    looked_up_s: float = 0.0
    is_sought: bool = False
    is_slow: bool = False


_Search: TypeAlias = tuple[str, _Host, float]
"""A name that is looked up, and when that was wished."""


class Names:
    """The addresses of hosts.

    Args:
        look_up: is called on threads, and may hang.
    """

    def __init__(self, look_up: LookUp = look_up) -> None:
        self._look_up = look_up
        self._hosts: dict[str, _Host] = {}
        self._wished = threading.Condition()
        self._sought: deque[_Search] = deque()
        self._sought_slowly: deque[_Search] = deque()
        self._threads = self._free = self._slow = 0

    def find(self, host: str, now_s: float) -> tuple[Address, ...] | None:
        """The addresses of a host, at once: none if it has none, None if they are not known yet."""
        known = self._hosts.get(host)
        if known is None:
            known = self._begin(host)
        if not known.is_sought and known.looked_up_s + FRESH_S <= now_s:
            known.is_sought = True
            self._seek((host, known, now_s))
        return known.addresses

    def _begin(self, host: str) -> _Host:
        if len(self._hosts) >= MAX_HOSTS:
            self._hosts.clear()
        known = self._hosts[host] = _Host(looked_up_s=-FRESH_S)
        if _HOST.fullmatch(host) is None:
            known.addresses, known.looked_up_s = (), float("inf")
            return known
        try:  # an address stands for itself, and nobody is asked
            addresses = look_up(host, socket.AI_NUMERICHOST)
        except OSError:
            return known
        known.addresses, known.looked_up_s = tuple(addresses[:1]), float("inf")
        return known

    def _seek(self, search: _Search) -> None:
        with self._wished:
            (self._sought_slowly if search[1].is_slow else self._sought).append(search)
            self._wished.notify()
            slow = min(len(self._sought_slowly), MAX_SLOW - self._slow)
            is_staffed = self._free >= len(self._sought) + slow
        if not is_staffed and self._threads < MAX_THREADS:
            thread = threading.Thread(target=self._work, name="names of hosts", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the machine has no thread left; others may do it
                return
            self._threads += 1

    def _work(self) -> None:
        while True:
            (host, known, now_s), was_slow = self._next()
            began_s = time.monotonic()
            try:
                addresses = self._look_up(host, 0)
            except socket.gaierror as error:
                if error.errno == socket.EAI_NONAME and known.addresses is None:
                    known.addresses = ()
            except (OSError, ValueError):
                pass
            else:
                known.addresses = tuple(addresses[:MAX_ADDRESSES])
            with self._wished:
                self._slow -= was_slow
            known.is_slow = time.monotonic() - began_s > SLOW_S
            known.looked_up_s, known.is_sought = now_s, False

    def _next(self) -> tuple[_Search, bool]:
        """The name that is looked up next, and whether it is one that took long."""
        with self._wished:
            self._free += 1
            self._wished.wait_for(self._may_begin)
            self._free -= 1
            if self._sought:
                return self._sought.popleft(), False
            self._slow += 1
            return self._sought_slowly.popleft(), True

    def _may_begin(self) -> bool:
        return bool(self._sought) or (bool(self._sought_slowly) and self._slow < MAX_SLOW)
