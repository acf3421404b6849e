"""`muster db copy`: a cluster moves to another database."""

import time
from dataclasses import dataclass, replace

from muster.app.database import url_of
from muster.app.home import Home
from muster.app.maintenance.making import Made, make
from muster.app.maintenance.place import held
from muster.core.errors import MusterError
from muster.store.database import database_url
from muster.store.database.address import place_of
from muster.store.database.reading import reading
from muster.store.transfer.source import DatabaseSource, Origin
from muster.version import __version__


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy that was made; ``is_used`` says whether the home's controller works on it from now
    on."""

    made: Made
    is_used: bool


def copy(home: Home, named: str, to: str) -> Copied:
    """Have an empty database hold all that another one holds, which stays as it is. If that was the
    home's, the copy is the home's from then on.

    It is one transaction, or a file that gets its name at the end: if it is interrupted, the target
    is as empty as before, and the same command begins anew.

    Raises:
        MusterError: a controller runs on one of them; the target is not empty or cannot be written;
            or a row would not be there as it was.
    """
    source, target = database_url(named), database_url(to)
    if place_of(source) == place_of(target):
        raise MusterError("a database cannot be copied to itself: name another one")
    with held(source), held(target), reading(source) as (connection, migration):
        origin = Origin(migration, __version__, time.time())
        made = make(target, DatabaseSource(connection, origin), replace=False)
        settings = home.settings()
        is_used = url_of(settings.database, home) == source
        if is_used:
            home.write_settings(replace(settings, database=target))
    return Copied(made, is_used)
