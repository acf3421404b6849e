"""The uids of users over a restore: one that was given since the backup owns files, and is given to
nobody else."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection, insert, select

from muster.store import schema
from muster.store.database import HEAD, DatabaseUnusable
from muster.store.database.reading import reading
from muster.store.queries.cluster import read_cluster_id

GivenRows: TypeAlias = Sequence[dict[str, Any]]
"""Rows of the table of uids, by the names of their columns."""


def given_uids(url: str) -> tuple[str, GivenRows]:
    """The id of the cluster in a database, and the uids that it has given; nothing of a state of an
    older version, or that cannot be read, which is why it is about to be replaced."""
    try:
        with reading(url) as (connection, migration):
            if migration == HEAD:
                rows = connection.execute(select(schema.uids)).mappings()
                return read_cluster_id(connection), [dict(row) for row in rows]
    except DatabaseUnusable:
        pass
    return "", []


def keep_given(connection: Connection, cluster: str, given: GivenRows) -> None:
    """Add the uids that a cluster gave to the state of it that is being restored. A state of
    another cluster knows nothing of them."""
    if not given or read_cluster_id(connection) != cluster:
        return
    uids = schema.uids.c
    users = {(row.domain, row.user) for row in connection.execute(select(uids.domain, uids.user))}
    known = set(connection.scalars(select(uids.uid)))
    missing = [
        row
        for row in given
        if row["uid"] not in known and (row["domain"], row["user"]) not in users
    ]
    if missing:
        connection.execute(insert(schema.uids), missing)
