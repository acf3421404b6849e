"""A database server that went away."""

import random
import threading

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from muster.store.database.address import DatabaseUnusable
from muster.store.database.postgresql import require_usable

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
"""Pauses between two tries to reach the server double up to this, and vary by half, so that those
who lost it together do not come back together."""


class Outage:
    """The time from the moment when a connection broke until the server can be reached again and
    takes changes, which is tried on a thread of its own: a try may take seconds. ``why`` is why the
    last one failed."""

    def __init__(self, engine: Engine, why: str) -> None:
        self.why = why
        self._engine = engine
        self._over = threading.Event()
        self._given_up = threading.Event()
        threading.Thread(target=self._try, name="database outage", daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def give_up(self) -> None:
        """Try no more."""
        self._given_up.set()

    def _try(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._given_up.wait(pause_s * random.uniform(0.5, 1.0)):
            self._engine.dispose()  # its connections may be to another server than the present one
            try:
                with self._engine.connect() as connection:
                    connection.detach()  # the pool may be disposed of meanwhile
                    require_usable(connection)
            except (SQLAlchemyError, DatabaseUnusable) as error:
                self.why = cause_of(error)
            else:
                self._over.set()
                return
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def cause_of(error: Exception) -> str:
    """The driver's own message on one line, without the statement and its values: a server repeats
    some of them in the details that follow the first line."""
    cause = getattr(error, "orig", None) or error
    first = getattr(getattr(cause, "diag", None), "message_primary", None)
    return " ".join(str(first or cause).split())
