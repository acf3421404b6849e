"""The cluster itself."""

import json
from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select

from muster.core.clock import ClockAnchor
from muster.store import schema

_c = schema.cluster.c
_ANCHOR = "clock"


def read_cluster_id(connection: Connection) -> str:
    """The name that the cluster got when it was made; empty if it got none."""
    return _read(connection, "id")


def read_clock_anchor(connection: Connection) -> ClockAnchor | None:
    """The anchor of the controller's time that was written last; None if there is none."""
    try:
        return ClockAnchor(**json.loads(_read(connection, _ANCHOR)))
    except (ValueError, TypeError):
        return None


def write_clock_anchor(connection: Connection, anchor: ClockAnchor) -> None:
    """Write the anchor of the controller's time down, in place of the former one."""
    fields = asdict(anchor)
    connection.execute(delete(schema.cluster).where(_c.key == _ANCHOR))
    connection.execute(insert(schema.cluster).values(key=_ANCHOR, value=json.dumps(fields)))


def _read(connection: Connection, key: str) -> str:
    return connection.execute(select(_c.value).where(_c.key == key)).scalar() or ""
