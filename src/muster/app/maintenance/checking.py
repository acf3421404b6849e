"""`muster db check`: stored rows are compared with the rows from which they follow."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text

from muster.control.modules import cluster_audits, cluster_entities
from muster.store.audit.finding import Audit, AuditFinding, Stored, carry_out, stored_in
from muster.store.audit.finding import Audited as Audited
from muster.store.database import HEAD, DatabaseUnusable, shown_url
from muster.store.database.reading import reading

MOST_TOLD = 20
"""Findings of one audit that are told; the others are counted."""
_MOST_FAULTS = 100
REPORT_S = 5.0
LIMIT_S = 3600.0
"""How long all audits together may take; then the statement under way is broken off."""

Progress = Callable[[str, float], None]
"""Takes the title of the audit under way, and for how many seconds it has been."""


def check(
    url: str, progress: Progress = lambda title, took_s: None, limit_s: float = LIMIT_S
) -> Iterator[Audited]:
    """Audit all that a database holds at this moment; nothing is changed, and a controller that
    runs goes on.

    Args:
        progress: is called every ``REPORT_S`` during an audit, on another thread.

    Raises:
        DatabaseUnusable: it cannot be read, or has to be migrated first, or that took too long.
    """
    with reading(url) as (connection, migration):
        if migration != HEAD:
            raise DatabaseUnusable(
                f"the database {shown_url(url)} is of an older version of Muster (migration "
                f"{migration}, this one's is {HEAD}): run `muster db migrate` first"
            )
        stored = stored_in(connection, cluster_entities())
        until_s = time.monotonic() + limit_s
        for audit in (*_of_file(connection), *cluster_audits()):
            with _watched(connection, audit.title, progress, until_s):
                audited = carry_out(audit, stored, MOST_TOLD)
            yield audited


@contextmanager
def _watched(
    connection: Connection, title: str, progress: Progress, until_s: float
) -> Iterator[None]:
    """Report an audit while it is under way, and break its statement off after ``until_s``."""
    is_done = threading.Event()
    began_s = time.monotonic()
    raw = connection.connection.driver_connection
    interrupt = raw.interrupt if connection.dialect.name == "sqlite" else raw.cancel  # type: ignore[union-attr]

    def watch() -> None:
        while not is_done.wait(min(REPORT_S, max(until_s - time.monotonic(), 0.01))):
            now_s = time.monotonic()
            if now_s >= until_s:
                interrupt()
            else:
                progress(title, now_s - began_s)

    watching = threading.Thread(target=watch, name="database check", daemon=True)
    watching.start()
    try:
        yield
    finally:
        is_done.set()
        watching.join()


def _of_file(connection: Connection) -> Iterator[Audit]:
    if connection.dialect.name == "sqlite":
        yield Audit("the file is sound", _faults)


def _faults(stored: Stored) -> Iterator[AuditFinding]:
    found = stored.connection.execute(text(f"PRAGMA integrity_check({_MOST_FAULTS})"))
    for (fault,) in found:
        if fault != "ok":
            yield AuditFinding("the file", fault)
