"""Pools and slices in SQL."""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select

from muster.control.pool.records import (
    POOL,
    SLICE,
    load_machines,
    load_pool,
    load_slice,
    pools,
    slices,
)
from muster.control.pool.views import HOUR_S, stored_pool, stored_slice
from muster.core.owner import Principal
from muster.core.states.slice import SLICE_TABLE
from muster.core.views.pools import PoolPage, PoolView, SlicePage, SliceView, UsageView
from muster.store.queries.listing import Listing, listed, page_of
from muster.store.queries.refs import resolve
from muster.store.sql import one_of

MAX_ENDED = 10_000
"""Slices that ended, of all pools, whose use is summed up."""
MAX_ENDED_MACHINES = 100_000
"""Machines of such slices: to read these takes a third of a second."""


def read_pool(connection: Connection, principal: Principal, ref: str) -> PoolView:
    """
    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    id_ = resolve(connection, POOL, principal, ref)
    return _pool(connection.execute(select(pools).where(pools.c.id == id_)).one())


def list_pools(connection: Connection, principal: Principal, listing: Listing) -> PoolPage:
    """Pools as they are stored."""
    rows = connection.execute(listed(select(pools), POOL, principal, listing)).all()
    items, cursor = page_of(rows, listing, _pool)
    return PoolPage(items=items, next=cursor)


def read_slice(connection: Connection, principal: Principal, ref: str) -> SliceView:
    """
    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    id_ = resolve(connection, SLICE, principal, ref)
    return _slice(connection.execute(select(slices).where(slices.c.id == id_)).one())


def list_slices(
    connection: Connection, principal: Principal, listing: Listing, *, pool: str | None = None
) -> SlicePage:
    """Slices as they are stored, of one pool if it is given."""
    query = select(slices)
    if pool is not None:
        query = query.where(slices.c.pool == pool)
    rows = connection.execute(listed(query, SLICE, principal, listing)).all()
    items, cursor = page_of(rows, listing, _slice)
    return SlicePage(items=items, next=cursor)


@dataclass(frozen=True, slots=True)
class EndedUse:
    """The use of slices that ended, by group, and since when they did; None if none has."""

    by_group: dict[str, UsageView]
    since: float | None


def read_ended_use(connection: Connection) -> EndedUse:
    """The use of the newest slices that have ended: of ``MAX_ENDED`` at most, or as many as had
    ``MAX_ENDED_MACHINES``."""
    c = slices.c
    query = select(c.group, c.spec, c.machines, c.created_at, c.finished_at)
    ended = query.where(one_of(c.status, SLICE_TABLE.terminal)).order_by(c.id.desc())
    prices: dict[str, float] = {}
    sums: dict[str, tuple[int, float, float]] = {}
    since: float | None = None
    left = MAX_ENDED_MACHINES
    for row in connection.execute(ended.limit(MAX_ENDED)):
        if row.spec not in prices:
            prices[row.spec] = json.loads(row.spec).get("price", 0.0)
        machines = load_machines(row.machines)
        left -= len(machines)
        if left < 0:
            break
        made = sum(bool(each.id) for each in machines)
        hours = made * max(0.0, row.finished_at - row.created_at) / HOUR_S
        number, hours_so_far, cost = sums.get(row.group, (0, 0.0, 0.0))
        sums[row.group] = (number + 1, hours_so_far + hours, cost + hours * prices[row.spec])
        since = row.finished_at if since is None else min(since, row.finished_at)
    uses = {
        group: UsageView(slices=number, machine_hours=hours, cost=cost)
        for group, (number, hours, cost) in sums.items()
    }
    return EndedUse(uses, since)


def _pool(row: Row[Any]) -> PoolView:
    return stored_pool(load_pool(row))


def _slice(row: Row[Any]) -> SliceView:
    return stored_slice(load_slice(row), row.status_changed_at)
