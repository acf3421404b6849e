"""History, as the API tells it."""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select

from muster.core.errors import NotFound, nothing_named
from muster.core.ids import IdKind
from muster.core.owner import Principal
from muster.core.reasons.of_pools import PoolChangedBy
from muster.core.reasons.of_settings import SettingChanged
from muster.core.settings import SETTING_PHASE, SettingName
from muster.core.views.base import ReasonView
from muster.core.views.settings import ChangePage, ChangeView, DifferenceView
from muster.core.views.work import HistoryPage, HistoryView
from muster.store import schema
from muster.store.entities import TASK, sessions_of
from muster.store.entity import Entities
from muster.store.queries.refs import resolve
from muster.store.queries.settings import as_seen, find_setting
from muster.store.queries.tasks import job_row, task_view
from muster.store.stored_values import load_reasons

_CHANGES_AT_A_TIME = 500


def read_history(
    connection: Connection, entities: Entities, principal: Principal, ref: str, limit: int
) -> HistoryPage:
    """The history of a job with its tasks and sessions, of one task (``job/index``) with the
    sessions of its attempts, or of a record of another kind, each with the records named below it,
    such as notices of its end; or of a setting (``settings.find_setting``).

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
    items = (_view(found[key], entities, principal, attempts.get(key[1])) for key in kept)
    return HistoryPage(items=tuple(items), left_out=len(found) > limit)


def read_changes(
    connection: Connection,
    entities: Entities,
    principal: Principal,
    *,
    kind: str | None = None,
    by: str | None = None,
    cursor: int | None = None,
    limit: int = 100,
) -> ChangePage:
    """The changes of settings and pools, the newest first.

    Args:
        kind: of settings: ``SettingKind``, or ``pool``.
        by: who made them: a user, or domain/user.
        cursor: those before this number only.
    """
    history = schema.history
    changes = select(history).where(history.c.phase == SETTING_PHASE)
    if kind is not None:
        changes = changes.where(_of_kind(entities, kind))
    if cursor is not None:
        changes = changes.where(history.c.seq < cursor)
    newest = changes.order_by(history.c.seq.desc())
    streamed = connection.execution_options(yield_per=_CHANGES_AT_A_TIME).execute(newest)
    told = ((row, _changed_by(row)) for row in streamed)
    asked = ((row, who) for row, who in told if by in (None, who, (who or "").partition("/")[2]))
    found = [*islice(asked, limit + 1)]
    names = _names(connection, entities, [row.entity for row, _ in found])
    items = [_change_view(entities, row, who, names) for row, who in found[:limit]]
    return ChangePage(items=tuple(items), next=str(items[-1].seq) if len(found) > limit else None)


def _of_kind(entities: Entities, kind: str) -> ColumnElement[bool]:
    """The condition for changes of one kind of settings, or of records."""
    name, record = schema.history.c.entity, entities.named(kind)
    if record is not None:
        return (name >= f"{record.prefix}-") & (name < f"{record.prefix}.")  # "." comes after "-"
    return (name >= f"{kind}:") & (name < f"{kind};")  # ";" comes after ":"


def _changed_by(row: Row[Any]) -> str | None:
    """The principal that made a change, as domain/user; of old rows the user alone."""
    why = _change(row)
    if why is None or not why.by:
        return None
    return f"{why.domain}/{why.by}" if why.domain else why.by


def _change(row: Row[Any]) -> SettingChanged | PoolChangedBy | None:
    """The reason that tells a change; None if it is not known."""
    for each in load_reasons(row.reasons):
        if isinstance(each, SettingChanged | PoolChangedBy):
            return each
    return None


def _names(connection: Connection, entities: Entities, ids: Collection[str]) -> dict[str, str]:
    """The names of records, by id; ids of settings are left out."""
    found: dict[str, str] = {}
    for entity in entities.referred():
        its = [id_ for id_ in ids if id_.startswith(f"{entity.prefix}-")]
        if its and "name" in entity.table.c:
            c = entity.table.c
            rows = connection.execute(select(c.id, c.name).where(c.id.in_(its)))
            found |= {row.id: row.name for row in rows}
    return found


def _change_view(
    entities: Entities, row: Row[Any], by: str | None, names: Mapping[str, str]
) -> ChangeView:
    why, setting = _change(row), SettingName.of(row.entity)
    record = entities.told_as(row.entity)
    kind = "" if record is None else record.name
    what = why.what if isinstance(why, PoolChangedBy) else ""
    changes = None if why is None else why.changes
    return ChangeView(
        seq=row.seq,
        at=row.first_at,
        kind=kind if setting is None else str(setting.kind),
        name=names.get(row.entity, row.entity) if setting is None else setting.name,
        what=what or row.to_status.lower(),
        by=by,
        token=None if why is None else why.token,
        changes=tuple(
            DifferenceView(key=key, before=before, after=after)
            for key, before, after in changes or ()
        ),
    )


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
    if SettingName.of(ref) is not None or (slash and not index.isdecimal()):
        setting = find_setting(connection, principal, ref)
        if setting is not None:
            return [entity == str(setting)]
    if slash:
        job = job_row(connection, principal, job_ref)
        number = int(index) if index.isdecimal() and len(index) < 10 else -1
        task = task_view(connection, job, number)
        return [entity == f"{job.id}/{task.index}", entity.in_(sessions_of(job.id, task.index))]
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
        beside = [] if each.beside is None else [entity.in_(each.beside(id_))]
        return [entity == id_, parts, *beside]
    setting = find_setting(connection, principal, ref)
    if setting is not None:
        return [entity == str(setting)]
    raise nothing_named(ref, *(each.name for each in referred))


def _view(
    row: Row[Any], entities: Entities, principal: Principal, attempt: Row[Any] | None
) -> HistoryView:
    setting = SettingName.of(row.entity)
    kind = entities.told_as(row.entity) or TASK
    happened = kind.states.words.get(row.to_status, "")
    reasons = load_reasons(row.reasons)
    if row.phase == SETTING_PHASE:
        reasons = as_seen(reasons, principal)
    return HistoryView(
        seq=row.seq,
        entity=row.entity,
        kind=kind.name if setting is None else str(setting.kind),
        phase=row.phase,
        from_status=row.from_status,
        to_status=row.to_status,
        happened=happened if setting is None else row.to_status.lower(),
        result=row.result,
        reasons=tuple(ReasonView.of(reason) for reason in reasons),
        times=row.times,
        first_at=row.first_at,
        last_at=row.last_at,
        task_index=None if attempt is None else attempt.task_index,
        attempt=0 if attempt is None else attempt.attempt,
        kernels=0 if attempt is None else attempt.kernels,
        agent=None if attempt is None else attempt.agent,
    )
