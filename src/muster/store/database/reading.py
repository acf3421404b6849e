"""Reading a database that is left as it is, whatever its migration."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError, TimeoutError

from muster.store.database.address import (
    DatabaseUnreachable,
    DatabaseUnusable,
    parsed,
    shown_url,
    sqlite_file,
)
from muster.store.database.migrating import migration_of
from muster.store.database.outage import cause_of
from muster.store.database.patience import wait_without_limit
from muster.store.database.postgresql import WAYS_ON as OF_SERVERS
from muster.store.database.postgresql import postgresql_engine, takes_no_changes
from muster.store.database.sqlite import MAY_PASS, reading_engine
from muster.store.database.sqlite import WAYS_ON as OF_FILES


class EmptyDatabase(DatabaseUnusable):
    """There is a database, and nothing in it."""


@contextmanager
def reading(url: str) -> Iterator[tuple[Connection, str]]:
    """A connection that sees the state of one moment, and the number of its newest migration.
    Nothing can be written over it; writers go on meanwhile.

    Raises:
        EmptyDatabase: it has no tables.
        DatabaseUnusable: it is not there, another program's or a newer Muster's; or it fails while
            it is read.
    """
    engine = _engine(url)
    try:
        with engine.connect().execution_options(readonly=True) as connection, connection.begin():
            wait_without_limit(connection)
            migration = migration_of(connection, shown_url(url))
            if migration is None:
                raise EmptyDatabase(
                    f"the database {shown_url(url)} is empty: it has no cluster yet"
                )
            yield connection, migration
    except SQLAlchemyError as error:
        raise unusable(url, error) from error
    finally:
        engine.dispose()


def _engine(url: str) -> Engine:
    file = sqlite_file(url)
    if file is None:
        return postgresql_engine(parsed(url))
    if not file.is_file():
        raise DatabaseUnusable(f"there is no database {file}")
    return reading_engine(file)


def unusable(url: str | URL, error: Exception) -> DatabaseUnusable:
    """The sentence on a database that met an error, and the way on."""
    cause = cause_of(error)
    is_server = sqlite_file(url) is None
    ways_on = OF_SERVERS if is_server else OF_FILES
    way_on = next((way for sign, way in ways_on if sign in cause), "")
    return (DatabaseUnreachable if _may_pass(error, is_server) else DatabaseUnusable)(
        f"the database {shown_url(url)} cannot be used: {cause}{': ' if way_on else ''}{way_on}"
    )


def _may_pass(error: Exception, is_server: bool) -> bool:
    """Whether a later try may find the database otherwise, though nobody changes what is in it."""
    if isinstance(error, TimeoutError):  # all connections of a pool are in use
        return True
    if is_server:
        read_only = isinstance(error, SQLAlchemyError) and takes_no_changes(error)
        return read_only or isinstance(error, OperationalError)
    cause = cause_of(error)
    return isinstance(error, OperationalError) and any(sign in cause for sign in MAY_PASS)
