"""The database that a command is about, and that no controller may change meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from muster.app.home import Home
from muster.store.database import database_url, sqlite_url
from muster.store.database.address import sqlite_file


def url_of(home: Home, named: str | None) -> str:
    """The URL of the database that was named, or else of the home's.

    Raises:
        DatabaseUnusable: the name is neither a PostgreSQL URL nor a file.
    """
    return sqlite_url(home.database) if named is None else database_url(named)


@contextmanager
def held(url: str) -> Iterator[None]:
    """Let no controller start on the database if it is the file of some home. On a server nothing
    keeps one from starting: the server itself knows who is connected.

    Raises:
        Conflict: a controller runs on it.
    """
    file = sqlite_file(url)
    home = Home(file.parent) if file is not None else None
    if home is None or home.database != file:
        yield
        return
    with home.locked():
        yield
