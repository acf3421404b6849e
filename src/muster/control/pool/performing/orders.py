"""The things that effects name by ids alone, as the database has it when they are carried out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, select, union_all

from muster.control.pool.effects import DeleteSlice, ListMachines, MakeSlice, ReadLog
from muster.control.pool.performing.objects import account_of
from muster.control.pool.records import SliceId, load_machines, pools, slices
from muster.control.pool.specs import Revision, load_spec, pool_revisions
from muster.control.pool.states import POOL_TABLE, PoolStatus
from muster.core.specs.pool import PoolSpec
from muster.core.states.slice import SLICE_TABLE
from muster.providers.provider import Machine, MachineState
from muster.store.queries.cluster import read_cluster_id
from muster.store.sql import one_of

MAX_ACCOUNTS = 16
"""Providers and settings, of one pool and its older slices, that one list asks."""


@dataclass(frozen=True, slots=True)
class Order:
    """The part that all effects have.

    Args:
        spec: the pool's, as the slice has it.
        secret: the slice's join token, which no text may contain; empty if there is none.
    """

    cluster: str
    pool: str
    spec: PoolSpec
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Making(Order):
    """A slice to be made."""

    group: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """The accounts in which machines of a pool may be: the present one first.

    Args:
        is_all: false where they are too many, so that these are some of them.
        is_last: whether the pool is being deleted and has no slice any more.
    """

    orders: tuple[Order, ...]
    is_all: bool
    is_last: bool = False


_IS_LIVE = one_of(pools.c.status, POOL_TABLE.live)


def read_spec(connection: Connection, revision: Revision) -> PoolSpec | None:
    """The spec of a pool's revision; None if it is neither the present one nor has slices."""
    (name, number), former = revision, pool_revisions.c
    c = pools.c
    present = select(c.spec).where(c.name == name, c.revision == number, _IS_LIVE)
    kept = select(former.spec).where(former.pool == name, former.revision == number)
    spec = connection.execute(union_all(present, kept)).scalar()
    return None if spec is None else load_spec(spec)


def read_pools(connection: Connection, ids: Collection[SliceId]) -> Mapping[SliceId, str]:
    """The pools of those slices that exist."""
    rows = connection.execute(select(slices.c.id, slices.c.pool).where(slices.c.id.in_(ids)))
    return {row.id: row.pool for row in rows}


def read_ended(connection: Connection, ids: Collection[SliceId]) -> frozenset[SliceId]:
    """The slices among these that have ended."""
    ended = one_of(slices.c.status, SLICE_TABLE.terminal)
    rows = connection.execute(select(slices.c.id).where(slices.c.id.in_(ids), ended))
    return frozenset(rows.scalars())


def read_making(connection: Connection, effect: MakeSlice) -> Making | None:
    """None if the slice is gone, or is not to be made any more, or another effect was emitted for
    it since."""
    row = connection.execute(select(slices).where(slices.c.id == effect.slice)).first()
    if row is None or not row.secret or row.generation != effect.generation:
        return None
    spec = read_spec(connection, (row.pool, row.revision))
    if spec is None:
        return None
    return Making(
        cluster=read_cluster_id(connection),
        pool=row.pool,
        spec=spec,
        secret=row.secret,
        group=row.group,
        names=tuple(machine.name for machine in load_machines(row.machines)),
    )


def read_deleting(connection: Connection, effect: DeleteSlice) -> Order | None:
    """None if nothing is known of the slice and its pool. A slice whose spec is forgotten, or that
    was never known, is deleted with the pool's newest one."""
    cluster, c = read_cluster_id(connection), slices.c
    its = select(c.pool, c.revision, c.secret).where(c.id == effect.slice)
    row = connection.execute(its).first()
    if row is not None:
        spec = read_spec(connection, (row.pool, row.revision))
        if spec is not None:
            return Order(cluster, effect.pool, spec, row.secret)
    newest_first = select(pools.c.spec).where(pools.c.name == effect.pool)
    newest = connection.execute(newest_first.order_by(pools.c.id.desc())).scalar()
    return None if newest is None else Order(cluster, effect.pool, load_spec(newest))


def read_silent(connection: Connection, effect: ReadLog) -> tuple[Order, Machine] | None:
    """The machine whose last words are asked for; None if its provider has not told its id."""
    row = connection.execute(select(slices).where(slices.c.id == effect.slice)).first()
    machines = () if row is None else load_machines(row.machines)
    own = next((each for each in machines if each.name == effect.machine and each.id), None)
    spec = None if row is None else read_spec(connection, (row.pool, row.revision))
    if row is None or own is None or spec is None:
        return None
    order = Order(read_cluster_id(connection), row.pool, spec, row.secret)
    return order, Machine(own.id, row.id, own.name, MachineState.COMING, own.address)


def read_listed(connection: Connection, effect: ListMachines) -> Listed | None:
    """None if there is no such pool any more."""
    cluster = read_cluster_id(connection)
    present = select(pools.c.spec, pools.c.status).where(pools.c.name == effect.pool, _IS_LIVE)
    pool = connection.execute(present).first()
    if pool is None:
        return None
    c = pool_revisions.c
    newest_first = select(c.spec).where(c.pool == effect.pool).order_by(c.revision.desc())
    specs = map(load_spec, (pool.spec, *connection.execute(newest_first).scalars()))
    accounts: dict[tuple[str, str], PoolSpec] = {}
    for each in specs:
        accounts.setdefault(account_of(each), each)
    orders = [Order(cluster, effect.pool, each) for each in accounts.values()]
    of_pool = slices.c.pool == effect.pool, one_of(slices.c.status, SLICE_TABLE.live)
    has_slices = connection.execute(select(slices.c.id).where(*of_pool).limit(1)).first()
    is_last = pool.status == PoolStatus.DELETING and has_slices is None
    return Listed(tuple(orders[:MAX_ACCOUNTS]), len(orders) <= MAX_ACCOUNTS, is_last)
