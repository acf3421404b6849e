"""Copying a cluster's state away while it runs, and putting a copy back.

A running database is ``muster.db`` and its write-ahead log. A copy of the file alone would lack the
latest commits, so SQLite makes the copy (https://www.sqlite.org/backup.html).
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from muster.app.home import Home, default_home
from muster.core.errors import MusterError
from muster.store.database import DatabaseUnusable, known_version

BUSY_TIMEOUT_S = 30.0
_OF_WAL = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Backup:
    """The result of a backup or a restore. ``kept_aside`` is where the state of before a restore is
    now."""

    file: Path
    size_bytes: int
    kept_aside: Path | None = None


def back_up(file: Path, home: Path | None = None) -> Backup:
    """Copy the state of the home's cluster at one moment to a new file, whether or not the
    controller runs.

    Raises:
        MusterError: there is no state, or the file exists already or cannot be written.
    """
    source = Home(home or default_home()).database
    if not source.exists():
        raise MusterError(f"there is nothing to back up: {source} does not exist")
    if file.exists():
        raise MusterError(f"{file} is there already: choose another name, or remove it")
    with _written(file) as temporary:
        _copy(source, temporary)
        try:
            os.link(temporary, file)  # unlike a rename, it replaces nothing
        except FileExistsError:
            raise MusterError(f"{file} is there already: choose another name") from None
    return Backup(file, file.stat().st_size)


def restore(file: Path, home: Path | None = None) -> Backup:
    """Put a copy in the place of the home's state, which is kept aside. No controller may run.

    Raises:
        Conflict: a controller runs on the home.
        MusterError: the file is no copy of a Muster database, damaged, or of a newer version.
    """
    place = Home(home or default_home())
    place.create()
    with place.locked():
        _check(file)
        aside: Path | None = None
        with _written(place.database) as temporary:
            _copy(file, temporary)
            _check(temporary)
            if place.database.exists():
                aside = _keep_aside(place.database)
            temporary.replace(place.database)
    return Backup(file, place.database.stat().st_size, aside)


def _keep_aside(database: Path) -> Path:
    """Give the database another name besides its own, after its log was written into it."""
    aside = database.with_name(f"{database.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
    # A damaged database keeps its log beside it.
    with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.link(database, aside)
    for end in _OF_WAL:
        with suppress(FileNotFoundError):
            database.with_name(database.name + end).rename(aside.with_name(aside.name + end))
    return aside


@contextmanager
def _written(file: Path) -> Iterator[Path]:
    """A new file beside ``file``, for its owner only, which is removed at the end unless it was
    renamed. The directory is synchronized to the disk.

    Raises:
        MusterError: it cannot be written.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            yield temporary
            directory = os.open(file.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise MusterError(f"cannot write {file}: {error.strerror}") from None


def _copy(source: Path, target: Path) -> None:
    """Copy a database into an empty file, as one file without a log, down to the disk.

    Raises:
        MusterError: SQLite cannot copy it.
    """
    try:
        with closing(_reading(source)) as original, closing(sqlite3.connect(target)) as copy:
            original.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise MusterError(f"cannot copy {source}: {error}") from None
    descriptor = os.open(target, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(file: Path) -> None:
    """
    Raises:
        MusterError: the file is no whole Muster database, or of a version that this one does not
            know.
    """
    if not file.exists():
        raise MusterError(f"{file} does not exist")
    try:
        with closing(_reading(file)) as connection:
            problems = connection.execute("PRAGMA integrity_check(3)").fetchall()
            if problems != [("ok",)]:
                raise MusterError(f"{file} is damaged: {problems[0][0]}")
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            connection.execute("SELECT id FROM sessions LIMIT 1")
    except sqlite3.Error as error:
        raise MusterError(f"{file} is no copy of a Muster database ({error})") from None
    version = row[0] if row else None
    if version is None or not known_version(version):
        raise DatabaseUnusable(
            f"{file} was written by a newer version of Muster (migration {version}): install that "
            f"one to restore it"
        )


def _reading(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
