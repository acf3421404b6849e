"""The database that a command is about, and that no controller may change meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from muster.app.database_option import named_database
from muster.app.home import Home
from muster.store.database import sqlite_url
from muster.store.database.address import sqlite_file


def url_of(home: Home, named: str | None) -> str:
    """The URL of the database that was named, or else of the home's cluster.

    Raises:
        DatabaseUnusable: the name is neither a PostgreSQL URL nor a file.
    """
    url = named_database(named, home)
    return sqlite_url(home.database) if url is None else url


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
