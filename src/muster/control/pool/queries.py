"""Pools and slices in SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, case, func, select

from muster.control.pool.records import (
    POOL,
    POOLS,
    SLICE,
    OwnMachine,
    load_machines,
    pools,
    slices,
)
from muster.control.pool.views import (
    HOUR_S,
    MAX_MACHINES,
    machine_view,
    slice_view,
    stored_pool,
)
from muster.core.owner import Principal
from muster.core.states.slice import SLICE_TABLE
from muster.core.views.pools import PoolPage, PoolView, SlicePage, SliceView, UsageView
from muster.store.fields import load_reason
from muster.store.queries.listing import Listing, listed, page_of
from muster.store.queries.refs import resolve
from muster.store.sql import one_of

MAX_ENDED = 10_000
"""Slices that ended, of all pools, whose use is summed up."""
_LISTED = [each for each in slices.c if each.name not in {"machines", "secret"}]


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
    c = slices.c
    row = connection.execute(select(*_LISTED).where(c.id == id_)).one()
    machines = connection.execute(select(c.machines).where(c.id == id_)).scalar_one()
    return _slice(row, load_machines(machines))


def list_slices(
    connection: Connection, principal: Principal, listing: Listing, *, pool: str | None = None
) -> SlicePage:
    """Slices as they are stored, of one pool if it is given; their machines are only counted."""
    query = select(*_LISTED)
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
    """The use of the newest slices that have ended, of ``MAX_ENDED`` at most."""
    c = slices.c
    hours = c.made * (c.finished_at - c.created_at) / HOUR_S
    each = select(
        c.group, c.finished_at, hours.label("hours"), (hours * c.machine_price).label("cost")
    )
    ended = each.where(one_of(c.status, SLICE_TABLE.terminal)).order_by(c.id.desc())
    newest = ended.limit(MAX_ENDED).subquery().c
    sums = select(
        newest.group,
        func.count().label("slices"),
        func.sum(_or_0(newest.hours)).label("hours"),
        func.sum(_or_0(newest.cost)).label("cost"),
        func.min(newest.finished_at).label("since"),
    )
    rows = connection.execute(sums.group_by(newest.group)).all()
    uses = {
        row.group: UsageView(slices=row.slices, machine_hours=row.hours, cost=row.cost)
        for row in rows
    }
    return EndedUse(uses, min((row.since for row in rows), default=None))


def _or_0(amount: ColumnElement[float]) -> ColumnElement[float]:
    """No less than 0: clocks may go back."""
    return case((amount > 0, amount), else_=0.0)


def _pool(row: Row[Any]) -> PoolView:
    return stored_pool(POOLS.load(row))


def _slice(row: Row[Any], machines: Sequence[OwnMachine] = ()) -> SliceView:
    return slice_view(
        row,
        row.status_changed_at,
        size=row.size,
        machine_price=row.machine_price,
        machines=[machine_view(each, None) for each in machines[:MAX_MACHINES]],
        doomed=load_reason(row.doomed, row.doomed_numbers),
        reason=load_reason(row.reason, row.reason_numbers),
    )
