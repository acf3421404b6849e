"""The address of a database, as a person writes it and as it is shown."""

from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from muster.core.errors import Hindered, MusterError

_SCHEMES = ("postgresql://", "postgres://")


class DatabaseUnusable(MusterError):
    """The database cannot be used; the text says why and what to do."""


class DatabaseUnreachable(DatabaseUnusable, Hindered):
    """The server does not answer or lets nobody in, somebody else holds a lock, or a disk is full;
    a later try may find it otherwise."""


def sqlite_url(path: Path) -> str:
    """The URL of the SQLite database in this file."""
    return f"sqlite:///{path}"


def database_url(text: str) -> str:
    """The URL of the database that a person named: a PostgreSQL URL, or a file of SQLite.

    Raises:
        DatabaseUnusable: it is neither.
    """
    if not text.strip():
        raise DatabaseUnusable(
            "the name of the database is empty: expected a PostgreSQL URL as in "
            "postgresql://user@host/database, or a file"
        )
    if text.startswith(_SCHEMES):
        parsed(text)
        return text
    scheme, found, rest = text.partition("://")
    if scheme == "sqlite" and found:
        text = rest.removeprefix("/")
    elif found:
        raise DatabaseUnusable(
            f"there is no database of kind {scheme[:40]!r}: expected a PostgreSQL URL as in "
            f"postgresql://user@host/database, or a file"
        )
    return sqlite_url(Path(text).expanduser().absolute())


def parsed(url: str | URL) -> URL:
    """The parts of a URL, with the driver by which it is reached.

    Raises:
        DatabaseUnusable: the URL cannot be understood.
    """
    try:
        address = make_url(url)
        after_user = str(url).partition("@")[2].partition("?")[0]
        if address.username is not None and "@" in after_user:
            raise ValueError("the rest of a password with a @ would be shown as the host")
    except (ArgumentError, ValueError):
        raise DatabaseUnusable(
            "the URL of the database cannot be understood: expected "
            "postgresql://user@host:port/database, with %XX in place of special characters"
        ) from None
    if address.drivername in ("postgres", "postgresql"):
        address = address.set(drivername="postgresql+psycopg")
    return address


def password_of(text: str) -> str | None:
    """The password in the address of a database, if there is one."""
    if not text.startswith(_SCHEMES):
        return None
    address = parsed(text)
    found = address.password or address.query.get("password")
    return str(found) if found else None


def shown_url(url: str | URL) -> str:
    """The URL as people may see it: without a password, and without parameters, which may hold
    one too."""
    address = parsed(url).set(query={})
    if address.get_backend_name() == "postgresql":
        address = address.set(drivername="postgresql")
    return address.render_as_string(hide_password=True)


def sqlite_file(url: str | URL) -> Path | None:
    """The file of a SQLite database; None for a server's."""
    address = parsed(url)
    return Path(address.database or "") if address.get_backend_name() == "sqlite" else None


def place_of(url: str) -> str | Path:
    """The file of a SQLite database, which may have several names, or the URL of a server's without
    a password."""
    file = sqlite_file(url)
    return str(parsed(url)._replace(password=None)) if file is None else file.resolve()
