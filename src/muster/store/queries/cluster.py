"""The cluster itself."""

from sqlalchemy import Connection, select

from muster.store import schema


def read_cluster_id(connection: Connection) -> str:
    """The name that the cluster got when it was made; empty if it got none."""
    c = schema.cluster.c
    return connection.execute(select(c.value).where(c.key == "id")).scalar() or ""
