"""The declaration of an entity, from which everything else follows (design: What an entity is).

The mirror, the unit of work, loading, references, history, events, the sweep and the diagrams of
states are made from the entities that a store is given. Adding an entity edits none of these.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table

from muster.core.ids import lookup_order
from muster.core.reasons import Reason, ReasonCode
from muster.core.results import SchedulingResult
from muster.core.states import StateTable
from muster.store.fields import Memory
from muster.store.record_table import RecordTable

if TYPE_CHECKING:
    from muster.store.live import Live
    from muster.store.unit import Unit


@dataclass(slots=True, eq=False, kw_only=True)
class Record:
    """A record: a row of an entity that has not ended, in memory. Only units of work change it."""

    status: StrEnum
    status_changed_at: float


R = TypeVar("R", bound=Record)


@dataclass(slots=True, eq=False)
class Repeat:
    """A history row of a record, number ``seq``, with which later equal rows merge; ``written_at``
    is when its count was last stored."""

    phase: str
    result: SchedulingResult
    reasons: tuple[Reason, ...]
    count: int
    last_at: float
    written_at: float
    seq: int

    def is_of(self, phase: str, result: SchedulingResult, codes: Sequence[ReasonCode]) -> bool:
        """Whether a history row with this phase, result and reason codes merges with this one."""
        if self.phase != phase or self.result is not result or len(self.reasons) != len(codes):
            return False
        return all(one.code is code for one, code in zip(self.reasons, codes, strict=True))


@dataclass(slots=True, eq=False, kw_only=True)
class Tried(Record):
    """A record with the engine's account of its tries, as lifecycle handlers need it.

    ``tries`` counts the failed tries of the phase that the record is in, ``retry_at`` is the
    earliest moment of the next try, ``repeats`` are the latest history rows with which equal ones
    merge.
    """

    tries: int = 0
    retry_at: float = 0.0
    repeats: Memory[tuple[Repeat, ...]] = ()


class Told(Enum):
    """The changes of a record's status that its history tells; declared by its entity."""

    ALWAYS = "always"
    WITH_REASON = "with reason"  # a plain success is told by the record that it follows
    NEVER = "never"


class Visible(Enum):
    """The people who may see the records of an entity."""

    TO_OWNER = "owner"  # and to admins; the table has columns domain, project and user
    TO_ALL = "all"
    TO_ADMINS = "admins"


class Entity(Generic[R]):
    """One kind of thing that has a life of its own.

    Args:
        name: of the kind, for people, events and history: ``session``.
        rows: its table, with the class of its records and their states.
        load: reads the records that have not ended from SQL, and adds them to the mirror. Needed
            for records that refer to others, unless they are ``listed``, and so are brought along
            by another entity's ``load``.
        described: what a record is, in a few words: the beginning of the diagram.
        prefix: of its ids, three letters: ``ses``; without one, ids tell no kind.
        visible: who may see a record.
        owned_with: the entity of a record whose owner is this one's too, if this entity's table has
            no owner.
        unsuccessful: terminal statuses that have a partial index of their own.
        id_of: the name of a record in history and events; its ``id`` unless given.
        id_column: the same in SQL; the table's ``id`` unless given.
        part_of: the record that has to be looked at whenever a record of this entity has changed.
        listed: lists the records in the mirror, if a record stays there until the record of which
            it is a part leaves (kernels: until their session does); the mirror has no index of such
            records, and the entity ``goes_with`` another.
        lasts: whether a record lives until a person removes it, as an agent does, even if there is
            nothing to do for it.
        told: which changes of status history tells.
        beside: in SQL the names of other records whose history is shown with that of the record
            with this id: a job's with that of its sessions.
        not_attempted: the result by which history tells that a handler left a record alone.
        joins: called for each record that enters the mirror.
        leaves: called for each record that leaves the mirror.
        moved: called for a record whose status has changed, with the one before.
        waits_for: the ids of the jobs and sessions for which a record waits, which may have ended;
            those of jobs and sessions themselves are in their specs.
    """

    def __init__(
        self,
        name: str,
        rows: RecordTable[R],
        load: "Callable[[Connection, Live], None] | None" = None,
        *,
        described: str = "",
        prefix: str = "",
        visible: Visible = Visible.TO_ADMINS,
        owned_with: "Entity[Any] | None" = None,
        unsuccessful: Collection[str] = (),
        id_of: Callable[[R], str] = attrgetter("id"),
        id_column: ColumnElement[str] | None = None,
        part_of: Callable[[R], Record | None] | None = None,
        listed: "Callable[[Live], Iterable[R]] | None" = None,
        lasts: bool = False,
        told: Told = Told.ALWAYS,
        beside: Callable[[str], Select[tuple[str]]] | None = None,
        not_attempted: SchedulingResult = SchedulingResult.SKIPPED,
        joins: "Callable[[Live, R], None] | None" = None,
        leaves: "Callable[[Live, R], None] | None" = None,
        moved: "Callable[[Unit, R, StrEnum], None] | None" = None,
        waits_for: Callable[[R], Collection[str]] | None = None,
    ) -> None:
        self.name = name
        assert rows.states is not None, f"the records of {name!r} have no states"
        self.record: type[R] = rows.record
        self.states: StateTable[Any] = rows.states
        self.rows = rows
        comes_alone = rows.is_whole and listed is None
        self.load = self._load if load is None and comes_alone else load
        self.described = described
        self.prefix = prefix
        self.visible = visible
        self.owned_with = owned_with
        self.unsuccessful = frozenset(unsuccessful)
        self.id_of = id_of
        self.id_column = id_column
        self.part_of = part_of
        self.listed = listed
        self.goes_with = listed is not None
        self.lasts = lasts
        self.told = told
        self.beside = beside
        self.not_attempted = not_attempted
        self.joins = joins
        self.leaves = leaves
        self.moved = moved
        self.waits_for = waits_for

    @property
    def table(self) -> Table:
        return self.rows.table

    def _load(self, connection: Connection, live: "Live") -> None:
        for row in self.rows.live.each(connection):
            live.add(self.rows.load(row))


class Entities(dict[type, Entity[Any]]):
    """The entities of a store by the class of their records, in the order in which they are read
    and written."""

    def __init__(self, entities: Iterable[Entity[Any]]) -> None:
        super().__init__((entity.record, entity) for entity in entities)
        self.wholes: dict[type, Callable[[Any], Record | None]] = {
            kind: entity.part_of for kind, entity in self.items() if entity.part_of is not None
        }
        """``part_of`` of each entity that has it, by the class of its records."""

    def named(self, name: str) -> Entity[Any] | None:
        """The entity of this name, by which events and history call it."""
        return next((entity for entity in self.values() if entity.name == name), None)

    def referred(self) -> list[Entity[Any]]:
        """The entities whose records people refer to, in the order in which a name is looked
        up."""
        found = (each for each in self.values() if each.prefix and not each.goes_with)
        return sorted(found, key=lambda entity: lookup_order(entity.prefix))

    def told_as(self, name: str) -> Entity[Any] | None:
        """The entity of the record that has this name in history; None if the ids of that entity
        have no prefix."""
        part = name.rpartition("/")[2]
        kinds = (each for each in self.values() if each.prefix)
        return next((each for each in kinds if part.startswith(f"{each.prefix}-")), None)

    def whole_of(self, record: Record) -> Record:
        """The record with which this record leaves the mirror: the whole of which it is a part, or
        itself."""
        entity = self[type(record)]
        whole = entity.part_of(record) if entity.goes_with and entity.part_of else None
        return record if whole is None else whole

    def name_of(self, record: Record) -> str:
        """The name of a record in history: its id, or ``job/index`` for a task."""
        return self[type(record)].id_of(record)
