"""Work that has ended, for what is to start after it."""

from collections.abc import Collection

from sqlalchemy import Connection, func, or_, select

from muster.core.owner import Owner
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState
from muster.scheduling.workload import TargetState
from muster.store import schema
from muster.store.queries.refs import one_of, owned_by


def read_ended(
    connection: Connection, owner: Owner, refs: Collection[str]
) -> dict[str, tuple[str, TargetState]]:
    """The owner's jobs, and sessions of their own, that have ended: id and how, by each of
    ``refs``, a name or an id. Of several of a name it is the newest, a job before a session.
    """
    wanted = sorted(set(refs))
    return _sessions(connection, owner, wanted) | _jobs(connection, owner, wanted)


def _jobs(
    connection: Connection, owner: Owner, wanted: list[str]
) -> dict[str, tuple[str, TargetState]]:
    jobs = schema.jobs
    rows = connection.execute(
        select(jobs.c.id, jobs.c.name, jobs.c.state)
        .where(or_(jobs.c.id.in_(wanted), jobs.c.name.in_(wanted)), owned_by(jobs, owner))
        .where(one_of(jobs.c.state, JOB_TABLE.terminal))
        .order_by(jobs.c.id)  # the last one said is the newest
    )
    found: dict[str, tuple[str, TargetState]] = {}
    for row in rows:
        told = row.id, _state(row.state == JobState.SUCCEEDED)
        found |= {ref: told for ref in (row.id, row.name) if ref in wanted}
    return found


def _sessions(
    connection: Connection, owner: Owner, wanted: list[str]
) -> dict[str, tuple[str, TargetState]]:
    sessions, kernels = schema.sessions, schema.kernels
    well = func.sum(kernels.c.exit_code == 0) == func.count()
    rows = connection.execute(
        select(sessions.c.id, sessions.c.name, well.label("well"))
        .join(kernels, kernels.c.session_id == sessions.c.id)
        .where(or_(sessions.c.id.in_(wanted), sessions.c.name.in_(wanted)))
        .where(owned_by(sessions, owner), sessions.c.job_id.is_(None))
        .where(one_of(sessions.c.status, SESSION_TABLE.terminal))
        .group_by(sessions.c.id, sessions.c.name)
        .order_by(sessions.c.id)
    )
    found: dict[str, tuple[str, TargetState]] = {}
    for row in rows:
        told = row.id, _state(bool(row.well))
        found |= {ref: told for ref in (row.id, row.name) if ref in wanted}
    return found


def _state(succeeded: bool) -> TargetState:
    return TargetState.SUCCEEDED if succeeded else TargetState.ENDED_OTHERWISE
