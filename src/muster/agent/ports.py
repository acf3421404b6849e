"""Ports reserved for kernels, from Prepare until the kernel has ended.

A reservation holds an abstract socket named after the port, which is as machine-wide as the port
itself (both belong to the network namespace) and vanishes with the agent. So agents of one machine
keep out of each other's way, and a kernel can bind its port without any option.
"""

import json
import random
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

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
        self._locks: dict[int, socket.socket] = {}
        self._load()

    def held(self) -> Mapping[KernelKey, tuple[int, ...]]:
        return self._ports

    def reserve(self, key: KernelKey, count: int) -> tuple[int, ...]:
        """``count`` ports for a kernel; if it has ports already, the answer is these.

        Raises:
            NoPorts: the range has too few free ports.
            OSError: the reservation cannot be written down; nothing is reserved.
        """
        if key in self._ports:
            return self._ports[key]
        found: list[int] = []
        for _ in range(len(self._allowed)):
            if len(found) == count:
                break
            port = self._allowed[self._next]
            self._next = (self._next + 1) % len(self._allowed)
            if self._take(port):
                found.append(port)
        self._ports[key] = tuple(found)
        try:
            if len(found) < count:
                raise NoPorts(
                    f"{len(found)} of {count} found free between {self._allowed[0]} and "
                    f"{self._allowed[-1]}"
                )
            if found:
                self._save()
        except (NoPorts, OSError):
            self._drop(key)
            raise
        return self._ports[key]

    def release(self, key: KernelKey) -> None:
        """Give back a kernel's ports, if it has any."""
        if self._drop(key):
            with suppress(OSError):  # stale lines do no harm: their kernels are stopped again
                self._save()

    def close(self) -> None:
        """Let go of the sockets; the file keeps the reservations for the agent's next life."""
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    def _drop(self, key: KernelKey) -> tuple[int, ...]:
        ports = self._ports.pop(key, ())
        for port in ports:
            if (lock := self._locks.pop(port, None)) is not None:
                lock.close()
        return ports

    def _take(self, port: int) -> bool:
        """Reserve a port unless another agent has it, or a process listens on it."""
        lock = _lock(port)
        if lock is None:
            return False
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # dying ones do not count
            try:
                probe.bind(("", port))
            except OSError:
                lock.close()
                return False
        self._locks[port] = lock
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
            if (lock := _lock(port)) is not None:
                self._locks[port] = lock

    def _save(self) -> None:
        kept = [[*key, ports] for key, ports in self._ports.items() if ports]
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(kept))
        fresh.replace(self._path)


def _lock(port: int) -> socket.socket | None:
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(f"\0muster-port-{port}")
    except OSError:
        lock.close()
        return None
    return lock
