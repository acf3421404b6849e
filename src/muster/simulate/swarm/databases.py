"""Databases for runs, each in a file of its own, empty and ready at once."""

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from muster.store.database import open_engine, sqlite_url

NAME = "muster.db"


class Databases:
    """One engine on one database after the other. To migrate each, and to compile its statements
    anew, took a third of a run.

    The databases' machine never loses power, so that no commit waits for the disk.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="muster-swarm-") as place:
            self._path = Path(place) / NAME
            self._engine = open_engine(sqlite_url(self._path))
            self._engine.dispose()  # all is in one file then
            self._empty = self._path.read_bytes()
        event.listen(self._engine, "do_connect", self._go_there)
        event.listen(self._engine, "connect", _never_wait)

    def create(self, place: Path) -> Engine:
        """The engine, on a new database in this folder; what was read through it earlier is gone.
        Nobody may use the former database any more."""
        self._path = place / NAME
        self._path.write_bytes(self._empty)
        return self._engine

    def _go_there(self, _dialect: Any, _record: Any, arguments: list[Any], _named: Any) -> None:
        arguments[:] = [str(self._path)]


def _never_wait(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


@lru_cache(maxsize=1)
def databases() -> Databases:
    """The databases of this process, made once."""
    return Databases()
