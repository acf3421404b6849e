"""The history of one unit of work: a row for each step, and counts of repeated rows."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from muster.core.reasons import Reason
from muster.core.results import SchedulingResult
from muster.store import schema
from muster.store.batch import inserting_together, updating
from muster.store.entity import Entities, Repeat, Tried
from muster.store.stored_values import dump_reasons

MAX_REPEATS = 4
"""History rows of a record with which later ones may merge."""
_INSERT = inserting_together(schema.history, schema.history.columns.keys(), ("entity", "seq"))
_UPDATE = updating(schema.history, ("reasons", "times", "last_at"), ("entity", "seq"))
COUNTS_WRITTEN_S = 300.0
"""Seconds by which the stored count of a merged refusal may lag: a kill -9 loses no more of the
counts. Each sweep counts a refusal of every waiting session; writing each count at once would cost
a hundred thousand rows a minute."""
REPEATING = frozenset({SchedulingResult.SKIPPED, SchedulingResult.NEED_RETRY})
"""Results whose rows merge with an equal earlier one."""


class History:
    """Rows that a unit of work adds, and counts of earlier ones that it changes.

    Args:
        seq: the number of the last existing row, and then of the last added one.
    """

    def __init__(self, entities: Entities, now: float, seq: int) -> None:
        self._entities = entities
        self._now = now
        self.seq = seq
        self._rows: list[Sequence[Any]] = []
        self._merged: dict[int, Sequence[Any]] = {}

    @property
    def empty(self) -> bool:
        return not self._rows and not self._merged

    def write(self, connection: Connection) -> None:
        """Write all rows and counts, in the connection's transaction."""
        _INSERT.execute(connection, self._rows)
        _UPDATE.execute(connection, self._merged.values())

    def repeat(
        self, record: Tried, phase: str, result: SchedulingResult, reasons: tuple[Reason, ...]
    ) -> None:
        """Add a row, or raise the count and the last time of a recent row with the same phase,
        result and reason codes, so that reasons that alternate do not fill the table."""
        is_refusal = result is SchedulingResult.SKIPPED
        if is_refusal:
            result = self._entities[type(record)].not_attempted
        codes = [reason.code for reason in reasons]
        for repeat in record.repeats:
            if repeat.is_of(phase, result, codes):
                repeat.count += 1
                repeat.last_at = self._now
                repeat.reasons = reasons
                is_old = self._now >= repeat.written_at + COUNTS_WRITTEN_S
                if is_old or not is_refusal:
                    self._write_count(repeat, record)
                return
        name, status = self._entities.name_of(record), record.status
        seq = self.add(name, phase, status, status, result, reasons)
        repeat = Repeat(phase, result, reasons, 1, self._now, self._now, seq)
        if len(record.repeats) == MAX_REPEATS:
            self._write_count(record.repeats[0], record)
        record.repeats = (*record.repeats, repeat)[-MAX_REPEATS:]

    def write_counts(self, record: Tried) -> None:
        """Store the counts of a record's rows when its status changes; no later row merges with
        these."""
        for repeat in record.repeats:
            self._write_count(repeat, record)
        record.repeats = ()

    def _write_count(self, repeat: Repeat, record: Tried) -> None:
        if repeat.count > 1:
            repeat.written_at = self._now
            reasons = dump_reasons(repeat.reasons)
            row = (
                reasons,
                repeat.count,
                repeat.last_at,
                self._entities.name_of(record),
                repeat.seq,
            )
            self._merged[repeat.seq] = row

    def add(
        self,
        entity: str,
        phase: str,
        before: str | None,
        to: str,
        result: SchedulingResult,
        reasons: tuple[Reason, ...] = (),
    ) -> int:
        """Add a row of an entity; the answer is its number."""
        self.seq += 1
        self._rows.append(
            (
                entity,
                self.seq,
                phase,
                before,
                to,
                result,
                dump_reasons(reasons) if reasons else None,
                1,
                self._now,
                self._now,
            )
        )
        return self.seq
