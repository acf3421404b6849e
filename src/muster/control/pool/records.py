"""The records of pools and slices, and their tables."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NewType

from sqlalchemy import Connection, Float, Index, Integer

from muster.autoscaling.standing import GOOD, PoolStanding
from muster.control.pool.specs import read_former_specs
from muster.control.pool.states import POOL_TABLE, PoolStatus
from muster.core.ids import IdKind
from muster.core.reasons import Reason
from muster.core.specs.pool import MachineShape, PoolSpec
from muster.core.states.slice import SLICE_TABLE, SliceStatus
from muster.store.entity import Entity, Tried, Visible
from muster.store.fields import (
    Fixed,
    Flag,
    Key,
    LongText,
    Memory,
    Seldom,
    StoredAs,
    Written,
)
from muster.store.live import Live
from muster.store.record_table import Computed, RecordTable, index, index_live

if TYPE_CHECKING:
    from muster.control.pool.effects import SliceDeleted, SliceMade
    from muster.store.unit import Unit

PoolId = NewType("PoolId", str)
SliceId = NewType("SliceId", str)


@dataclass(frozen=True, slots=True)
class OwnMachine:
    """A machine of a slice: the name that its agent takes, the provider's id, and an address for
    people; both are empty until the provider has told them."""

    name: str
    id: str = ""
    address: str = ""


def machines_made(machines: Iterable[OwnMachine]) -> int:
    """How many of these the provider has made."""
    return sum(bool(each.id) for each in machines)


def _dump_shape(shape: MachineShape | None) -> str:
    return "" if shape is None else shape.model_dump_json(exclude_defaults=True)


def _load_shape(text: str) -> MachineShape | None:
    return MachineShape.stored(text) if text else None


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

    id: Key[PoolId]
    name: Fixed[str]
    group: str
    spec: Seldom[PoolSpec]
    revision: int
    status: PoolStatus
    created_at: Fixed[float]
    finished_at: float | None = None
    standing: PoolStanding = GOOD
    reported: Annotated[
        MachineShape | None, StoredAs(dump=_dump_shape, load=_load_shape, may_be_null=False)
    ] = None
    losses: tuple[float, ...] = ()
    pardoned_at: float = 0.0
    replacing: int = 0
    was_paused: Flag = False
    reason: Reason | None = None
    generation: Memory[int] = 0
    asked_at: Memory[float | None] = None
    tried_at: Memory[float | None] = None
    listed_at: Memory[float | None] = None
    heard_at: Memory[float | None] = None
    list_error: Memory[str] = ""
    asked_alone: Memory[bool] = False
    is_bare: Memory[bool] = False

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

    id: Key[SliceId]
    pool: Fixed[str]
    group: Fixed[str]
    spec: Memory[PoolSpec]
    revision: Fixed[int]
    status: SliceStatus
    created_at: Fixed[float]
    machines: tuple[OwnMachine, ...]
    secret: LongText = field(repr=False)
    ready_at: float | None = None
    finished_at: float | None = None
    failed: Flag = False
    doomed: Reason | None = None
    doomed_at: float | None = None
    leave_by: float | None = None
    held_by: str | None = None
    idle_since: float | None = None
    generation: int = 0
    reason: Reason | None = None
    handed_at: Memory[float | None] = None
    outcome: Memory["SliceMade | SliceDeleted | None"] = None
    missing: Memory[int] = 0
    gone: Memory[frozenset[str]] = frozenset()
    listed: Memory[dict[str, float]] = field(default_factory=dict)
    stays: Memory[Reason | None] = None
    details: Memory[dict[str, str]] = field(default_factory=dict)
    asked_words: Memory[float | None] = None
    words: Memory[dict[str, str] | None] = None

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


POOLS = RecordTable(Pool, "pools", POOL_TABLE)
pools = POOLS.table
index("pools_by_name", pools.c.name, where=pools.c.status.in_(sorted(POOL_TABLE.live)), unique=True)

_CHANGING = Written.WITH_CHANGES
SLICES = RecordTable(
    Slice,
    "slices",
    SLICE_TABLE,
    computed={
        "size": Computed(Integer, "machines", len, written=_CHANGING),
        "made": Computed(Integer, "machines", machines_made, written=_CHANGING),
        "machine_price": Computed(Float, "spec.price", written=_CHANGING),
    },
)
slices = SLICES.table
index_live(SLICES)
Index("slices_by_pool", slices.c.pool, slices.c.id)
load_machines = SLICES.loader("machines")


def _load_slices(connection: Connection, live: Live) -> None:
    specs = dict(read_former_specs(connection))
    specs |= {(pool.name, pool.revision): pool.spec for pool in live.of(Pool).values()}
    for row in SLICES.live.named(connection):
        live.add(SLICES.load(row, spec=specs[row.pool, row.revision]))


def _pool_moved(unit: "Unit", pool: Pool, before: StrEnum) -> None:
    pool.was_paused = pool.status is PoolStatus.TRIPPED and before is PoolStatus.PAUSED


POOL = Entity(
    "pool",
    POOLS,
    described="machines of one kind that a provider makes",
    prefix=IdKind.POOL,
    visible=Visible.TO_ALL,
    lasts=True,
    moved=_pool_moved,
)

SLICE = Entity(
    "slice",
    SLICES,
    _load_slices,
    described="machines that a provider makes and deletes together",
    prefix=IdKind.SLICE,
    visible=Visible.TO_ALL,
)
