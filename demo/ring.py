"""All-reduce among the ranks of a gang, over plain TCP sockets.

The ranks meet at MASTER_ADDR:MASTER_PORT: rank 0 listens there, the others tell it where they
listen themselves, and it tells all of them. From then on each rank talks to its two neighbours.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Address = tuple[str, int]

_LENGTH = struct.Struct("!I")
_RETRY_S = 0.05


class Ring:
    """A rank's place among the others: it hears the one before it and speaks to the next.

    Args:
        before: connected to rank - 1.
        next_: connected to rank + 1.
    """

    def __init__(self, rank: int, size: int, before: socket.socket, next_: socket.socket) -> None:
        self.rank = rank
        self.size = size
        self._before = before
        self._next = next_

    def all_reduce(self, values: NDArray[np.float64]) -> None:
        """Replace a vector by its sum over all ranks.

        Each part is added up in one place and copied from there, so that all ranks end with the
        same bits, whatever the order of the additions.

        Raises:
            OSError: a neighbour is gone, or silent for too long.
        """
        parts = np.array_split(values, self.size)  # views
        for step in range(self.size - 1):
            at = self.rank - step
            received = self.exchange(parts[at % self.size].tobytes())
            parts[(at - 1) % self.size] += np.frombuffer(received)
        for step in range(self.size - 1):
            at = self.rank - step
            received = self.exchange(parts[(at + 1) % self.size].tobytes())
            parts[at % self.size][:] = np.frombuffer(received)

    def exchange(self, data: bytes) -> bytes:
        """Give ``data`` to the next rank; what the one before gave.

        Raises:
            OSError: as ``all_reduce``.
        """
        if self.rank % 2:  # not all may send first: nobody would empty the sockets' buffers
            received = _receive(self._before)
            _send(self._next, data)
            return received
        _send(self._next, data)
        return _receive(self._before)

    def close(self) -> None:
        self._before.close()
        self._next.close()


def join_ring(environ: Mapping[str, str] = os.environ, timeout_s: float = 30.0) -> Ring:
    """Meet the other ranks of the gang that ``environ`` describes.

    Args:
        environ: with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
        timeout_s: longest wait for any other rank, now and later.

    Raises:
        OSError: the others did not come in time.
    """
    rank, size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    master = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(master) as door:
            door.settimeout(timeout_s)
            addresses = _gather(door, master, size, timeout_s)
            return _link(rank, addresses, door, timeout_s)
    with (
        _connect(master, timeout_s) as to_master,
        socket.create_server((to_master.getsockname()[0], 0)) as door,
    ):
        door.settimeout(timeout_s)
        _send(to_master, json.dumps([rank, *door.getsockname()[:2]]).encode())
        addresses = [(host, port) for host, port in json.loads(_receive(to_master))]
        return _link(rank, addresses, door, timeout_s)


def _gather(door: socket.socket, master: Address, size: int, timeout_s: float) -> list[Address]:
    """Rank 0's part of the meeting: where each rank listens, told to all of them."""
    addresses = [master] * size
    guests: list[socket.socket] = []
    try:
        while len(guests) < size - 1:
            guests.append(_accept(door, timeout_s))
            rank, host, port = json.loads(_receive(guests[-1]))
            addresses[rank] = host, port
        for guest in guests:
            _send(guest, json.dumps(addresses).encode())
    finally:
        for guest in guests:
            guest.close()
    return addresses


def _link(rank: int, addresses: list[Address], door: socket.socket, timeout_s: float) -> Ring:
    next_ = _connect(addresses[(rank + 1) % len(addresses)], timeout_s)
    try:
        return Ring(rank, len(addresses), _accept(door, timeout_s), next_)
    except OSError:
        next_.close()
        raise


def _accept(door: socket.socket, timeout_s: float) -> socket.socket:
    guest, _ = door.accept()
    return _tuned(guest, timeout_s)


def _connect(address: Address, timeout_s: float) -> socket.socket:
    """The ranks start at the same time: the other side may not listen yet."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return _tuned(socket.create_connection(address, timeout_s), timeout_s)
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_RETRY_S)


def _tuned(connection: socket.socket, timeout_s: float) -> socket.socket:
    connection.settimeout(timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        piece = connection.recv(length - len(received))
        if not piece:
            raise ConnectionError("another rank is gone")
        received += piece
    return bytes(received)
