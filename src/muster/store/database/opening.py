"""Opening a database."""

from sqlalchemy import Engine

from muster.store.database.address import DatabaseUnusable, parsed, shown_url
from muster.store.database.migrating import bring_up_to_date
from muster.store.database.postgresql import postgresql_engine, require_usable
from muster.store.database.reading import unusable
from muster.store.database.sqlite import sqlite_engine


def open_engine(url: str) -> Engine:
    """An engine for ``url``, migrated to this version's tables.

    Connections with the execution option ``readonly`` see the state of one moment, and never wait
    for the writer.

    Raises:
        DatabaseUnusable: not a database of Muster's, or of a newer version; DatabaseUnreachable if
            the server does not answer.
    """
    address = parsed(url)
    is_server = address.get_backend_name() == "postgresql"
    engine = postgresql_engine(address) if is_server else sqlite_engine(address)
    try:
        with engine.connect() as connection:
            if is_server:
                require_usable(connection, url)
            bring_up_to_date(connection, shown_url(url))
    except DatabaseUnusable:
        engine.dispose()
        raise
    except Exception as error:
        engine.dispose()
        raise unusable(url, error) from error
    return engine
