"""`muster db backup`: all state of a cluster at one moment, in a file."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from muster.app.maintenance.files import name_it, there_already, unfinished
from muster.store.database.reading import reading
from muster.store.transfer.dump import write_dump
from muster.store.transfer.source import DatabaseSource, Origin
from muster.version import __version__


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made."""

    file: Path
    rows: int
    size_bytes: int


def back_up(url: str, file: Path) -> Backup:
    """Write the state that a database has at this moment to a new file, whether or not a controller
    runs.

    Raises:
        MusterError: there is no state, or the file exists already or cannot be written.
    """
    if file.exists():
        raise there_already(file)
    with reading(url) as (connection, migration), unfinished(file) as path:
        source = DatabaseSource(connection, Origin(migration, __version__, time.time()))
        with path.open("wb") as written:
            rows = write_dump(source, written)
            written.flush()
            os.fsync(written.fileno())
        name_it(path, file)
    return Backup(file, rows, file.stat().st_size)
