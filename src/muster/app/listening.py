"""Sockets on which Muster's processes listen for people."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Sequence

from muster.core.errors import MusterError
from muster.core.host_port import joined
from muster.wire.transport import require_secure

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.2
"""How often a port is looked at that another program has."""


class AddressInUse(MusterError):
    """The port cannot be had."""


def listen(host: str, ports: Sequence[int], *, tls: bool, option: str = "--port") -> socket.socket:
    """A socket that listens on the first of ``ports`` that is free. Only taking a port shows that
    it is free: other processes look for one at the same moment.

    Args:
        option: by which people choose another port.

    Raises:
        AddressInUse: all ports are taken, or the host is not of this machine.
        InsecureAddress: other machines can reach the address, and there is no TLS.
    """
    require_secure(joined(host, ports[0]), tls=tls)
    for port in ports[:-1]:
        with contextlib.suppress(AddressInUse):
            return _listen_at(host, port, option)
    return _listen_at(host, ports[-1], option)


async def once_free(take: Callable[[], socket.socket], stop: asyncio.Event) -> socket.socket:
    """The socket that ``take`` makes, which is called until it gets its port or ``stop`` is set.

    Raises:
        AddressInUse: ``stop`` is set, and another program still has the port.
    """
    said = False
    while True:
        try:
            return take()
        except AddressInUse as error:
            if stop.is_set():
                raise
            if not said:
                log.warning("%s; it is waited for", error)
                said = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_AGAIN_S)


def _listen_at(host: str, port: int, option: str) -> socket.socket:
    """
    Raises:
        AddressInUse: the port is taken, or the host is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio leaves Nagle's algorithm on: 40 ms an answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        why = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
        raise AddressInUse(
            f"cannot listen on {joined(host, port)}: {why}; choose another with {option}"
        ) from None
    return listener
