"""A unit of work: the decisions of one wake, committed whole or not at all (design: Commit before
effect).

Statuses change here and nowhere else (design: One way to change a status). Records change in the
mirror at once, so that the next handler of the same wake sees the change; at the end SQL gets one
insert or one compare-and-set a record, however many statuses the record passed, and a history row
for each status. The verbs of the ledger are here too (``allocate``, ``grant``, ``charge``,
``release``); its check at the commit is in ``ledger``.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Any, Protocol

from sqlalchemy import Connection

from muster.core.reasons import Reason
from muster.core.resources import DeviceShare
from muster.core.results import SchedulingResult
from muster.core.settings import SETTING_PHASE, SettingChange, SettingName
from muster.store.batch import Batch, Row
from muster.store.entity import Record, Told, Tried
from muster.store.history import REPEATING, History
from muster.store.ledger import overcommitted
from muster.store.live import Live
from muster.store.records import ALLOCATIONS, Agent, Allocation, Kernel, LedgerKey

NEW = ""  # in place of a stored status: the row does not exist yet


class StaleWrite(Exception):
    """Rows differ from the mirror, because another process wrote.

    ``overcommitted`` are the allocations that do not fit. Where it is empty, records have another
    status than the mirror knew; ``Unit.stale_records`` finds those records.
    """

    def __init__(self, sentence: str, overcommitted: Sequence[Allocation] = ()) -> None:
        super().__init__(sentence)
        self.overcommitted = overcommitted


class LedgerWatch(Protocol):
    """A follower of the ledger."""

    def allocated(self, allocation: Allocation) -> None:
        """Called for a new allocation."""

    def charged(
        self, allocation: Allocation, before: tuple[DeviceShare, ...] | None, now: float
    ) -> None:
        """Called when a prefilled kernel is charged (``before`` is None), or a charged one got
        other devices than those ``before``."""

    def released(self, allocation: Allocation, now: float) -> None:
        """Called when an allocation is gone; the room that it charged is free."""


class Unit:
    """One unit of work over the mirror.

    ``touched`` holds each changed record with its status in SQL; ``rewritten`` the records of which
    seldom columns changed. ``watch`` hears of each change of the ledger, so that snapshots follow.
    """

    def __init__(
        self,
        live: Live,
        now: float,
        history_seq: int,
        watch: LedgerWatch,
    ) -> None:
        self.live = live
        self.now = now
        self._entities = live.entities
        self._indexes = live.indexes
        self.touched: defaultdict[type, dict[Any, str]] = defaultdict(dict)
        self.rewritten: defaultdict[type, dict[Any, None]] = defaultdict(dict)
        self._watch = watch
        self._ledger: dict[LedgerKey, tuple[bool, Allocation | None]] = {}
        self._granted: dict[LedgerKey, Allocation] = {}
        self._history = History(live.entities, now, history_seq)
        self._statements: list[Callable[[Connection], object]] = []
        self._told: list[tuple[str, str, str]] = []
        self.is_ordered = False  # somebody is told of it: it is committed even without a row

    # -- records -------------------------------------------------------------------------------

    def touch(self, record: Record) -> None:
        """Have the columns of a record written, because others than its status have changed."""
        kind = type(record)
        self.touched[kind].setdefault(record, record.status)
        for index in self._indexes[kind]:
            index.note(record)

    def rewrite(self, record: Record) -> None:
        """Have the columns of a record written that hardly ever change (see ``RowMapping``); nobody
        is told of that."""
        kind = type(record)
        self.rewritten[kind][record] = None
        for index in self._indexes[kind]:
            index.note(record)

    def add(self, *records: Record) -> None:
        """Add new records, all of one entity."""
        kind = type(records[0])
        touched = self.touched[kind]
        for record in records:
            self.live.add(record)
            touched[record] = NEW

    def is_new(self, record: Record) -> bool:
        """Whether this unit adds the record."""
        return self.touched[type(record)].get(record) == NEW

    def has_left(self, record: Record) -> bool:
        """Whether an earlier unit ended the record, so that it is no longer in the mirror."""
        kind, status = type(record), record.status
        ended = status in self._entities[kind].states.terminal
        return ended and self.touched[kind].get(record, status) == status

    # -- statuses ------------------------------------------------------------------------------

    def move(
        self,
        record: Record,
        expected: Collection[str],
        to: StrEnum,
        phase: str,
        result: SchedulingResult = SchedulingResult.SUCCESS,
        reason: Reason | None = None,
    ) -> bool:
        """Change the record's status, if it has an ``expected`` one; else it is left alone, because
        somebody was faster. The answer is whether it moved.

        Raises:
            IllegalTransition: the entity's table does not allow the change.
        """
        before = record.status
        if before not in expected:
            return False
        kind = type(record)
        entity = self._entities[kind]
        entity.states.check(before, to)
        self.touched[kind].setdefault(record, before)
        record.status = to
        record.status_changed_at = self.now
        for index in self._indexes[kind]:
            index.note(record)
        if entity.moved is not None:
            entity.moved(self, record, before)
        told = entity.told
        if told is Told.NEVER:
            return True
        if isinstance(record, Tried) and record.repeats:
            self._history.write_counts(record)
        if told is Told.ALWAYS or result is not SchedulingResult.SUCCESS or reason is not None:
            reasons = () if reason is None else (reason,)
            self._history.add(entity.id_of(record), phase, before, to, result, reasons)
        return True

    def fail(self, kernel: Kernel, why: Reason | None) -> None:
        """Take note that the last try of the kernel's phase failed; None says that another try was
        begun."""
        if why is not None or kernel.failure is not None:
            kernel.failure = why
            kernel.session.tally.note_failure(kernel)

    # -- history -------------------------------------------------------------------------------

    def note(
        self,
        record: Record,
        phase: str,
        result: SchedulingResult,
        reason: Reason | None = None,
    ) -> None:
        """Add a history row without a change of status; refusals and retries merge."""
        reasons = () if reason is None else (reason,)
        if isinstance(record, Tried) and result in REPEATING:
            self._history.repeat(record, phase, result, reasons)
            return
        name, status = self._entities.name_of(record), record.status
        self._history.add(name, phase, status, status, result, reasons)

    def note_ended(
        self, entity: str, status: str, phase: str, result: SchedulingResult, reason: Reason
    ) -> None:
        """Add a history row of a record by its id and status: it may have left the mirror."""
        self._history.add(entity, phase, status, status, result, (reason,))

    def skip(self, record: Tried, phase: str, reasons: tuple[Reason, ...]) -> None:
        """Add a refusal of a record to history; see ``History.repeat``."""
        self._history.repeat(record, phase, SchedulingResult.SKIPPED, reasons)

    # -- the ledger ----------------------------------------------------------------------------

    def allocate(
        self,
        kernel: Kernel,
        agent: Agent,
        shares: tuple[DeviceShare, ...],
        *,
        charged: bool,
    ) -> Allocation:
        """Add an allocation for the kernel's generation; one in an agent's backlog is not charged.

        Placement has taken the room of a charged one from its snapshot already; the commit checks
        in SQL that the room is there.
        """
        allocation = Allocation(
            kernel.id,
            kernel.generation,
            agent.id,
            charged,
            kernel.resources,
            shares,
            agent.boot_id,
            self.now,
        )
        self.live.allocate(allocation)
        self._ledger[allocation.key] = (True, allocation)
        if charged:
            self._granted[allocation.key] = allocation
        self._watch.allocated(allocation)
        return allocation

    def grant(self, allocation: Allocation, shares: tuple[DeviceShare, ...]) -> None:
        """Give a prefilled kernel room of its own; the commit checks in SQL that it is there."""
        self._granted[allocation.key] = allocation
        self.charge(allocation, shares)

    def charge(self, allocation: Allocation, shares: tuple[DeviceShare, ...]) -> None:
        """Charge a prefilled kernel, or change the devices of a charged one, as an agent reported.
        Reports count even where they exceed the room."""
        before = allocation.shares if allocation.charged else None
        allocation.charged = True
        allocation.shares = shares
        self._watch.charged(allocation, before, self.now)
        self._rewrite(allocation)

    def keep(self, allocation: Allocation, boot_id: str) -> None:
        """Keep an allocation after its agent's reboot: its kernel had ended, and the report of that
        follows."""
        allocation.boot_id = boot_id
        self._rewrite(allocation)

    def _rewrite(self, allocation: Allocation) -> None:
        created = self._ledger.get(allocation.key, (False, None))[0]
        self._ledger[allocation.key] = (created, allocation)

    def release(self, key: LedgerKey) -> Allocation | None:
        """Remove an allocation, because its agent confirmed the end or the machine is proven gone.
        Removing it twice is harmless."""
        allocation = self.live.release(key)
        if allocation is not None:
            self._granted.pop(key, None)
            created = self._ledger.get(key, (False, None))[0]
            self._ledger[key] = (created, None)
            self._watch.released(allocation, self.now)
        return allocation

    # -- commit --------------------------------------------------------------------------------

    def also(
        self, statement: Any, parameters: dict[str, Any] | list[dict[str, Any]] | None = None
    ) -> None:
        """Run a statement in the same transaction, for state without a record in the mirror."""
        self._statements.append(lambda connection: connection.execute(statement, parameters or {}))

    def also_rows(self, batch: Batch, *rows: Row) -> None:
        """``also`` for rows of a statement that is used often: it is compiled once."""
        self._statements.append(lambda connection: batch.execute(connection, rows))

    def note_setting(self, setting: SettingName, change: SettingChange, why: Reason) -> None:
        """Add a history row of a setting that changed, and an event."""
        result = SchedulingResult.SUCCESS
        self._history.add(str(setting), SETTING_PHASE, None, change, result, (why,))
        self.tell(setting.kind, setting.name, change)

    def tell(self, kind: str, id_: str, status: str) -> None:
        """Add an event for a change that belongs to no record."""
        self._told.append((kind, id_, status))

    @property
    def history_seq(self) -> int:
        """The number of the last history row."""
        return self._history.seq

    @property
    def size(self) -> int:
        """About how many rows the unit will write, history left out."""
        records = sum(map(len, self.touched.values())) + sum(map(len, self.rewritten.values()))
        return records + len(self._ledger) + len(self._statements)

    @property
    def empty(self) -> bool:
        return not (
            self.is_ordered
            or any(self.touched.values())
            or any(self.rewritten.values())
            or not self._history.empty
            or self._ledger
            or self._statements
        )

    def events(self) -> list[tuple[str, str, str]]:
        """The changes of this unit as (kind, id, status), for watchers of events."""
        changed = [
            (entity.name, entity.id_of(record), record.status)
            for kind, entity in self._entities.items()
            if entity.told is not Told.NEVER
            for record in self.touched[kind]
        ]
        return self._told + changed if self._told else changed

    def write(self, connection: Connection) -> None:
        """Write everything, in the connection's transaction.

        Raises:
            StaleWrite: a row did not have the status that the mirror knew, or granted room exceeds
                an agent's capacity by the sums in SQL.
        """
        for kind, entity in self._entities.items():
            records, mapping = self.touched[kind], entity.rows
            if not records:
                continue
            new = [mapping.whole(record) for record, stored in records.items() if stored == NEW]
            old = [mapping.changed(record, stored) for record, stored in records.items() if stored]
            if old and (written := mapping.update.execute(connection, old)) != len(old):
                raise StaleWrite(f"{len(old) - written} of {len(old)} {kind.__name__} rows")
            if new:  # last: a name may just have become free
                mapping.insert.execute(connection, new)
        for kind, some in self.rewritten.items():
            mapping = self._entities[kind].rows
            mapping.rewrite.execute(connection, [mapping.rewritten(record) for record in some])
        if self._ledger:
            self._write_ledger(connection)
        self._history.write(connection)
        for run in self._statements:
            run(connection)

    def _write_ledger(self, connection: Connection) -> None:
        inserts, updates, deletes = [], [], []
        for key, (created, allocation) in self._ledger.items():
            if allocation is None:
                if not created:
                    deletes.append(key)
            elif created:
                inserts.append(ALLOCATIONS.whole(allocation))
            else:
                updates.append(ALLOCATIONS.changed(allocation))
        ALLOCATIONS.delete.execute(connection, deletes)
        ALLOCATIONS.insert.execute(connection, inserts)
        written = ALLOCATIONS.update.execute(connection, updates)
        if written != len(updates):
            kept = [
                allocation
                for created, allocation in self._ledger.values()
                if allocation and not created
            ]
            gone = [
                allocation
                for allocation in kept
                if ALLOCATIONS.stored(connection, allocation) is None
            ]
            raise StaleWrite(f"{len(gone)} rows of the ledger are gone", gone)
        if self._granted:
            misfits = overcommitted(connection, list(self._granted.values()))
            if misfits:
                raise StaleWrite(f"{len(misfits)} rows of the ledger do not fit", misfits)

    def stale_records(self, connection: Connection) -> list[Record]:
        """The records that are gone in SQL, or have another status there than in the mirror; to be
        called once the transaction was rolled back."""
        return [
            record
            for kind, entity in self._entities.items()
            for record, stored in self.touched[kind].items()
            if stored and entity.rows.stored(connection, record) != stored
        ]

    def settle(self) -> None:
        """Drop ended records from the mirror, after the commit."""
        for kind, entity in self._entities.items():
            if not entity.goes_with:
                for record in self.touched[kind]:
                    if record.status in entity.states.terminal:
                        self.live.drop(record)
