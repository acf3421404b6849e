"""Ending a connection over which no answer comes: the driver would wait for ever, and with it the
event loop."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection

ANSWER_S = 20.0
"""How long a commit may take, with all its statements."""
LOOKS = 10
"""How often a connection is looked at in that time."""


class Patience:
    """Looks, on a thread of its own, at how long the server has not answered the one connection
    that commits. Past ``limit_s`` the connection is broken off, which its user sees as an error."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = ANSWER_S if limit_s is None else limit_s
        self._lock = threading.Lock()
        self._waiting: tuple[int, float] | None = None  # the connection's file, and since when
        self._over = threading.Event()
        threading.Thread(target=self._look, name="database patience", daemon=True).start()

    @contextmanager
    def waiting(self, connection: Connection) -> Iterator[None]:
        """The block waits for the connection's server."""
        raw = connection.connection.dbapi_connection
        assert raw is not None, "it is connected"
        self._waiting = raw.fileno(), time.monotonic()
        try:
            yield
        finally:
            with self._lock:  # its file may be another's from now on
                self._waiting = None

    def end(self) -> None:
        """Look no more."""
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(self._limit_s / LOOKS):
            with self._lock:
                waiting = self._waiting
                if waiting is not None and time.monotonic() - waiting[1] > self._limit_s:
                    _break_off(waiting[0])


def _break_off(file: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(file)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
