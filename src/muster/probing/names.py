"""Addresses of hosts, looked up beside the probes, so that no probe waits for a name.

It imports modules of the probing process only, which is to be small.
"""

import queue
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

FRESH_S = 30.0
"""Seconds after which a name is looked up again; until there is an answer the former one holds."""
MAX_THREADS = 4
"""Threads that look names up, which nobody can end while they hang."""
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


class Names:
    """The addresses of hosts.

    Args:
        look_up: is called on threads, and may hang.
    """

    def __init__(self, look_up: LookUp = look_up) -> None:
        self._look_up = look_up
        self._hosts: dict[str, _Host] = {}
        self._sought: queue.SimpleQueue[tuple[str, _Host, float]] = queue.SimpleQueue()
        self._threads = 0

    def find(self, host: str, now_s: float) -> tuple[Address, ...] | None:
        """The addresses of a host, at once: none if it has none, None if they are not known yet."""
        known = self._hosts.get(host)
        if known is None:
            known = self._begin(host)
        if not known.is_sought and known.looked_up_s + FRESH_S <= now_s:
            known.is_sought = True
            self._sought.put((host, known, now_s))
            self._staff()
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

    def _staff(self) -> None:
        if self._threads < MAX_THREADS:
            thread = threading.Thread(target=self._work, name="names of hosts", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the machine has no thread left; others may do it
                return
            self._threads += 1

    def _work(self) -> None:
        while True:
            host, known, now_s = self._sought.get()
            try:
                addresses = self._look_up(host, 0)
            except socket.gaierror as error:
                if error.errno == socket.EAI_NONAME and known.addresses is None:
                    known.addresses = ()
            except (OSError, ValueError):
                pass
            else:
                known.addresses = tuple(addresses[:MAX_ADDRESSES])
            known.looked_up_s, known.is_sought = now_s, False
