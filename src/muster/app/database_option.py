"""The choice of a cluster's database: ``--database``, the environment, or the one used last.

SQLAlchemy takes long to import: only who names a database pays for that.
"""

import os
from collections.abc import Mapping

from muster.app.home import Home

VARIABLE = "MUSTER_DATABASE"


def named_database(
    option: str | None, home: Home, environment: Mapping[str, str] = os.environ
) -> str | None:
    """The database that was asked for, as it was written: by the option, else by the environment,
    else the last time; None is the home's own.

    Raises:
        DatabaseUnusable: it is neither a PostgreSQL URL nor a file.
    """
    named = option
    if named is None:
        named = environment.get(VARIABLE) or home.settings().database
    if named is None:
        return None
    from muster.store.database import database_url

    return database_url(named)


def running_elsewhere(home: Home, environment: Mapping[str, str] = os.environ) -> str | None:
    """The database of the controller that runs on the home, without its password, if it was named
    to that one alone: whoever names none now would get another one."""
    running = home.running() if home.is_running() else None
    if running is None or not running.database or environment.get(VARIABLE):
        return None
    from muster.store.database import database_url, shown_url, sqlite_url
    from muster.store.database.address import place_of

    kept = home.settings().database
    would_get = sqlite_url(home.database) if kept is None else shown_url(database_url(kept))
    return None if place_of(would_get) == place_of(running.database) else running.database


def warnings_of(*named: str | None) -> list[str]:
    """A warning where databases are named so that everybody on the machine sees a password."""
    addresses = [each for each in named if each is not None]
    if not addresses:
        return []
    from muster.store.database import password_of

    if not any(map(password_of, addresses)):
        return []
    return [
        f"others on this machine can see the password while the command runs: give it in "
        f"PGPASSWORD or in ~/.pgpass, or the URL that --database would name in {VARIABLE}"
    ]


def shown(option: str | None) -> str | None:
    """The option as a controller tells its database."""
    if option is None:
        return None
    from muster.store.database import database_url, shown_url

    return shown_url(database_url(option))
