"""Making a database out of rows that come from elsewhere: it is there as a whole, or not at all."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from muster.app.maintenance.files import name_it, stamp, synchronize, there_already, unfinished
from muster.control.agent.leases import IN_CHARGE_S
from muster.control.modules import cluster_audits, cluster_entities
from muster.store.audit.finding import Audited, carry_out, stored_in
from muster.store.database.address import sqlite_file
from muster.store.database.creating import new_file, new_on_server
from muster.store.database.migrating import migrate
from muster.store.fence import Fence, Holder
from muster.store.transfer.filling import fill
from muster.store.transfer.source import Source

_OF_WAL = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Made:
    """A database that was made. ``kept_aside`` says where the former state is, if there was one;
    ``differing`` are the audits that found something, which they would have found in what the rows
    came from, too."""

    rows: int
    kept_aside: str | None
    differing: Sequence[Audited]


def make(
    url: str,
    source: Source,
    *,
    replace: bool,
    change: Callable[[Connection], object] = lambda connection: None,
) -> Made:
    """Have the database hold all rows of ``source`` and nothing else, with this version's tables.

    Args:
        replace: whether the state that the database has now is kept aside; else it must have none.
        change: what is changed in the rows before anybody sees them.

    Raises:
        MusterError: it has a state, is in use, refuses a row, or cannot be written. Then it is as
            before.
    """
    file = sqlite_file(url)
    made = _on_server(url, replace) if file is None else _in_file(file, replace)
    with made as (connection, kept_aside):
        migrate(connection, source.origin.migration)
        rows = fill(connection, source)
        migrate(connection)
        change(connection)
        # Whoever writes to the state of before, although nobody should, does so no more.
        # Nobody knows that it is gone, unless a file is replaced, whose lock proves it.
        renews_s = 0.0 if file is not None else IN_CHARGE_S
        Fence(Holder("`muster db`", time.time(), renews_s=renews_s)).take(connection)
        stored = stored_in(connection, cluster_entities())
        audited = [carry_out(audit, stored, 0) for audit in cluster_audits()]
    return Made(rows, kept_aside, [each for each in audited if each.found or each.trouble])


@contextmanager
def _on_server(url: str, replace: bool) -> Iterator[tuple[Connection, str | None]]:
    schema = f"before_{stamp().replace('-', '_')}"
    with new_on_server(url, schema if replace else None) as (connection, was_empty):
        yield connection, None if was_empty else f"schema {schema} of the same database"


@contextmanager
def _in_file(file: Path, replace: bool) -> Iterator[tuple[Connection, str | None]]:
    aside = None
    if file.exists():
        if not replace:
            raise there_already(file)
        aside = file.with_name(f"{file.name}.before-{stamp()}")
    with unfinished(file) as path:
        with new_file(path) as connection:
            yield connection, None if aside is None else str(aside)
        synchronize(path)
        if aside is None:
            name_it(path, file)
        else:
            _keep_aside(file, aside)
            path.replace(file)


def _keep_aside(database: Path, aside: Path) -> None:
    """Give the database another name besides its own, after its log was written into it."""
    # A damaged database keeps its log beside it.
    with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.link(database, aside)
    for end in _OF_WAL:
        with suppress(FileNotFoundError):
            database.with_name(database.name + end).rename(aside.with_name(aside.name + end))
