"""A unit of work: what one wake decides, committed whole or not at all (DESIGN rules 2, 5 and 8).

Statuses change here and nowhere else. Records change in the mirror at once, so that the next
handler of the same wake sees it; SQL gets one insert or one compare-and-set a record at the end,
however many statuses it passed on the way, and a history row for each of those.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from muster.core.reasons import Reason
from muster.core.resources import DeviceShare
from muster.core.results import SchedulingResult
from muster.core.states import (
    AGENT_TABLE,
    JOB_TABLE,
    KERNEL_TABLE,
    SESSION_TABLE,
    TASK_TABLE,
    StateTable,
    TaskState,
)
from muster.store import rows
from muster.store.history import REPEATING, History
from muster.store.ledger import overcommitted
from muster.store.live import Live
from muster.store.records import Agent, Allocation, Job, Kernel, LedgerKey, Session, Task

Record = Agent | Job | Task | Session | Kernel
R = TypeVar("R", Agent, Job, Task, Session, Kernel)
NEW = ""  # in place of a stored status: the row does not exist yet


class StaleWrite(Exception):
    """Rows no longer are as the mirror knows them: somebody else wrote.

    ``overcommitted`` are the rows of the ledger that do not fit; where it is empty, records have
    another status than the mirror knew, and ``Unit.stale_records`` finds them.
    """

    def __init__(self, what: str, overcommitted: Sequence[Allocation] = ()) -> None:
        super().__init__(what)
        self.overcommitted = overcommitted


class LedgerWatch(Protocol):
    """Who follows the ledger."""

    def held(self, row: Allocation) -> None:
        """A new row."""

    def charged(self, row: Allocation, before: tuple[DeviceShare, ...] | None, now: float) -> None:
        """A row left the backlog (``before`` None), or changed from those devices to others."""

    def released(self, row: Allocation, now: float) -> None:
        """A row is gone; what it charged is free."""


_TABLES: dict[type, StateTable[Any]] = {
    Agent: AGENT_TABLE,
    Job: JOB_TABLE,
    Task: TASK_TABLE,
    Session: SESSION_TABLE,
    Kernel: KERNEL_TABLE,
}
_MAPPINGS: dict[type, rows.Mapping[Any]] = {
    Agent: rows.AGENTS,
    Job: rows.JOBS,
    Session: rows.SESSIONS,
    Kernel: rows.KERNELS,
    Task: rows.TASKS,
}


def entity_name(record: Record) -> str:
    """What history calls it: its id, or ``job/index`` for a task."""
    return f"{record.job.id}/{record.index}" if isinstance(record, Task) else record.id


class Unit:
    """One unit of work over the mirror.

    ``touched`` holds each changed record with the status that SQL has for it. ``watch`` is
    told of each change of the ledger, so that snapshots follow.
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
        self.touched: dict[type, dict[Any, str]] = {kind: {} for kind in _MAPPINGS}
        self._watch = watch
        self._ledger: dict[LedgerKey, tuple[bool, Allocation | None]] = {}
        self._granted: dict[LedgerKey, Allocation] = {}
        self._history = History(now, history_seq)
        self._statements: list[tuple[Any, Any]] = []
        self._told: list[tuple[str, str, str]] = []

    # -- records -------------------------------------------------------------------------------

    def touch(self, record: Record) -> None:
        """Note that columns other than the status change; call before or after changing them."""
        self.touched[type(record)].setdefault(record, record.status)

    def add_agent(self, agent: Agent) -> None:
        self.live.agents[agent.id] = agent
        self.touched[Agent][agent] = NEW

    def add_job(self, job: Job) -> None:
        self.live.add_job(job)
        self.touched[Job][job] = NEW

    def add_session(self, session: Session) -> None:
        """A new session with its kernels."""
        self.live.add_session(session)
        self.touched[Session][session] = NEW
        new_kernels = self.touched[Kernel]
        for kernel in session.kernels:
            new_kernels[kernel] = NEW

    def add_task(self, task: Task) -> None:
        job = task.job
        job.tasks[task.index] = task
        job.counts[task.status] = job.counts.get(task.status, 0) + 1
        self.touched[Task][task] = NEW
        self.touch(job)

    # -- statuses ------------------------------------------------------------------------------

    def transition(
        self,
        records: Iterable[R],
        expected: Collection[str],
        to: str,
        *,
        phase: str,
        result: SchedulingResult = SchedulingResult.SUCCESS,
        reason: Reason | None = None,
    ) -> list[R]:
        """Change the status of those records that have an ``expected`` one.

        The rest are left alone and returned: somebody was faster.

        Raises:
            IllegalTransition: the entity's table does not allow the change.
        """
        stale: list[R] = []
        for record in records:
            before = record.status
            if before not in expected:
                stale.append(record)
                continue
            kind = type(record)
            _TABLES[kind].check(before, to)
            self.touched[kind].setdefault(record, before)
            record.status = to  # type: ignore[assignment]
            record.status_changed_at = self.now
            if isinstance(record, Kernel):
                record.session.tally.moved(record, before)
                continue  # a kernel's changes are told by its session's history and its own row
            if isinstance(record, Session):
                self._history.write_counts(record)
            elif isinstance(record, Task):
                self._count(record, before)
                if result is SchedulingResult.SUCCESS and reason is None:
                    continue  # told by the session of the attempt
            self._history.add(entity_name(record), phase, before, to, result, reason)
        return stale

    def _count(self, task: Task, before: TaskState) -> None:
        job = task.job
        counts = job.counts
        counts[before] -= 1
        counts[task.status] = counts.get(task.status, 0) + 1
        self.touch(job)
        if task.status in TASK_TABLE.terminal:
            job.tasks.pop(task.index, None)

    def fail(self, kernel: Kernel, why: Reason | None) -> None:
        """The last try of the phase that the kernel is in has failed; or, with None, there is
        another."""
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
        to: str | None = None,
    ) -> None:
        """A history row without a change of status; a session's refusals and retries merge."""
        if isinstance(record, Session) and to is None and result in REPEATING:
            self._history.repeat(record, phase, result, () if reason is None else (reason,))
            return
        status = to or record.status
        self._history.add(entity_name(record), phase, record.status, status, result, reason)

    def skip(self, session: Session, phase: str, reasons: tuple[Reason, ...]) -> None:
        """A refusal of a session; equal ones merge."""
        self._history.repeat(session, phase, SchedulingResult.SKIPPED, reasons)

    # -- the ledger ----------------------------------------------------------------------------

    def hold(
        self,
        kernel: Kernel,
        agent: Agent,
        shares: tuple[DeviceShare, ...],
        *,
        charged: bool,
    ) -> Allocation:
        """A ledger row for the kernel's generation; uncharged in the agent's backlog.

        Placement has taken the room of a charged one from its snapshot already; the commit checks
        in SQL that it is there.
        """
        row = Allocation(
            kernel.id,
            kernel.generation,
            agent.id,
            charged,
            kernel.resources,
            shares,
            agent.boot_id,
            self.now,
        )
        self.live.hold(row)
        self._ledger[row.key] = (True, row)
        if charged:
            self._granted[row.key] = row
        self._watch.held(row)
        return row

    def grant(self, row: Allocation, shares: tuple[DeviceShare, ...]) -> None:
        """A backlog row gets room of its own; the commit checks in SQL that it is there."""
        self._granted[row.key] = row
        self.charge(row, shares)

    def charge(self, row: Allocation, shares: tuple[DeviceShare, ...]) -> None:
        """A backlog row becomes a held one, or a held one changes devices: facts, which are taken
        even where they are more than there is room for."""
        before = row.shares if row.charged else None
        row.charged = True
        row.shares = shares
        self._watch.charged(row, before, self.now)
        created = self._ledger.get(row.key, (False, None))[0]
        self._ledger[row.key] = (created, row)

    def release(self, key: LedgerKey) -> Allocation | None:
        """The agent confirmed, or the machine is proven gone. Freeing twice is harmless."""
        row = self.live.release(key)
        if row is not None:
            self._granted.pop(key, None)
            created = self._ledger.get(key, (False, None))[0]
            self._ledger[key] = (created, None)
            self._watch.released(row, self.now)
        return row

    # -- commit --------------------------------------------------------------------------------

    def also(
        self, statement: Any, parameters: dict[str, Any] | list[dict[str, Any]] | None = None
    ) -> None:
        """Run a statement in the same transaction: what has no record in the mirror."""
        self._statements.append((statement, parameters or {}))

    def tell(self, kind: str, id_: str, status: str) -> None:
        """Have those who watch hear of a change that no record shows."""
        self._told.append((kind, id_, status))

    @property
    def history_seq(self) -> int:
        """The number of the last history row."""
        return self._history.seq

    @property
    def size(self) -> int:
        """About how many rows it will write, but for history."""
        return sum(map(len, self.touched.values())) + len(self._ledger)

    @property
    def ends_something(self) -> bool:
        """Whether the commit will drop a record from the mirror, because it has ended. Whoever
        follows that record has to do so before: nobody finds it afterwards."""
        tables = (Session, SESSION_TABLE), (Job, JOB_TABLE), (Agent, AGENT_TABLE)
        return any(
            record.status in table.terminal
            for kind, table in tables
            for record in self.touched[kind]
        )

    @property
    def empty(self) -> bool:
        return not (
            any(self.touched.values())
            or not self._history.empty
            or self._ledger
            or self._statements
        )

    def events(self) -> list[tuple[str, str, str]]:
        """What this unit changed: (kind, id, status), for those who watch."""
        changed = [
            (kind.__name__.lower(), entity_name(record), record.status)
            for kind, records in self.touched.items()
            if kind is not Kernel
            for record in records
        ]
        return self._told + changed if self._told else changed

    def write(self, connection: Connection) -> None:
        """All of it, in the connection's transaction.

        Raises:
            StaleWrite: a row did not have the status that the mirror knew, or what was granted
                does not fit beside what SQL says is held.
        """
        for kind, mapping in _MAPPINGS.items():
            records = self.touched[kind]
            new = [mapping.whole(record) for record, stored in records.items() if stored == NEW]
            old = [mapping.changed(record, stored) for record, stored in records.items() if stored]
            written = mapping.update.execute(connection, old)
            if written != len(old):
                raise StaleWrite(f"{len(old) - written} of {len(old)} {kind.__name__} rows")
            mapping.insert.execute(connection, new)  # last: a name may just have become free
        self._write_ledger(connection)
        self._history.write(connection)
        for statement, parameters in self._statements:
            connection.execute(statement, parameters)

    def _write_ledger(self, connection: Connection) -> None:
        inserts, updates, deletes = [], [], []
        for key, (created, row) in self._ledger.items():
            if row is None:
                if not created:
                    deletes.append(key)
            elif created:
                inserts.append(rows.ALLOCATIONS.whole(row))
            else:
                updates.append(rows.ALLOCATIONS.changed(row))
        rows.ALLOCATIONS.delete.execute(connection, deletes)
        rows.ALLOCATIONS.insert.execute(connection, inserts)
        written = rows.ALLOCATIONS.update.execute(connection, updates)
        if written != len(updates):
            kept = [row for created, row in self._ledger.values() if row and not created]
            gone = [row for row in kept if rows.ALLOCATIONS.stored(connection, row) is None]
            raise StaleWrite(f"{len(gone)} rows of the ledger are gone", gone)
        if self._granted:
            misfits = overcommitted(connection, list(self._granted.values()))
            if misfits:
                raise StaleWrite(f"{len(misfits)} rows of the ledger do not fit", misfits)

    def stale_records(self, connection: Connection) -> list[Record]:
        """The records that in SQL have another status than the mirror knew, or are gone; to be
        asked once what was written is rolled back."""
        return [
            record
            for kind, mapping in _MAPPINGS.items()
            for record, stored in self.touched[kind].items()
            if stored and mapping.stored(connection, record) != stored
        ]

    def settle(self) -> None:
        """After the commit: forget what has ended; it is in SQL."""
        for session in self.touched[Session]:
            if session.status in SESSION_TABLE.terminal:
                self.live.drop_session(session)
        for job in self.touched[Job]:
            if job.status in JOB_TABLE.terminal:
                self.live.drop_job(job)
        for agent in self.touched[Agent]:
            if agent.status in AGENT_TABLE.terminal:
                self.live.agents.pop(agent.id, None)
