"""Opening a database, SQLite's or PostgreSQL's: its address, its engine, its migrations."""

from muster.store.database.address import (
    DatabaseUnreachable,
    DatabaseUnusable,
    database_url,
    password_of,
    shown_url,
    sqlite_url,
)
from muster.store.database.migrating import HEAD, MIGRATIONS, known_version
from muster.store.database.opening import bring_up_to_date, open_engine, reach
from muster.store.database.sqlite import checkpoint

__all__ = [
    "HEAD",
    "MIGRATIONS",
    "DatabaseUnreachable",
    "DatabaseUnusable",
    "bring_up_to_date",
    "checkpoint",
    "database_url",
    "known_version",
    "open_engine",
    "password_of",
    "reach",
    "shown_url",
    "sqlite_url",
]
