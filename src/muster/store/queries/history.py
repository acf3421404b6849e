"""History, as the API tells it."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select

from muster.core.errors import NotFound, nothing_named
from muster.core.ids import IdKind
from muster.core.owner import Principal
from muster.core.views.base import ReasonView
from muster.core.views.work import HistoryPage, HistoryView
from muster.store import schema
from muster.store.entities import JOB, TASK
from muster.store.entity import Entities, Entity
from muster.store.queries.refs import resolve
from muster.store.queries.tasks import job_row, task_view
from muster.store.stored_values import load_reasons

MAX_SESSIONS = 1000
"""The number of a job's latest sessions whose history is shown with that of the job."""


def read_history(
    connection: Connection, entities: Entities, principal: Principal, ref: str, limit: int
) -> HistoryPage:
    """The history of a job with its tasks and sessions, of one task (``job/index``) with the
    sessions of its attempts, or of a record of another kind; each with the records named below it,
    such as notices of its end.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    history = schema.history
    found: dict[tuple[int, str], Row[Any]] = {}
    for told in _conditions(connection, entities, principal, ref):
        newest = select(history).where(told).order_by(history.c.seq.desc()).limit(limit + 1)
        found |= {(row.seq, row.entity): row for row in connection.execute(newest)}
    kept = sorted(found)[-limit:]
    attempts = _attempts(connection, {name for _, name in kept if IdKind.SESSION.begins(name)})
    items = (
        _view(found[key], entities.told_as(key[1]) or TASK, attempts.get(key[1])) for key in kept
    )
    return HistoryPage(items=tuple(items), left_out=len(found) > limit)


def _attempts(connection: Connection, sessions: Collection[str]) -> dict[str, Row[Any]]:
    """For each session the task, the attempt and the agent of its first kernel, and the number of
    its kernels."""
    kernels, agents = schema.kernels, schema.agents
    if not sessions:
        return {}
    counted = (
        select(kernels.c.session_id, func.count().label("kernels"))
        .where(kernels.c.session_id.in_(sorted(sessions)))
        .group_by(kernels.c.session_id)
        .subquery()
    )
    first = kernels.join(counted, counted.c.session_id == kernels.c.session_id).outerjoin(
        agents, agents.c.id == kernels.c.agent_id
    )
    wanted: Select[Any] = (
        select(
            kernels.c.session_id,
            kernels.c.task_index,
            kernels.c.attempt,
            counted.c.kernels,
            agents.c.name.label("agent"),
        )
        .select_from(first)
        .where(kernels.c.idx == 0)
    )
    return {row.session_id: row for row in connection.execute(wanted)}


def _conditions(
    connection: Connection, entities: Entities, principal: Principal, ref: str
) -> list[ColumnElement[bool]]:
    """The conditions for the history rows of ``ref``, in a form that the table's index answers."""
    entity = schema.history.c.entity
    job_ref, slash, index = ref.partition("/")
    if slash:
        job = job_row(connection, principal, job_ref)
        number = int(index) if index.isdecimal() and len(index) < 10 else -1
        task = task_view(connection, job, number)
        return [entity == f"{job.id}/{task.index}", entity.in_(_sessions(job.id, task.index))]
    referred = entities.referred()
    for each in referred:
        try:
            id_ = resolve(connection, each, principal, ref)
        except NotFound:
            continue
        if each.id_column is not None:
            named = select(each.id_column).where(each.table.c.id == id_)
            id_ = connection.execute(named).scalar_one()
        parts = (entity >= f"{id_}/") & (entity < f"{id_}0")  # "0" comes after "/"
        if each is not JOB:
            return [entity == id_, parts]
        return [entity == id_, parts, entity.in_(_sessions(id_))]
    raise nothing_named(ref, *(each.name for each in referred))


def _sessions(job_id: str, index: int | None = None) -> Select[Any]:
    kernels = schema.kernels
    sessions = select(kernels.c.session_id).distinct().where(kernels.c.job_id == job_id)
    if index is not None:
        sessions = sessions.where(kernels.c.task_index == index)
    return sessions.order_by(kernels.c.session_id.desc()).limit(MAX_SESSIONS)


def _view(row: Row[Any], kind: Entity[Any], attempt: Row[Any] | None) -> HistoryView:
    return HistoryView(
        seq=row.seq,
        entity=row.entity,
        kind=kind.name,
        phase=row.phase,
        from_status=row.from_status,
        to_status=row.to_status,
        happened=kind.states.words.get(row.to_status, ""),
        result=row.result,
        reasons=tuple(ReasonView.of(reason) for reason in load_reasons(row.reasons)),
        times=row.times,
        first_at=row.first_at,
        last_at=row.last_at,
        task_index=None if attempt is None else attempt.task_index,
        attempt=0 if attempt is None else attempt.attempt,
        kernels=0 if attempt is None else attempt.kernels,
        agent=None if attempt is None else attempt.agent,
    )
