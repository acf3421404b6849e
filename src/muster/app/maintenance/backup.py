"""`muster db backup`: all state of a cluster at one moment, in a file."""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from muster.app.maintenance.files import name_it, there_already, unfinished
from muster.store.database.reading import reading
from muster.store.transfer.dump import write_dump
from muster.store.transfer.source import DatabaseSource, Origin
from muster.version import __version__


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made; ``made_at`` is in seconds since the epoch."""

    file: Path
    rows: int
    size_bytes: int
    made_at: float


def back_up(url: str, file: Path) -> Backup:
    """Write the state that a database has at this moment to a new file, whether or not a controller
    runs.

    Raises:
        MusterError: there is no state, or the file exists already or cannot be written.
    """
    if file.exists():
        raise there_already(file)
    with unfinished(file) as path:
        made = write_state(url, path)
        name_it(path, file)
    return replace(made, file=file)


def write_state(url: str, path: Path) -> Backup:
    """Write the state that a database has at this moment into a file, safe on the disk.

    Raises:
        MusterError: there is no state.
        OSError: the file cannot be written.
    """
    with reading(url) as (connection, migration):
        origin = Origin(migration, __version__, time.time())
        with path.open("wb") as written:
            rows = write_dump(DatabaseSource(connection, origin), written)
            written.flush()
            os.fsync(written.fileno())
    return Backup(path, rows, path.stat().st_size, origin.made_at)
