"""Audits of every entity's statuses, made from what the entities declare."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from sqlalchemy import select

from muster.store.audit.finding import Audit, AuditFinding, Stored, name_column
from muster.store.entity import Entity
from muster.store.lookup import Lookup


@lru_cache(maxsize=64)
def _with_other_statuses(entity: Entity[Any]) -> Lookup:
    status = entity.table.c.status
    known = sorted(entity.states.live | entity.states.terminal)
    return Lookup(select(name_column(entity), status).where(status.not_in(known)))


@lru_cache(maxsize=64)
def _with_wrong_ends(entity: Entity[Any]) -> Lookup:
    columns = entity.table.c
    has_ended = columns.status.in_(sorted(entity.states.terminal))
    found = select(name_column(entity), columns.status, columns.finished_at)
    return Lookup(found.where(has_ended == columns.finished_at.is_(None)))


def _unknown(stored: Stored) -> Iterator[AuditFinding]:
    for entity in stored.entities.values():
        for name, found in _with_other_statuses(entity).each(stored.connection):
            yield AuditFinding(name, f"has the status {found!r}, which no {entity.name} can have")


def _ends(stored: Stored) -> Iterator[AuditFinding]:
    for entity in stored.entities.values():
        if "finished_at" not in entity.table.c:
            continue
        for name, status, finished_at in _with_wrong_ends(entity).each(stored.connection):
            said = "has no time of its end" if finished_at is None else "has a time of its end"
            yield AuditFinding(name, f"is {status} and {said}")


AUDITS = (
    Audit("each status is one that the entity can have", _unknown),
    Audit("what has ended, and only that, has a time of its end", _ends),
)
