"""Databases for runs, each empty and ready at once."""

import os
import sqlite3
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine, delete, event, text, update
from sqlalchemy.exc import SQLAlchemyError

from muster.store import schema
from muster.store.database import open_engine, sqlite_url
from muster.store.database.address import DatabaseUnusable, parsed
from muster.store.database.patience import answered_in_time
from muster.store.database.postgresql import postgresql_engine
from muster.store.database.reading import unusable

NAME = "muster.db"


class Databases(Protocol):
    """One database after the other, on one engine: to migrate each, and to compile its statements
    anew, took a third of a run."""

    def create(self, place: Path) -> Engine:
        """The engine, on an empty database; what was read through it earlier is gone. Nobody may
        use the former database any more.

        Args:
            place: a folder of the run.
        """


class Files:
    """SQLite's, each in a file of its own.

    No commit waits for the disk, because the machine of these databases never loses power. A
    connection of nobody's is open all the while: SQLite would put a file in order when the last one
    is closed, and begin anew with the next, at the death of each controller.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="muster-swarm-") as place:
            self._path = Path(place) / NAME
            self._engine = open_engine(sqlite_url(self._path))
            self._engine.dispose()  # all is in one file then
            self._empty = self._path.read_bytes()
        self._nobodys = sqlite3.connect(":memory:")
        event.listen(self._engine, "do_connect", self._go_there)
        event.listen(self._engine, "connect", _never_wait)

    def create(self, place: Path) -> Engine:
        self._path = place / NAME
        self._path.write_bytes(self._empty)
        self._nobodys.close()
        self._nobodys = sqlite3.connect(self._path)
        self._nobodys.execute("SELECT count(*) FROM fence").fetchone()
        return self._engine

    def _go_there(self, _dialect: Any, _record: Any, arguments: list[Any], _named: Any) -> None:
        arguments[:] = [str(self._path)]


def _never_wait(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


class OnServer:
    """One database of this process on a PostgreSQL server, emptied for each run; it is removed when
    the process ends.

    Args:
        url: of a database of the server, by which another one can be made. It is left as it is.
    """

    def __init__(self, url: str) -> None:
        self._server = parsed(url)
        if self._server.get_backend_name() != "postgresql":
            raise DatabaseUnusable(
                "--server names a PostgreSQL server: expected postgresql://user@host/database"
            )
        self._name = f"muster_swarm_{os.getpid()}"
        self._drop()
        try:
            self._tell_server(f"CREATE DATABASE {self._name} ENCODING 'UTF8' TEMPLATE template0")
            own = self._server.set(database=self._name)
            self._engine = open_engine(own.render_as_string(hide_password=False))
        except BaseException:  # an interrupt, say
            self._drop()
            raise
        self._engine.dispose()  # processes that are forked share no connection
        self.remove = Finalize(None, self._remove, exitpriority=1)
        """Remove the database; it is done at the end of the process, also of a worker's."""

    def create(self, place: Path) -> Engine:
        with self._engine.begin() as connection:
            for table in reversed(schema.metadata.sorted_tables):
                if table is not schema.fence:
                    connection.execute(delete(table))
            connection.execute(
                update(schema.fence).values(epoch=0, commits=0, holder="", since=0.0)
            )
        return self._engine

    def _remove(self) -> None:
        self._engine.dispose()
        self._drop()

    def _drop(self) -> None:
        self._tell_server(f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")

    def _tell_server(self, statement: str) -> None:
        engine = postgresql_engine(self._server)
        autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        try:
            with autocommit.connect() as connection, answered_in_time(connection):
                connection.execute(text(statement))
        finally:
            engine.dispose()


_used: list[Databases] = []


def use_server(url: str) -> None:
    """Have all later runs of this process on a PostgreSQL server; see ``OnServer``.

    Raises:
        DatabaseUnusable: there is none, or no database can be made on it.
    """
    try:
        _used[:] = [OnServer(url)]
    except SQLAlchemyError as error:
        raise unusable(url, error) from error


def leave() -> None:
    """Remove what this process has on a server: it is about to end without a word."""
    for each in _used:
        if isinstance(each, OnServer):
            each.remove()


def databases() -> Databases:
    """The databases of this process: SQLite's unless another kind is used."""
    if not _used:
        _used.append(Files())
    return _used[0]
