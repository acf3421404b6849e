"""Opening a database."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection, Engine

from muster.store.database.address import DatabaseUnusable, parsed, shown_url, sqlite_file
from muster.store.database.migrating import HEAD, lock_migrations, migrate, migration_of
from muster.store.database.postgresql import postgresql_engine, require_usable
from muster.store.database.reading import unusable
from muster.store.database.sqlite import reading_engine, sqlite_engine
from muster.store.fence import Fence, read_holder
from muster.version import __version__


def reach(url: str) -> Engine:
    """An engine for ``url``, whose tables are as they were found: see ``bring_up_to_date``.

    Connections with the execution option ``readonly`` see the state of one moment, and never wait
    for the writer.

    Raises:
        DatabaseUnusable: not a database of Muster's, or of a newer version; DatabaseUnreachable if
            the server does not answer.
    """
    address = parsed(url)
    file = sqlite_file(address)
    engine = postgresql_engine(address) if file is None else sqlite_engine(address)
    # A connection for writing has SQLite's files in WAL mode, which would change another program's.
    looking = engine if file is None or not _has_content(file) else reading_engine(file)
    try:
        with _usable(looking) as connection:
            migration_of(connection, shown_url(url))
    except BaseException:
        engine.dispose()
        raise
    return engine


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return False


def bring_up_to_date(engine: Engine) -> None:
    """Run the migrations that the database lacks, all in one transaction. Whoever has written to
    the older tables writes no more.

    Raises:
        DatabaseUnusable: they cannot be run, or not by this version.
    """
    shown = shown_url(engine.url)
    with _usable(engine) as connection:
        if migration_of(connection, shown) == HEAD:
            return
        connection.detach()  # it may be waited for without limit
        lock_migrations(connection)
        found = migration_of(connection, shown)
        if found != HEAD:  # nobody was faster
            migrate(connection)
        if found not in (None, HEAD):
            former = read_holder(connection)  # its leases are waited for as before
            name = f"a migration to version {__version__}"
            Fence(replace(former, name=name, since=time.time())).take(connection)
        connection.commit()


def open_engine(url: str) -> Engine:
    """An engine for ``url``, migrated to this version's tables; nobody else may work on it.

    Raises:
        DatabaseUnusable: see ``reach`` and ``bring_up_to_date``.
    """
    engine = reach(url)
    try:
        bring_up_to_date(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


@contextmanager
def _usable(engine: Engine) -> Iterator[Connection]:
    """A connection, over which errors are told as sentences."""
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                require_usable(connection)
            yield connection
    except DatabaseUnusable:
        raise
    except Exception as error:
        raise unusable(engine.url, error) from error
