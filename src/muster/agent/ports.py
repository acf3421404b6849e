"""Ports reserved for kernels, from Prepare until the kernel has ended.

A reservation is a lock that the agents of a machine share (`port_locks`); no process listens on a
reserved port. So agents never reserve the same port, and a kernel can bind its port without any
socket option.

If a kernel's program listens on a fixed port, that very port is reserved. It is given back once the
kernel's processes are gone; the other ports are kept until the controller knows of that.

The reservations of an agent are in one file, so it is written once for all that are made or given
back together.
"""

import errno
import json
import random
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from muster.agent.port_locks import PortLocks
from muster.core.errors import MusterError
from muster.core.ids import KernelId
from muster.files import write_whole
from muster.wire.messages import KernelKey

PORTS_FILE = "ports.json"


class NoPorts(MusterError):
    """Too few ports are free."""


class PortInUse(MusterError):
    """A kernel of an agent of this machine has the port, or a process listens on it."""


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
        self._fixed: dict[KernelKey, int] = {}
        self._locks = PortLocks()
        self._unsaved: set[KernelKey] = set()  # reserved, and not in the file
        self._load()

    def reserved(self) -> Mapping[KernelKey, tuple[int, ...]]:
        """The kernels and their ports, without the fixed ones."""
        return self._ports

    def locked(self) -> Mapping[KernelKey, tuple[int, ...]]:
        """The kernels that have any ports, with all of them."""
        fixed = {key: (port,) for key, port in self._fixed.items()}
        keys = {key for key, ports in self._ports.items() if ports} | fixed.keys()
        return {key: self._ports.get(key, ()) + fixed.get(key, ()) for key in keys}

    def reserve(self, key: KernelKey, count: int, fixed: int | None = None) -> tuple[int, ...]:
        """``count`` ports for a kernel, and the ``fixed`` one, which is not in the answer; if it
        has ports already, the answer is these. Nobody may be told of them before ``save``.

        Raises:
            PortInUse: the ``fixed`` port is not free; nothing is reserved.
            NoPorts: the range has too few free ports; nothing is reserved.
            OSError: ports cannot be locked; nothing is reserved.
        """
        if key in self._ports:
            return self._ports[key]
        found: list[int] = []
        try:
            if fixed is not None:
                if not self._take(fixed):
                    raise PortInUse(f"port {fixed} is in use")
                self._fixed[key] = fixed
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
        except (PortInUse, NoPorts, OSError):
            self._ports[key] = tuple(found)
            self._drop(key)
            raise
        self._ports[key] = tuple(found)
        if found or fixed is not None:
            self._unsaved.add(key)
        return self._ports[key]

    def save(self) -> None:
        """Write down what was reserved.

        Raises:
            OSError: it cannot be; all that was reserved since the last time is given back.
        """
        if not self._unsaved:
            return
        try:
            self._write()
        except OSError:
            for key in self._unsaved.copy():
                self._drop(key)
            raise

    def release(self, keys: Iterable[KernelKey]) -> None:
        """Give back the ports of kernels that have any."""
        self._released(map(self._drop, keys))

    def release_fixed(self, keys: Iterable[KernelKey]) -> None:
        """Give back the fixed ports of kernels that have one: their processes are gone. The next
        kernel may come before the controller's word that it knows of that."""
        self._released(map(self._drop_fixed, keys))

    def close(self) -> None:
        """Let go of the locks; the file keeps the reservations for the agent's next start."""
        self._locks.close()

    def _released(self, had_any: Iterable[bool]) -> None:
        if any([*had_any]):
            with suppress(OSError):  # a stale line does no harm: its kernel is stopped again
                self._write()

    def _drop(self, key: KernelKey) -> bool:
        """Give back a kernel's ports; whether it had any."""
        ports = self._ports.pop(key, ())
        self._unsaved.discard(key)
        for port in ports:
            self._locks.drop(port)
        return self._drop_fixed(key) or bool(ports)

    def _drop_fixed(self, key: KernelKey) -> bool:
        port = self._fixed.pop(key, None)
        if port is None:
            return False
        self._locks.drop(port)
        return True

    def _take(self, port: int) -> bool:
        """Reserve a port unless an agent has it, or a process listens on it.

        Raises:
            OSError: it cannot be locked.
        """
        if not self._locks.take(port):
            return False
        if _is_free(port):
            return True
        self._locks.drop(port)
        return False

    def _load(self) -> None:
        try:
            kept = json.loads(self._path.read_text())
            for kernel, generation, ports, *fixed in kept:
                key = KernelId(kernel), int(generation)
                self._ports[key] = tuple(map(int, ports))
                if fixed:
                    self._fixed[key] = int(fixed[0])
        except (OSError, ValueError, TypeError):
            # No file, or a damaged one: the controller prepares wanted kernels again.
            self._ports, self._fixed = {}, {}
        known = {*self._fixed.values(), *(port for ports in self._ports.values() for port in ports)}
        for port in known:
            with suppress(OSError):
                self._locks.take(port)

    def _write(self) -> None:
        fixed = self._fixed
        kept = [
            [*key, ports, *([fixed[key]] if key in fixed else [])]
            for key, ports in self._ports.items()
            if ports or key in fixed
        ]
        write_whole(self._path, json.dumps(kept), is_synced=False)
        self._unsaved.clear()


def _is_free(port: int) -> bool:
    """Whether no process listens on the port, at whichever address. A port of which this cannot be
    found out, such as one that only root may bind, counts as free."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # Connections that are ending do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:  # the other kind was asked about
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
    return True
