"""Opening a database."""

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from muster.store.database.address import DatabaseUnreachable, DatabaseUnusable, parsed, shown_url
from muster.store.database.migrating import bring_up_to_date
from muster.store.database.outage import cause_of
from muster.store.database.postgresql import postgresql_engine, require_usable, what_to_do
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
    shown = shown_url(url)
    is_server = address.get_backend_name() == "postgresql"
    engine = postgresql_engine(address) if is_server else sqlite_engine(address)
    try:
        with engine.connect() as connection:
            if is_server:
                require_usable(connection, url)
            bring_up_to_date(connection, shown)
    except DatabaseUnusable:
        engine.dispose()
        raise
    except Exception as error:
        engine.dispose()
        cause = cause_of(error)
        way_on = what_to_do(cause) if is_server else ""
        is_away = is_server and isinstance(error, OperationalError)
        raise (DatabaseUnreachable if is_away else DatabaseUnusable)(
            f"the database {shown} cannot be used: {cause}{': ' if way_on else ''}{way_on}"
        ) from error
    return engine
