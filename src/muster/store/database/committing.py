"""The connection over which a store commits, and what keeps it good."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from muster.store.database.outage import Outage, cause_of
from muster.store.database.patience import answered_in_time
from muster.store.database.postgresql import takes_no_changes, writing_connection


class DatabaseAway(Exception):
    """The database cannot be reached at this moment; the text says why."""


class CommitConnection:
    """One connection for all commits of a store. A server that is lost is looked for meanwhile, and
    one that hangs is given up; a file is neither lost nor waited for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_remote = engine.dialect.name == "postgresql"
        self._outage: Outage | None = None
        self._connection = self._connect()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction, which is committed at the end of the block."""
        with answered_in_time(self._connection), self._connection.begin():
            yield self._connection

    @contextmanager
    def trial(self) -> Iterator[Connection]:
        """A transaction, which is rolled back at the end of the block."""
        with self.transaction() as connection, connection.begin_nested() as everything:
            yield connection
            everything.rollback()

    def note(self, error: SQLAlchemyError) -> None:
        """Take note of an error of a transaction: it may have lost the server."""
        if not self._is_remote:
            return
        if takes_no_changes(error):  # another server may have become the one that does
            self._connection.close()
        if self._is_lost:
            self._outage = Outage(self._engine, cause_of(error))

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Make the connection good again after a failure; where the block loses the server once
        more, that is looked for again.

        Raises:
            DatabaseAway: the server cannot be reached yet.
        """
        if self._outage is not None:
            if not self._outage.is_over:
                raise DatabaseAway(f"the database is away: {self._outage.why}")
            self._outage = None
        try:
            if self._is_lost:
                self._connection.close()
                self._connection = self._connect()
            with answered_in_time(self._connection):
                self._connection.rollback()
            yield
        except SQLAlchemyError as error:
            if self._is_remote and isinstance(error, OperationalError):
                self._outage = Outage(self._engine, cause_of(error))
            else:
                self.note(error)
            raise

    @property
    def _is_lost(self) -> bool:
        return self._is_remote and (self._connection.invalidated or self._connection.closed)

    def _connect(self) -> Connection:
        return writing_connection(self._engine) if self._is_remote else self._engine.connect()

    def close(self) -> None:
        if self._outage is not None:
            self._outage.give_up()
        self._connection.close()
