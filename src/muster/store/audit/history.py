"""Audits of history: its steps follow each other, and lead to the status that is stored."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Row, Select, except_, func, select, tuple_, union_all

from muster.core.states import StateTable
from muster.store import schema
from muster.store.audit.finding import Audit, AuditFinding, Stored, name_column
from muster.store.entities import TASK
from muster.store.entity import Entity, Told
from muster.store.lookup import Lookup

_steps = schema.history.c


@lru_cache(maxsize=64)
def _reachable(states: StateTable[Any]) -> Mapping[str, frozenset[str]]:
    """By status the statuses in which a record can be later, itself included."""
    reached = {str(state): {str(state)} for state in type(states.initial)}
    for _ in reached:
        for start, end in states.allowed:
            for known in reached.values():
                if start in known:
                    known.add(end)
    return {state: frozenset(later) for state, later in reached.items()}


@lru_cache(maxsize=64)
def _later(entity: Entity[Any]) -> Mapping[str, frozenset[str]]:
    """For each status in history the statuses that a record may have by now without a further row
    of history: the same one, and others where history does not tell every change."""
    if entity.told is Told.ALWAYS:
        return {str(state): frozenset({str(state)}) for state in type(entity.states.initial)}
    return _reachable(entity.states)


_IS_OF_RECORD = _steps.entity.not_like("%:%")
"""The condition for steps of a record: others are of settings, which have no states."""
_EVERY: Select[Any] = (
    select(
        _steps.entity,
        _steps.seq,
        _steps.from_status,
        _steps.to_status,
        _steps.times,
        _steps.first_at,
        _steps.last_at,
    )
    .where(_IS_OF_RECORD)
    .order_by(_steps.entity, _steps.seq)
)


def _out_of_order(stored: Stored) -> Iterator[AuditFinding]:
    rows = stored.connection.execute(_EVERY)
    for name, steps in groupby(rows, attrgetter("entity")):
        entity = stored.entities.told_as(name) or TASK
        for sentence in _contradictions(entity, steps):
            yield AuditFinding(name, sentence)


def _contradictions(entity: Entity[Any], steps: Iterable[Row[Any]]) -> Iterator[str]:
    """Sentences on the contradictions between the steps of one record, which are given in the order
    of their numbers."""
    states, later = entity.states, _later(entity)
    status, at = str(states.initial), 0.0
    for step in steps:
        begins, ends = step.from_status, step.to_status
        told = f"step {step.seq} of its history"
        if begins not in later.get(status, ()):
            yield f"{told} begins at {begins}, and the step before it ended at {status}"
        if begins != ends and (begins, ends) not in states.allowed:
            yield f"{told} goes from {begins} to {ends}, which no {entity.name} can"
        if step.first_at < at or step.last_at < step.first_at or step.times < 1:
            yield f"{told} is out of order in time"
        status, at = ends, step.first_at


@lru_cache(maxsize=64)
def _with_other_ends(entity: Entity[Any]) -> Lookup:
    name, c = name_column(entity), entity.table.c
    of_record = select(_steps.to_status).where(_steps.entity == name)
    newest = of_record.order_by(_steps.seq.desc()).limit(1).scalar_subquery()
    told = func.coalesce(newest, str(entity.states.initial))
    pairs = sorted((was, now) for was, since in _later(entity).items() for now in since)
    wrong = tuple_(told, c.status).not_in(pairs)
    return Lookup(select(name, c.status, told).select_from(entity.table).where(wrong))


@lru_cache(maxsize=64)
def _with_other_times(entity: Entity[Any]) -> Lookup:
    name, c = name_column(entity), entity.table.c
    changes = select(_steps.first_at).where(
        _steps.entity == name, _steps.from_status != _steps.to_status
    )
    changed_at = changes.order_by(_steps.seq.desc()).limit(1).scalar_subquery()
    found = select(name, c.status_changed_at, changed_at)
    return Lookup(found.where(changed_at != c.status_changed_at))


def _untrue(stored: Stored) -> Iterator[AuditFinding]:
    for entity in stored.entities.values():
        if entity.told is Told.NEVER:
            continue
        for id_, status, ended in _with_other_ends(entity).each(stored.connection):
            yield AuditFinding(id_, f"is {status}, and its history ends at {ended}")


def _wrong_times(stored: Stored) -> Iterator[AuditFinding]:
    for entity in stored.entities.values():
        if entity.told is not Told.ALWAYS:
            continue
        for id_, stored_at, told_at in _with_other_times(entity).each(stored.connection):
            yield AuditFinding(
                id_, f"changed its status at {stored_at}, and by its history at {told_at}"
            )


@lru_cache(maxsize=64)
def _of_none_of(*entities: Entity[Any]) -> Lookup:
    known = [select(name_column(entity)) for entity in entities]
    everybody = select(union_all(*known).subquery())
    return Lookup(except_(select(_steps.entity).where(_IS_OF_RECORD), everybody))


def _of_nothing(stored: Stored) -> Iterator[AuditFinding]:
    for (name,) in _of_none_of(*stored.entities.values()).each(stored.connection):
        yield AuditFinding(name, "has a history, and is not there")


AUDITS = (
    Audit("the steps of each history follow each other", _out_of_order),
    Audit("each status is the one at which its history ends", _untrue),
    Audit("each status changed when its history says", _wrong_times),
    Audit("each history is of something that is there", _of_nothing),
)
