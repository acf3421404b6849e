"""`muster db check`: stored rows are compared with the rows from which they follow."""

from collections.abc import Iterator

from sqlalchemy import Connection, text

from muster.control.modules import cluster_audits, cluster_entities
from muster.store.audit.finding import Audit, Finding, Stored, carry_out, stored_in
from muster.store.audit.finding import Audited as Audited
from muster.store.database import HEAD, DatabaseUnusable, shown_url
from muster.store.database.reading import reading

MOST_TOLD = 20
"""Findings of one audit that are told; the others are counted."""
_MOST_FAULTS = 100


def check(url: str) -> Iterator[Audited]:
    """Audit all that a database holds at this moment; nothing is changed, and a controller that
    runs goes on.

    Raises:
        DatabaseUnusable: it cannot be read, or has to be migrated first.
    """
    with reading(url) as (connection, migration):
        if migration != HEAD:
            raise DatabaseUnusable(
                f"the database {shown_url(url)} is of an older version of Muster (migration "
                f"{migration}, this one's is {HEAD}): run `muster db migrate` first"
            )
        stored = stored_in(connection, cluster_entities())
        for audit in (*_of_file(connection), *cluster_audits()):
            yield carry_out(audit, stored, MOST_TOLD)


def _of_file(connection: Connection) -> Iterator[Audit]:
    if connection.dialect.name == "sqlite":
        yield Audit("the file is sound", _faults)


def _faults(stored: Stored) -> Iterator[Finding]:
    found = stored.connection.execute(text(f"PRAGMA integrity_check({_MOST_FAULTS})"))
    for (fault,) in found:
        if fault != "ok":
            yield Finding("the file", fault)
