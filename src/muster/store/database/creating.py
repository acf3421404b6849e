"""Making a database that is there as a whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from muster.store.database.address import DatabaseUnusable, parsed, shown_url, sqlite_url
from muster.store.database.migrating import lock_migrations, migration_of
from muster.store.database.postgresql import postgresql_engine, require_usable
from muster.store.database.reading import unusable
from muster.store.database.sqlite import scratch_engine


@contextmanager
def new_file(file: Path) -> Iterator[Connection]:
    """A connection to an empty SQLite database in a file that nobody else uses yet. It is whole
    once the block has ended, and then has to be synchronized to the disk.

    Raises:
        DatabaseUnusable: it cannot be written.
    """
    engine = scratch_engine(file)
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise unusable(sqlite_url(file), error) from error
    finally:
        engine.dispose()


@contextmanager
def new_on_server(url: str, aside: str | None = None) -> Iterator[tuple[Connection, bool]]:
    """A connection to an empty PostgreSQL database, and whether it was empty before. All that is
    done over it is one transaction, which is committed once the block has ended.

    Args:
        aside: the name of a new schema into which the tables that are there are moved; with None
            there may be no tables.

    Raises:
        DatabaseUnusable: the database is not empty, is another program's, cannot be reached, or
            cannot be written.
    """
    engine = postgresql_engine(parsed(url))
    shown = shown_url(url)
    try:
        with engine.begin() as connection:
            require_usable(connection)
            lock_migrations(connection)
            was_empty = migration_of(connection, shown) is None
            if not was_empty:
                if aside is None:
                    raise DatabaseUnusable(
                        f"the database {shown} is not empty, it holds a cluster already: name an "
                        f"empty one, or work on that cluster with --database"
                    )
                _move_aside(connection, aside)
            yield connection, was_empty
    except SQLAlchemyError as error:
        raise unusable(url, error) from error
    finally:
        engine.dispose()


def _move_aside(connection: Connection, schema: str) -> None:
    quote = connection.dialect.identifier_preparer.quote
    tables = inspect(connection).get_table_names()
    connection.execute(text(f"CREATE SCHEMA {quote(schema)}"))
    for table in tables:
        connection.execute(text(f"ALTER TABLE {quote(table)} SET SCHEMA {quote(schema)}"))
