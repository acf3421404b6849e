"""The records of pools and slices, their tables, and the mappings between them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NewType

from sqlalchemy import Column, Connection, Float, Index, Integer, Row, String, Table, Text, select

from muster.autoscaling.standing import GOOD, CreateOutcome, Standing
from muster.control.pool.specs import dump_spec, load_spec, read_former_specs
from muster.control.pool.states import POOL_TABLE, PoolStatus
from muster.core.ids import IdKind
from muster.core.reasons import Reason
from muster.core.specs.pool import MachineShape, PoolSpec
from muster.core.states.slice import SLICE_TABLE, SliceStatus
from muster.store import schema
from muster.store.entity import Entity, Tried, Visible
from muster.store.live import Live
from muster.store.lookup import Lookup
from muster.store.mapping import RowMapping, Source
from muster.store.rows import REASON, load_reason
from muster.store.sql import one_of

if TYPE_CHECKING:
    from muster.control.pool.effects import SliceDeleted, SliceMade
    from muster.store.unit import Unit

PoolId = NewType("PoolId", str)
SliceId = NewType("SliceId", str)

pools = Table(
    "pools",
    schema.metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("group", String, nullable=False),
    Column("spec", Text, nullable=False),  # JSON, as PoolSpec
    Column("revision", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float, nullable=True),
    Column("standing", Text, nullable=False),  # JSON, as Standing
    Column("reported", Text, nullable=False),  # JSON, as MachineShape; empty until known
    Column("losses", Text, nullable=False),  # JSON, moments
    Column("pardoned_at", Float, nullable=False),
    Column("replacing", Integer, nullable=False),
    Column("was_paused", Integer, nullable=False, server_default="0"),
    Column("tries", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),
    *schema.reason_columns(),
    sqlite_with_rowid=False,
)
Index(
    "pools_by_name",
    pools.c.name,
    unique=True,  # among pools that exist
    sqlite_where=pools.c.status.in_(sorted(POOL_TABLE.live)),
    postgresql_where=pools.c.status.in_(sorted(POOL_TABLE.live)),
)

slices = Table(
    "slices",
    schema.metadata,
    Column("id", String, primary_key=True),
    Column("pool", String, nullable=False),
    Column("group", String, nullable=False),
    Column("revision", Integer, nullable=False),  # of the pool, whose spec it has
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("ready_at", Float, nullable=True),
    Column("finished_at", Float, nullable=True),
    Column("machines", Text, nullable=False),  # JSON, as OwnMachine
    Column("size", Integer, nullable=False, server_default="0"),  # how many these are
    Column("made", Integer, nullable=False, server_default="0"),  # of those, with an id
    Column("machine_price", Float, nullable=False, server_default="0"),  # of one, for an hour
    Column("secret", Text, nullable=False),  # a join token; empty once it is of no use
    Column("failed", Integer, nullable=False),
    Column("doomed", String, nullable=True),  # the reason for which it is to be deleted
    Column("doomed_numbers", Text, nullable=True),
    Column("doomed_at", Float, nullable=True),
    Column("leave_by", Float, nullable=True),
    Column("held_by", String, nullable=True),
    Column("idle_since", Float, nullable=True),
    Column("generation", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),
    *schema.reason_columns(),
    sqlite_with_rowid=False,
)
Index(
    "slices_live",
    slices.c.id,
    sqlite_where=slices.c.status.in_(sorted(SLICE_TABLE.live)),
    postgresql_where=slices.c.status.in_(sorted(SLICE_TABLE.live)),
)
Index("slices_by_pool", slices.c.pool, slices.c.id)


@dataclass(frozen=True, slots=True)
class OwnMachine:
    """A machine of a slice: the name that its agent takes, the provider's id, and an address for
    people; both are empty until the provider has told them."""

    name: str
    id: str = ""
    address: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class Pool(Tried):
    """A pool of a scaling group.

    ``revision`` counts the changes of ``spec`` that concern its machines. ``reported`` is the shape
    that its machines have, as their agents say, None until some were ready. ``losses`` are the
    moments at which it lost slices of late. Machines that were silent at ``pardoned_at`` do not
    make it trip. ``replacing`` is how many slices of former revisions may be replaced at a time, 0
    if none are; ``reason`` is why it is in its status, and ``was_paused`` whether it was PAUSED
    when it began to stand still.

    Not stored: ``generation`` counts the lists of its machines that were asked for; ``asked_at`` is
    when the one under way was asked for, None if there is none, and ``tried_at`` the last one;
    ``asked_alone`` is whether it was to be deleted, had no slices, and no call about it could still
    make machines, when that one was asked for;
    ``listed_at`` is when the last list came, ``heard_at`` when the last one came that was complete
    or had machines, and ``list_error`` why the last one failed;
    ``is_bare`` is whether a list that was asked for so was complete and empty.
    """

    id: PoolId
    name: str
    group: str
    spec: PoolSpec
    revision: int
    status: PoolStatus
    created_at: float
    finished_at: float | None = None
    standing: Standing = GOOD
    reported: MachineShape | None = None
    losses: tuple[float, ...] = ()
    pardoned_at: float = 0.0
    replacing: int = 0
    was_paused: bool = False
    reason: Reason | None = None
    generation: int = 0
    asked_at: float | None = None
    tried_at: float | None = None
    listed_at: float | None = None
    heard_at: float | None = None
    list_error: str = ""
    asked_alone: bool = False
    is_bare: bool = False

    @property
    def effective(self) -> PoolSpec:
        """The spec with the shape that machines really have."""
        if self.reported is None:
            return self.spec
        return self.spec.model_copy(update={"machine": self.reported})


@dataclass(slots=True, eq=False, kw_only=True)
class Slice(Tried):
    """Machines of a pool that are made and deleted together; ``spec`` is that of the pool's
    ``revision``, which all slices of that share, and the pool while it is its present one.

    ``doomed`` is why it is to be deleted, None if it is not, and ``failed`` whether that is because
    it went wrong; work has to have left it by ``leave_by``. ``held_by`` is the operator who keeps
    it. ``idle_since`` is since when nobody used it nor was promised room on it. ``generation``
    counts the effects that were emitted for it; ``reason`` is why the last one failed, or its end.

    Not stored: ``handed_at``, when the effect under way was emitted, None if there is none;
    ``outcome``, its outcome; ``missing``, in how many complete lists in a row a machine of it was
    not; ``gone``, the names of those machines; ``listed``, when each was in one for the first time;
    ``stays``, why it is not deleted; ``details``, what its provider said of each machine in the
    last list; ``asked_words``, when the last words of one that does not join were asked for in the
    present status, and ``words``, these by its name, None until they are known.
    """

    id: SliceId
    pool: str
    group: str
    spec: PoolSpec
    revision: int
    status: SliceStatus
    created_at: float
    machines: tuple[OwnMachine, ...]
    secret: str = field(repr=False)
    ready_at: float | None = None
    finished_at: float | None = None
    failed: bool = False
    doomed: Reason | None = None
    doomed_at: float | None = None
    leave_by: float | None = None
    held_by: str | None = None
    idle_since: float | None = None
    generation: int = 0
    reason: Reason | None = None
    handed_at: float | None = None
    outcome: "SliceMade | SliceDeleted | None" = None
    missing: int = 0
    gone: frozenset[str] = frozenset()
    listed: dict[str, float] = field(default_factory=dict)
    stays: Reason | None = None
    details: dict[str, str] = field(default_factory=dict)
    asked_words: float | None = None
    words: dict[str, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its agents."""
        return tuple(machine.name for machine in self.machines)

    @property
    def price(self) -> float:
        """Of its machines, for an hour."""
        return len(self.machines) * self.spec.price

    @property
    def made(self) -> int:
        """How many of its machines the provider has made."""
        return machines_made(self.machines)

    @property
    def is_coming(self) -> bool:
        """Whether its machines are still to take work for the first time."""
        return self.status is not SliceStatus.READY and self.doomed is None


# Rows


def _dump_standing(standing: Standing) -> str:
    return json.dumps(
        [
            standing.outcome,
            standing.in_a_row,
            standing.failures,
            standing.closed_until,
            standing.told,
        ]
    )


def _load_standing(text: str) -> Standing:
    outcome, *rest = json.loads(text)
    return Standing(None if outcome is None else CreateOutcome(outcome), *rest)


def _dump_shape(shape: MachineShape | None) -> str:
    return "" if shape is None else shape.model_dump_json(exclude_defaults=True)


def _load_shape(text: str) -> MachineShape | None:
    return MachineShape.model_validate_json(text) if text else None


def _dump_machines(machines: Sequence[OwnMachine]) -> str:
    return json.dumps([[each.name, each.id, each.address] for each in machines])


def machines_made(machines: Iterable[OwnMachine]) -> int:
    """How many of these the provider has made."""
    return sum(bool(each.id) for each in machines)


def load_machines(text: str) -> tuple[OwnMachine, ...]:
    return tuple(OwnMachine(*fields) for fields in json.loads(text))


_DOOM: Mapping[str, Source] = {
    "doomed": ("doomed", lambda doomed: doomed and doomed.code),
    "doomed_numbers": ("doomed", lambda doomed: doomed and doomed.to_json()),
}


def load_pool(row: Row[Any]) -> Pool:
    return Pool(
        id=PoolId(row.id),
        name=row.name,
        group=row.group,
        spec=load_spec(row.spec),
        revision=row.revision,
        status=PoolStatus(row.status),
        status_changed_at=row.status_changed_at,
        created_at=row.created_at,
        finished_at=row.finished_at,
        standing=_load_standing(row.standing),
        reported=_load_shape(row.reported),
        losses=tuple(json.loads(row.losses)),
        pardoned_at=row.pardoned_at,
        replacing=row.replacing,
        was_paused=bool(row.was_paused),
        tries=row.tries,
        retry_at=row.retry_at,
        reason=load_reason(row.reason, row.reason_numbers),
    )


def _load_slice(row: Row[Any], spec: PoolSpec) -> Slice:
    return Slice(
        id=SliceId(row.id),
        pool=row.pool,
        group=row.group,
        spec=spec,
        revision=row.revision,
        status=SliceStatus(row.status),
        status_changed_at=row.status_changed_at,
        created_at=row.created_at,
        ready_at=row.ready_at,
        finished_at=row.finished_at,
        machines=load_machines(row.machines),
        secret=row.secret,
        failed=bool(row.failed),
        doomed=load_reason(row.doomed, row.doomed_numbers),
        doomed_at=row.doomed_at,
        leave_by=row.leave_by,
        held_by=row.held_by,
        idle_since=row.idle_since,
        generation=row.generation,
        tries=row.tries,
        retry_at=row.retry_at,
        reason=load_reason(row.reason, row.reason_numbers),
    )


_LIVE_POOLS = Lookup(
    select(pools).where(one_of(pools.c.status, POOL_TABLE.live)).order_by(pools.c.id)
)
_LIVE_SLICES = Lookup(
    select(slices).where(one_of(slices.c.status, SLICE_TABLE.live)).order_by(slices.c.id)
)


def _load_pools(connection: Connection, live: Live) -> None:
    for row in _LIVE_POOLS.named(connection):
        live.add(load_pool(row))


def _load_slices(connection: Connection, live: Live) -> None:
    specs = dict(read_former_specs(connection))
    specs |= {(pool.name, pool.revision): pool.spec for pool in live.of(Pool).values()}
    for row in _LIVE_SLICES.named(connection):
        live.add(_load_slice(row, specs[row.pool, row.revision]))


def _pool_moved(unit: "Unit", pool: Pool, before: StrEnum) -> None:
    pool.was_paused = pool.status is PoolStatus.TRIPPED and before is PoolStatus.PAUSED


POOL = Entity(
    "pool",
    Pool,
    POOL_TABLE,
    RowMapping[Pool](
        pools,
        changing=(
            "group",
            "revision",
            "status",
            "status_changed_at",
            "finished_at",
            "standing",
            "reported",
            "losses",
            "pardoned_at",
            "replacing",
            "was_paused",
            "tries",
            "retry_at",
            *REASON,
        ),
        seldom=("spec",),
        sources={
            "spec": ("spec", dump_spec),
            "was_paused": ("was_paused", int),
            "standing": ("standing", _dump_standing),
            "reported": ("reported", _dump_shape),
            "losses": ("losses", json.dumps),
            **REASON,
        },
    ),
    _load_pools,
    described="machines of one kind that a provider makes",
    prefix=IdKind.POOL,
    visible=Visible.TO_ALL,
    lasts=True,
    moved=_pool_moved,
)

SLICE = Entity(
    "slice",
    Slice,
    SLICE_TABLE,
    RowMapping[Slice](
        slices,
        changing=(
            "status",
            "status_changed_at",
            "ready_at",
            "finished_at",
            "machines",
            "size",
            "made",
            "machine_price",
            "secret",
            "failed",
            "doomed",
            "doomed_numbers",
            "doomed_at",
            "leave_by",
            "held_by",
            "idle_since",
            "generation",
            "tries",
            "retry_at",
            *REASON,
        ),
        sources={
            "machines": ("machines", _dump_machines),
            "size": ("machines", len),
            "made": ("machines", machines_made),
            "machine_price": ("spec", attrgetter("price")),
            "failed": ("failed", int),
            **_DOOM,
            **REASON,
        },
    ),
    _load_slices,
    described="machines that a provider makes and deletes together",
    prefix=IdKind.SLICE,
    visible=Visible.TO_ALL,
)
