"""Work that has ended, for work that depends on it."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    func,
    or_,
    select,
)

from muster.core.owner import Owner
from muster.core.reasons import ReasonCode
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState
from muster.scheduling.workload import DependencyProgress, DependencyState
from muster.store import schema
from muster.store.lookup import Selection, given
from muster.store.sql import one_of

_Ended = tuple[str, str | None, DependencyProgress]
"""The id, the name, and how the work ended."""
_Keys: TypeAlias = Sequence[BindParameter[str]]


def _by_id(table: Table, keys: _Keys) -> ColumnElement[bool]:
    return table.c.id.in_(keys)


def _called(table: Table, keys: _Keys) -> ColumnElement[bool]:
    """The condition for an owner's work that has one of the keys as its id or name."""
    owned = (table.c[level] == given(level) for level in ("domain", "project", "user"))
    return and_(or_(table.c.id.in_(keys), table.c.name.in_(keys)), *owned)


def _ended_jobs(which: ColumnElement[bool]) -> Select[Any]:
    jobs = schema.jobs.c
    return (
        select(jobs.id, jobs.name, jobs.status, jobs.finished_at)
        .where(which, one_of(jobs.status, JOB_TABLE.terminal))
        .order_by(jobs.id)  # so that the newest comes last
    )


def _ended_sessions(which: ColumnElement[bool]) -> Select[Any]:
    sessions, kernels = schema.sessions.c, schema.kernels.c
    well = func.count().filter(kernels.exit_code == 0) == func.count()
    found = sessions.id, sessions.name, sessions.reason, sessions.finished_at
    return (
        select(*found, well)
        .join(schema.kernels, kernels.session_id == sessions.id)
        .where(which, sessions.job_id.is_(None), one_of(sessions.status, SESSION_TABLE.terminal))
        .group_by(*found)
        .order_by(sessions.id)
    )


_JOBS_BY_ID = Selection(lambda keys: _ended_jobs(_by_id(schema.jobs, keys)))
_JOBS_CALLED = Selection(lambda keys: _ended_jobs(_called(schema.jobs, keys)))
_SESSIONS_BY_ID = Selection(lambda keys: _ended_sessions(_by_id(schema.sessions, keys)))
_SESSIONS_CALLED = Selection(lambda keys: _ended_sessions(_called(schema.sessions, keys)))


def read_ended(
    connection: Connection, owner: Owner, refs: Collection[str]
) -> dict[str, tuple[str, DependencyProgress]]:
    """The owner's ended jobs and sessions without a job, by ``refs``, which are names or ids: the
    id of each, and how it ended. Of several with one name it is the newest, a job before a session.
    """
    if not refs:
        return {}
    wanted = sorted(set(refs))
    found: dict[str, tuple[str, DependencyProgress]] = {}
    for id_, name, progress in (
        *_sessions(_SESSIONS_CALLED.rows(connection, wanted, asdict(owner))),
        *_jobs(_JOBS_CALLED.rows(connection, wanted, asdict(owner))),
    ):
        found |= {ref: (id_, progress) for ref in (id_, name) if ref in wanted}
    return found


def read_ended_by_id(connection: Connection, ids: Collection[str]) -> dict[str, DependencyProgress]:
    """How each of these jobs, or sessions without a job, ended, by id; work that has not ended is
    left out."""
    return {
        id_: progress
        for id_, _, progress in (
            *_sessions(_SESSIONS_BY_ID.rows(connection, [*ids])),
            *_jobs(_JOBS_BY_ID.rows(connection, [*ids])),
        )
    }


def _jobs(rows: Iterable[Sequence[Any]]) -> Iterator[_Ended]:
    for id_, name, status, finished_at in rows:
        yield id_, name, _progress(status == JobState.SUCCEEDED, finished_at)


def _sessions(rows: Iterable[Sequence[Any]]) -> Iterator[_Ended]:
    """Ended sessions. A session that was stopped has not succeeded, whatever its exit code."""
    for id_, name, reason, finished_at, well in rows:
        by_itself = bool(well) and reason == ReasonCode.COMPLETED
        succeeded = by_itself or reason == ReasonCode.LEADER_ENDED
        yield id_, name, _progress(succeeded, finished_at)


def _progress(succeeded: bool, finished_at: float | None) -> DependencyProgress:
    state = DependencyState.SUCCEEDED if succeeded else DependencyState.ENDED_OTHERWISE
    return DependencyProgress(state, finished_at or 0.0)
