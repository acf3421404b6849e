"""The database that a command is about, and that no controller may change meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from muster.app.database import held_file, url_of
from muster.app.database_option import VARIABLE, named_database, running_elsewhere
from muster.app.home import Home
from muster.core.errors import Conflict
from muster.store.database import shown_url
from muster.store.database.address import parsed, sqlite_file
from muster.store.database.postgresql import held_alone, postgresql_engine
from muster.store.database.reading import unusable


def database_of(home: Home, named: str | None) -> str:
    """The URL of the database that was named, or else of the one on which the home's controller
    works.

    Raises:
        DatabaseUnusable: the name is neither a PostgreSQL URL nor a file.
        Conflict: none was named, and the controller that runs works on another one than the home's.
    """
    if named is None and (other := running_elsewhere(home)) is not None:
        raise Conflict(
            f"the controller that runs on {home.path} works on the database {other}, which was "
            f"named to it alone: name it to this command too, by --database or {VARIABLE}"
        )
    return url_of(named_database(named, home), home)


@contextmanager
def held(url: str, home: Home | None = None) -> Iterator[None]:
    """Let no controller start on the database until the end of the block. ``home`` is held already.

    Raises:
        Conflict: a controller, or another command, works on it.
        DatabaseUnusable: its server cannot be reached.
    """
    file = sqlite_file(url)
    with _held_on_server(url) if file is None else held_file(file, home):
        yield


@contextmanager
def _held_on_server(url: str) -> Iterator[None]:
    engine = postgresql_engine(parsed(url))
    try:
        with held_alone(engine) as hold:
            if hold is None:
                raise Conflict(
                    f"a controller, or another command, works on the database {shown_url(url)}: "
                    f"stop it first, for example with `muster down`"
                )
            yield
    except SQLAlchemyError as error:
        raise unusable(url, error) from error
    finally:
        engine.dispose()
