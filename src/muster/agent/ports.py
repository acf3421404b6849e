"""Ports reserved for kernels, from Prepare until the kernel has ended.

A reservation is a lock that the agents of a machine share (`port_locks`); no process listens on a
reserved port. So agents never reserve the same port, and a kernel can bind its port without any
socket option.
"""

import json
import random
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from muster.agent.port_locks import PortLocks
from muster.core.errors import MusterError
from muster.core.ids import KernelId
from muster.wire.messages import KernelKey

PORTS_FILE = "ports.json"


class NoPorts(MusterError):
    """Too few ports are free."""


class PreparedPorts:
    """Kernels that were prepared and have not ended, with their ports.

    Kept in a file, because a kernel may not have bound its ports yet when the agent restarts.

    Args:
        directory: the agent's.
        allowed: the range of ports.
        rng: for the place in the range at which to begin, so that agents seldom compete.
    """

    def __init__(self, directory: Path, allowed: range, rng: random.Random) -> None:
        self._path = directory / PORTS_FILE
        self._allowed = allowed
        self._next = rng.randrange(len(allowed))
        self._ports: dict[KernelKey, tuple[int, ...]] = {}
        self._locks = PortLocks()
        self._load()

    def reserved(self) -> Mapping[KernelKey, tuple[int, ...]]:
        return self._ports

    def reserve(self, key: KernelKey, count: int) -> tuple[int, ...]:
        """``count`` ports for a kernel; if it has ports already, the answer is these.

        Raises:
            NoPorts: the range has too few free ports.
            OSError: ports cannot be locked or written down; nothing is reserved.
        """
        if key in self._ports:
            return self._ports[key]
        found: list[int] = []
        try:
            for _ in range(len(self._allowed)):
                if len(found) == count:
                    break
                port = self._allowed[self._next]
                self._next = (self._next + 1) % len(self._allowed)
                if self._take(port):
                    found.append(port)
            if len(found) < count:
                raise NoPorts(
                    f"{len(found)} of {count} found free between {self._allowed[0]} and "
                    f"{self._allowed[-1]}"
                )
            self._ports[key] = tuple(found)
            if found:
                self._save()
        except (NoPorts, OSError):
            self._ports[key] = tuple(found)
            self._drop(key)
            raise
        return self._ports[key]

    def release(self, key: KernelKey) -> None:
        """Give back a kernel's ports, if it has any."""
        if self._drop(key):
            with suppress(OSError):  # a stale line does no harm: its kernel is stopped again
                self._save()

    def close(self) -> None:
        """Let go of the locks; the file keeps the reservations for the agent's next start."""
        self._locks.close()

    def _drop(self, key: KernelKey) -> tuple[int, ...]:
        ports = self._ports.pop(key, ())
        for port in ports:
            self._locks.drop(port)
        return ports

    def _take(self, port: int) -> bool:
        """Reserve a port unless an agent has it, or a process listens on it.

        Raises:
            OSError: it cannot be locked.
        """
        if not self._locks.take(port):
            return False
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # dying ones do not count
            try:
                probe.bind(("", port))
            except OSError:
                self._locks.drop(port)
                return False
        return True

    def _load(self) -> None:
        try:
            kept = json.loads(self._path.read_text())
            self._ports = {
                (KernelId(kernel), int(generation)): tuple(map(int, ports))
                for kernel, generation, ports in kept
            }
        except (OSError, ValueError, TypeError):
            return  # no file, or a damaged one: the controller prepares wanted kernels again
        for port in {port for ports in self._ports.values() for port in ports}:
            with suppress(OSError):
                self._locks.take(port)

    def _save(self) -> None:
        kept = [[*key, ports] for key, ports in self._ports.items() if ports]
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(kept))
        fresh.replace(self._path)
