"""The store: one writer's connection, the mirror, and commits."""

import json
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection, Engine, delete, select, update
from sqlalchemy.exc import (
    DataError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
    SQLAlchemyError,
)

from muster.core.clock import ClockAnchor, Resumed, resumed
from muster.core.errors import MustEnd
from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.scheduling.accounting.fairness import UsageSpan
from muster.scheduling.accounting.holdings import EndedSpec
from muster.store import schema
from muster.store.batch import inserting
from muster.store.database.committing import CommitConnection, DatabaseAway
from muster.store.database.outage import cause_of
from muster.store.database.patience import answered_in_time
from muster.store.ended_specs import Texts, read_whole
from muster.store.entities import ENTITIES
from muster.store.entity import Entities, Record
from muster.store.fence import NOBODY, Fence, Holder
from muster.store.live import Live
from muster.store.load import load_live
from muster.store.queries.cluster import read_clock_anchor, write_clock_anchor
from muster.store.queries.jobs import free_number
from muster.store.queries.workload_history import read_ended_requests, read_ended_usage
from muster.store.records import LedgerKey
from muster.store.removals import EndedKernel, kernels_that_ran, told_already
from muster.store.unit import LedgerWatch, StaleWrite, Unit
from muster.store.unstorable import unstorable_records

log = logging.getLogger(__name__)

OUTBOX_KEPT = 10_000  # commits; a reader that missed more reads the state anew
_PRUNE_EVERY = 1_000
_INSERT_OUTBOX = inserting(schema.outbox, ("seq", "at", "events"))
_NEWEST_OUTBOX = (
    select(schema.outbox.c.seq, schema.outbox.c.at).order_by(schema.outbox.c.seq.desc()).limit(1)
)


class CommitFailed(Exception):
    """Nothing of the unit was written: the mirror differs from SQL until it is read again."""


class LostRace(CommitFailed):
    """Another process wrote first: ``losers`` are the names in history of the records whose rows
    differ from the mirror, or whose room is taken."""

    def __init__(self, why: str, losers: frozenset[str]) -> None:
        super().__init__(why)
        self.losers = losers


class CommitUnknown(CommitFailed):
    """The answer to the commit itself was lost: ``Store.settle`` tells whether the unit was
    written."""


class Unstorable(CommitFailed):
    """The unit has a value that the database can never store: the same unit would fail again."""


_OF_THE_VALUE = (DataError, IntegrityError, InterfaceError, ProgrammingError)
"""Errors that are about a value and not about the database, unless the connection is gone."""


class Store:
    """State in SQL and its mirror. All writes of a process pass through one store, and all writes
    to the database through one process: see ``store.fence``.

    ``last_commit_at`` is when the last commit before the last ``reload`` was made.

    Args:
        holder: the process of this store, as it is named to others that find the fence taken.
    """

    def __init__(
        self, engine: Engine, entities: Entities = ENTITIES, holder: Holder = NOBODY
    ) -> None:
        self.engine = engine
        self.entities = entities
        self._fence = Fence(holder)
        self._commits = CommitConnection(engine)
        self.live = Live(entities)
        self._history_seq = 0
        self._outbox_seq = 0
        self.last_commit_at = 0.0
        try:
            with self._commits.transaction() as connection:
                self._fence.take(connection)
            self.reload()
        except BaseException:
            self._commits.close()  # its lock is in nobody's way where the same is tried again
            raise

    def reload(self) -> None:
        """Throw the mirror away and read it again.

        Raises:
            DatabaseAway, SQLAlchemyError: the state cannot be read now.
            MustEnd: another store writes, or the state is older than this store's.
        """
        with self._commits.reached(), self._snapshot() as connection:
            self._fence.require(connection)
            self.live = load_live(connection, self.entities)
            row = connection.execute(_NEWEST_OUTBOX).first()
            self._outbox_seq, self.last_commit_at = (row.seq, row.at) if row else (0, 0.0)

    def resume_clock(self, boot_id: str, boot_s: float, time_of_day_s: float) -> Resumed:
        """The moment from which a controller's time goes on that starts now, in this boot of its
        machine (``core.clock.resumed``); the next start can prove how much later it is.

        Raises:
            DatabaseAway, SQLAlchemyError: the database cannot be written.
            MustEnd: another store writes, or the state is older than this store's.
        """
        with self._commits.reached(), self._commits.transaction() as connection:
            self._fence.require(connection)
            anchor = read_clock_anchor(connection)
            start = resumed(anchor, self.last_commit_at, time_of_day_s, boot_id, boot_s)
            write_clock_anchor(
                connection, ClockAnchor(boot_id, boot_s, start.at_s, start.confirmed)
            )
        return start

    def confirm_clock(self, boot_id: str, boot_s: float, at_s: float) -> None:
        """Write down that it is ``at_s`` at the moment ``boot_s`` of this boot.

        Raises:
            DatabaseAway, SQLAlchemyError: the database cannot be written.
            MustEnd: another store writes, or the state is older than this store's.
        """
        with self._commits.reached(), self._commits.transaction() as connection:
            self._fence.require(connection)
            write_clock_anchor(connection, ClockAnchor(boot_id, boot_s, at_s))

    def ended_usage(self, group: str, since: float) -> list[UsageSpan]:
        """The committed sessions of a group that ran and have ended since the moment ``since``."""
        with self._reading() as connection:
            return read_ended_usage(connection, group, since)

    def ended_requests(self, group: str) -> list[tuple[Resources, int]]:
        """The requests of the newest committed sessions of a group that have ended, each with its
        number of kernels; the oldest first."""
        with self._reading() as connection:
            return read_ended_requests(connection, group)

    def free_job_number(self, owner: Owner, stem: str, after: int) -> int:
        """See ``queries.jobs.free_number``.

        Raises:
            SQLAlchemyError: the database cannot be read.
        """
        with self._reading() as connection:
            return free_number(connection, owner, stem, after)

    def whole_spec(self, spec: EndedSpec) -> Texts | None:
        """See ``ended_specs.read_whole``.

        Raises:
            SQLAlchemyError: the database cannot be read.
        """
        with self._reading() as connection:
            return read_whole(connection, spec)

    def removed(
        self, agent: AgentId, keys: Collection[LedgerKey], phase: str
    ) -> tuple[dict[LedgerKey, EndedKernel], set[tuple[SessionId, Reason]]]:
        """See ``removals``: the kernels that ran on the agent, and what history tells of them.

        Raises:
            SQLAlchemyError: the database cannot be read.
        """
        with self._reading() as connection:
            ran = kernels_that_ran(connection, agent, keys)
            return ran, told_already(connection, {each.session for each in ran.values()}, phase)

    def unit(self, now: float, watch: LedgerWatch) -> Unit:
        """A unit of work over the mirror, to be committed with ``commit``."""
        # Numbers of history rows grow with time, so that a new process need not look for the last.
        self._history_seq = max(self._history_seq, int(now * 1e6))
        return Unit(self.live, now, self._history_seq, watch)

    def commit(self, unit: Unit) -> None:
        """Write a unit: rows, ledger, history and the outbox, in one transaction.

        Raises:
            CommitFailed: the disk is full or the database gone; LostRace if somebody else wrote,
                Unstorable if the same unit would fail again. Call ``reload`` before anything else,
                and derive anew all state that was derived from the mirror.
            CommitUnknown: call ``settle`` before that.
            MustEnd: another store writes, or the database has gone back to an older state; nothing
                of the unit was written, nor will be.
        """
        if unit.empty:
            return
        is_complete = False
        try:
            with self._commits.transaction() as connection:
                self._fence.count(connection)
                unit.write(connection)
                self._write_outbox(connection, unit)
                is_complete = True  # the commit itself is left
        except StaleWrite as stale:
            raise LostRace(str(stale), self._losers(unit, stale)) from stale
        except MustEnd:
            raise
        except Exception as error:
            failure = self._failure(error)
            if is_complete:
                raise CommitUnknown(str(failure)) from error
            raise failure from error
        self._note_commit(unit)

    def try_to_write(self) -> None:
        """Write a row as it is, to see whether anything can be stored.

        Raises:
            CommitFailed: the disk is full, say.
            DatabaseAway: the database cannot be reached.
            Fenced: another store writes.
        """
        cluster = schema.cluster
        try:
            with self._commits.reached(), self._commits.transaction() as connection:
                self._fence.require(connection)
                connection.execute(update(cluster).values(value=cluster.c.value))
        except SQLAlchemyError as error:
            raise CommitFailed(cause_of(error)) from error

    def _failure(self, error: Exception) -> CommitFailed:
        """The failure of a commit in which this was raised before its end."""
        if not isinstance(error, SQLAlchemyError):
            # No value for the driver can be made of the record's. The error's text, unlike its
            # representation, does not hold all values of a column.
            return Unstorable(f"{type(error).__name__}: {error}")
        cause = cause_of(error)
        self._commits.note(error)
        if isinstance(error, _OF_THE_VALUE) and not error.connection_invalidated:
            return Unstorable(cause)
        return CommitFailed(cause)

    def try_out(self, unit: Unit) -> None:
        """Write the unit as it is so far, and roll that back.

        Raises:
            CommitFailed: as ``commit`` would; Unstorable if the same unit would fail again.
        """
        try:
            with self._commits.trial() as connection:
                unit.write(connection)
        except StaleWrite:
            pass  # the commit will find the losers
        except Exception as error:
            raise self._failure(error) from error

    def unstorable(self, unit: Unit) -> list[Record]:
        """The records because of which a unit is Unstorable; none if another part of the unit is
        the reason.

        Raises:
            CommitFailed: the database cannot be asked.
        """
        try:
            with self._commits.trial() as connection:
                return unstorable_records(unit, connection)
        except SQLAlchemyError as error:
            raise self._failure(error) from error

    def settle(self, unit: Unit) -> bool:
        """Whether the unit whose commit raised CommitUnknown was written. If it was, it counts as
        committed from now on.

        Raises:
            DatabaseAway, SQLAlchemyError: the database cannot tell now.
            MustEnd: another store writes, or the state is older than this store's.
        """
        with self._commits.reached(), self._commits.transaction() as connection:
            was_written = self._fence.was_counted(connection)
        if was_written:
            self._note_commit(unit)
        return was_written

    def _note_commit(self, unit: Unit) -> None:
        self._fence.committed()
        self._history_seq = unit.history_seq
        log.debug("stored %d changes; history is at %d", unit.size, self._history_seq)
        unit.settle()

    def _losers(self, unit: Unit, stale: StaleWrite) -> frozenset[str]:
        """
        Raises:
            CommitFailed: SQL cannot be asked.
        """
        if stale.overcommitted:
            kernels = [self.live.kernels.get(row.kernel_id) for row in stale.overcommitted]
            return frozenset(kernel.session.id for kernel in kernels if kernel is not None)
        try:
            with self._reading() as connection:
                records = unit.stale_records(connection)
        except SQLAlchemyError as error:
            raise CommitFailed(cause_of(error)) from error
        wholes = map(self.entities.whole_of, records)
        return frozenset(map(self.entities.name_of, wholes))

    def _write_outbox(self, connection: Connection, unit: Unit) -> None:
        events = unit.events()
        if not events:
            return
        self._outbox_seq += 1
        row = self._outbox_seq, unit.now, json.dumps(events)
        _INSERT_OUTBOX.execute(connection, [row])
        if self._outbox_seq % _PRUNE_EVERY == 0:
            oldest = self._outbox_seq - OUTBOX_KEPT
            connection.execute(delete(schema.outbox).where(schema.outbox.c.seq < oldest))

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A connection for some reads of a wake, which does not wait for long."""
        with self._snapshot() as connection, answered_in_time(connection):
            yield connection

    def _snapshot(self) -> Connection:
        """A connection that sees the state of one moment."""
        return self.engine.connect().execution_options(readonly=True)

    def is_fenced(self) -> bool:
        """Whether another store has taken the fence, or the database has gone back to an older
        state; it may be asked from any thread.

        Raises:
            SQLAlchemyError: the database cannot be read.
        """
        with self._reading() as connection:
            return not self._fence.is_held(connection)

    @property
    def former_renews_s(self) -> float:
        """How long, from when this store began, those before it may renew leases (``Fence``)."""
        return self._fence.former_renews_s

    def leave(self) -> None:
        """Tell the next store, as far as the database can be written, that nobody renews leases."""
        with (
            suppress(SQLAlchemyError, DatabaseAway),
            self._commits.reached(),
            self._commits.transaction() as connection,
        ):
            self._fence.leave(connection)

    def close(self) -> None:
        self._commits.close()
        self.engine.dispose()
