"""Audits of every entity's statuses, made from what the entities declare."""

from collections.abc import Iterator

from sqlalchemy import select

from muster.store.audit.finding import Audit, Finding, Stored, name_column


def _unknown(stored: Stored) -> Iterator[Finding]:
    for entity in stored.entities.values():
        status = entity.table.c.status
        known = sorted(entity.states.live | entity.states.terminal)
        wrong = select(name_column(entity), status).where(status.not_in(known))
        for name, found in stored.connection.execute(wrong):
            yield Finding(name, f"has the status {found!r}, which no {entity.name} can have")


def _ends(stored: Stored) -> Iterator[Finding]:
    for entity in stored.entities.values():
        columns = entity.table.c
        if "finished_at" not in columns:
            continue
        has_ended = columns.status.in_(sorted(entity.states.terminal))
        wrong = select(name_column(entity), columns.status, columns.finished_at).where(
            has_ended == columns.finished_at.is_(None)
        )
        for name, status, finished_at in stored.connection.execute(wrong):
            said = "has no time of its end" if finished_at is None else "has a time of its end"
            yield Finding(name, f"is {status} and {said}")


AUDITS = (
    Audit("each status is one that the entity can have", _unknown),
    Audit("what has ended, and only that, has a time of its end", _ends),
)
