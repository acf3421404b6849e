"""`muster db copy`: a cluster moves to another database."""

import time
from collections.abc import Iterator

from sqlalchemy import Connection

from muster.app.maintenance.making import Made, make
from muster.app.maintenance.place import held
from muster.core.errors import MusterError
from muster.store.database import database_url, shown_url
from muster.store.database.postgresql import require_unused
from muster.store.database.reading import reading
from muster.store.transfer.source import DatabaseSource, Origin, Rows
from muster.version import __version__


def copy(named: str, to: str) -> Made:
    """Have an empty database hold all that another one holds, which stays as it is.

    It is one transaction, or a file that gets its name at the end: if it is interrupted, the target
    is as empty as before, and the same command begins anew.

    Raises:
        MusterError: a controller runs on the source; the target is not empty or cannot be written;
            or a row would not be there as it was.
    """
    source, target = database_url(named), database_url(to)
    if source == target:
        raise MusterError("a database cannot be copied to itself: name another one")
    with held(source), held(target), reading(source) as (connection, migration):
        require_unused(connection, shown_url(source))
        origin = Origin(migration, __version__, time.time())
        return make(target, _Unused(connection, origin, shown_url(source)), replace=False)


class _Unused(DatabaseSource):
    """The rows of a database, as long as no controller has been started on it by their end."""

    def __init__(self, connection: Connection, origin: Origin, shown: str) -> None:
        super().__init__(connection, origin)
        self._shown = shown

    def tables(self) -> Iterator[Rows]:
        yield from super().tables()
        require_unused(self._connection, self._shown)
