"""Work that has ended, for work that depends on it."""

from collections.abc import Collection, Iterator

from sqlalchemy import ColumnElement, Connection, func, or_, select

from muster.core.owner import Owner
from muster.core.reasons import ReasonCode
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState
from muster.scheduling.workload import DependencyState, Progress
from muster.store import schema
from muster.store.queries.refs import owned_by
from muster.store.sql import one_of

_Ended = tuple[str, str | None, Progress]
"""The id, the name, and how the work ended."""


def read_ended(
    connection: Connection, owner: Owner, refs: Collection[str]
) -> dict[str, tuple[str, Progress]]:
    """The owner's ended jobs and sessions without a job, by ``refs``, which are names or ids: the
    id of each, and how it ended. Of several with one name it is the newest, a job before a session.
    """
    if not refs:
        return {}
    wanted = sorted(set(refs))
    jobs, sessions = schema.jobs, schema.sessions
    found: dict[str, tuple[str, Progress]] = {}
    for id_, name, progress in (
        *_sessions(connection, _called(sessions.c.id, sessions.c.name, wanted, owner)),
        *_jobs(connection, _called(jobs.c.id, jobs.c.name, wanted, owner)),
    ):
        found |= {ref: (id_, progress) for ref in (id_, name) if ref in wanted}
    return found


def read_ended_by_id(connection: Connection, ids: Collection[str]) -> dict[str, Progress]:
    """How each of these jobs, or sessions without a job, ended, by id; work that has not ended is
    left out."""
    return {
        id_: progress
        for id_, _, progress in (
            *_sessions(connection, schema.sessions.c.id.in_(ids)),
            *_jobs(connection, schema.jobs.c.id.in_(ids)),
        )
    }


def _called(
    id_: ColumnElement[str], name: ColumnElement[str], wanted: list[str], owner: Owner
) -> ColumnElement[bool]:
    table = schema.jobs if id_ is schema.jobs.c.id else schema.sessions
    return or_(id_.in_(wanted), name.in_(wanted)) & owned_by(table, owner)


def _jobs(connection: Connection, which: ColumnElement[bool]) -> Iterator[_Ended]:
    jobs = schema.jobs.c
    for row in connection.execute(
        select(jobs.id, jobs.name, jobs.status, jobs.finished_at)
        .where(which, one_of(jobs.status, JOB_TABLE.terminal))
        .order_by(jobs.id)  # so that the newest comes last
    ):
        yield row.id, row.name, _progress(row.status == JobState.SUCCEEDED, row.finished_at)


def _sessions(connection: Connection, which: ColumnElement[bool]) -> Iterator[_Ended]:
    """Ended sessions. A session that was stopped has not succeeded, whatever its exit code."""
    sessions, kernels = schema.sessions.c, schema.kernels.c
    well = func.count().filter(kernels.exit_code == 0) == func.count()
    for row in connection.execute(
        select(
            sessions.id, sessions.name, sessions.reason, sessions.finished_at, well.label("well")
        )
        .join(schema.kernels, kernels.session_id == sessions.id)
        .where(which, sessions.job_id.is_(None), one_of(sessions.status, SESSION_TABLE.terminal))
        .group_by(sessions.id, sessions.name, sessions.reason, sessions.finished_at)
        .order_by(sessions.id)
    ):
        by_itself = row.reason == ReasonCode.COMPLETED
        yield row.id, row.name, _progress(bool(row.well) and by_itself, row.finished_at)


def _progress(succeeded: bool, finished_at: float | None) -> Progress:
    state = DependencyState.SUCCEEDED if succeeded else DependencyState.ENDED_OTHERWISE
    return Progress(state, finished_at or 0.0)
