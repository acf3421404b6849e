"""The store: one writer's connection, the mirror, and commits."""

import json

from sqlalchemy import Engine, delete, insert, select
from sqlalchemy.exc import (
    DataError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
    SQLAlchemyError,
)

from muster.core.resources import Resources
from muster.scheduling.accounting.fairness import UsageSpan
from muster.store import schema
from muster.store.entities import ENTITIES
from muster.store.entity import Entities
from muster.store.live import Live
from muster.store.load import load_live
from muster.store.queries.workload_history import read_ended_requests, read_ended_usage
from muster.store.unit import LedgerWatch, StaleWrite, Unit

OUTBOX_KEPT = 10_000  # commits; a reader that missed more reads the state itself
_PRUNE_EVERY = 1_000


class CommitFailed(Exception):
    """Nothing of the unit was written: the mirror is ahead of SQL until it is read again."""


class LostRace(CommitFailed):
    """Somebody else wrote first: ``losers`` are the names in history of the records whose rows are
    not as the mirror knew them, or whose room is taken."""

    def __init__(self, why: str, losers: frozenset[str]) -> None:
        super().__init__(why)
        self.losers = losers


class Unstorable(CommitFailed):
    """The database never takes some value of the unit, even with a sound disk: the same unit would
    fail again."""


_OF_THE_VALUE = (DataError, IntegrityError, InterfaceError, ProgrammingError)
"""Errors of the value and not of the database, unless the connection is gone."""


class Store:
    """State in SQL and its mirror. All writes of a process pass through one store.

    ``last_commit_at`` is when the last commit before the last ``reload`` was made.
    """

    def __init__(self, engine: Engine, entities: Entities = ENTITIES) -> None:
        self.engine = engine
        self.entities = entities
        self._connection = engine.connect()
        self.live = Live(entities)
        self._history_seq = 0
        self._outbox_seq = 0
        self.last_commit_at = 0.0
        self.reload()

    def reload(self) -> None:
        """Throw the mirror away and read it again."""
        self._connection.rollback()
        with self._connection.begin():
            self.live = load_live(self._connection, self.entities)
            outbox = schema.outbox
            newest = select(outbox.c.seq, outbox.c.at).order_by(outbox.c.seq.desc()).limit(1)
            row = self._connection.execute(newest).first()
            self._outbox_seq, self.last_commit_at = (row.seq, row.at) if row else (0, 0.0)

    def ended_usage(self, group: str, since: float) -> list[UsageSpan]:
        """The committed sessions of a group that ran and have ended since the moment ``since``."""
        with self._connection.begin():
            return read_ended_usage(self._connection, group, since)

    def ended_requests(self, group: str) -> list[tuple[Resources, int]]:
        """The requests of the newest committed sessions of a group that have ended, each with its
        number of kernels; the oldest first."""
        with self._connection.begin():
            return read_ended_requests(self._connection, group)

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
        """
        if unit.empty:
            return
        try:
            with self._connection.begin():
                unit.write(self._connection)
                self._write_outbox(unit)
        except StaleWrite as stale:
            raise LostRace(str(stale), self._losers(unit, stale)) from stale
        except (UnicodeError, OverflowError) as error:
            raise Unstorable(str(error)) from error
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            if isinstance(error, _OF_THE_VALUE) and not error.connection_invalidated:
                raise Unstorable(str(cause)) from error
            raise CommitFailed(str(cause)) from error
        self._history_seq = unit.history_seq
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
            with self._connection.begin():
                records = unit.stale_records(self._connection)
        except SQLAlchemyError as error:
            raise CommitFailed(str(getattr(error, "orig", None) or error)) from error
        wholes = map(self.entities.whole_of, records)
        return frozenset(map(self.entities.name_of, wholes))

    def _write_outbox(self, unit: Unit) -> None:
        events = unit.events()
        if not events:
            return
        self._outbox_seq += 1
        row = {"seq": self._outbox_seq, "at": unit.now, "events": json.dumps(events)}
        self._connection.execute(insert(schema.outbox), row)
        if self._outbox_seq % _PRUNE_EVERY == 0:
            oldest = self._outbox_seq - OUTBOX_KEPT
            self._connection.execute(delete(schema.outbox).where(schema.outbox.c.seq < oldest))

    def close(self) -> None:
        self._connection.close()
        self.engine.dispose()
