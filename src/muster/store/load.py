"""Reading the mirror from SQL: when a store begins, and after a failed commit."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, bindparam, select

from muster.core.ids import AgentId, JobId
from muster.core.resources import Resources
from muster.core.specs import (
    JobSpec,
    Level,
    QuotaSpec,
    ScalingGroup,
    SessionSpec,
)
from muster.core.specs.service import stored_spec
from muster.core.specs.session import Process
from muster.core.states import (
    AGENT_TABLE,
    SESSION_TABLE,
    TASK_TABLE,
)
from muster.store import schema
from muster.store.accounts import read_accounts
from muster.store.ended_specs import load_ended_specs
from muster.store.entity import Entities
from muster.store.live import Live
from muster.store.lookup import Lookup
from muster.store.queries.cluster import read_cluster_id
from muster.store.queries.dependencies import read_ended_by_id
from muster.store.records import (
    AGENTS,
    ALLOCATIONS,
    JOBS,
    KERNELS,
    SESSIONS,
    TASKS,
    Agent,
    Allocation,
    Job,
    Kernel,
    Session,
)
from muster.store.sql import one_of
from muster.store.stored_values import load_request

_make_session = SESSIONS.maker("job", "spec", "spec_bytes", "retry_at")
_make_kernel = KERNELS.maker("session", "process", "resources")
CHUNK = 500  # bound parameters a statement
_Processes: TypeAlias = Sequence[tuple[Process, Resources]]

# To make a statement takes as long as to run it where little is found, so these are made once.
# All are read in an order of their own: PostgreSQL gives rows in that of their last changes, and
# whoever is first of its like in the mirror may be decided about first.
_ALLOCATIONS = Lookup(
    select(schema.allocations).order_by(
        schema.allocations.c.since, schema.allocations.c.kernel_id, schema.allocations.c.generation
    )
)
_GROUPS = Lookup(select(schema.groups).order_by(schema.groups.c.name))
_QUOTAS = Lookup(select(schema.quotas).order_by(schema.quotas.c.level, schema.quotas.c.name))
_CREDENTIALS = Lookup(select(schema.agents.c.credential_hash, schema.agents.c.id))
_AGENTS = Lookup(
    select(schema.agents)
    .where(schema.agents.c.status.not_in(sorted(AGENT_TABLE.terminal)))
    .order_by(schema.agents.c.id)
)
_TASKS = Lookup(
    select(schema.tasks)
    .where(schema.tasks.c.status.in_(sorted(TASK_TABLE.live)))
    .order_by(schema.tasks.c.job_id, schema.tasks.c.idx)
)
_IS_LIVE = one_of(schema.sessions.c.status, SESSION_TABLE.live)
_KERNELS = Lookup(
    select(schema.kernels)
    .where(schema.kernels.c.session_id.in_(select(schema.sessions.c.id).where(_IS_LIVE)))
    .order_by(schema.kernels.c.session_id, schema.kernels.c.idx)
)


def load_live(connection: Connection, entities: Entities) -> Live:
    """All records that have not ended, and all rows of the ledger."""
    live = Live(entities)
    live.accounts = read_accounts(connection)
    live.cluster = read_cluster_id(connection)
    for row in _GROUPS.named(connection):
        live.groups[row.name] = ScalingGroup.stored(row.spec)
    for row in _QUOTAS.named(connection):
        live.quotas[Level(row.level), row.name] = QuotaSpec.stored(row.spec)
    for entity in entities.values():
        if entity.load is not None:
            entity.load(connection, live)
    load_ended_specs(connection, live)
    _load_ended_dependencies(connection, live)
    for row in _ALLOCATIONS.named(connection):
        live.allocate(_allocation(row))
    _load_orphans(connection, live)
    return live


def load_agents(connection: Connection, live: Live) -> None:
    """Read the agents that have not been removed, and the credentials of all."""
    for hash_, id_ in _CREDENTIALS.each(connection):
        live.credentials[hash_] = AgentId(id_)
    for row in _AGENTS.named(connection):
        live.add(load_agent(row))


def _load_ended_dependencies(connection: Connection, live: Live) -> None:
    """Read how ended work ended, if live work depends on it."""
    wanted = {each.on for job in live.jobs.values() for each in job.spec.after}
    for session in live.sessions.values():
        if session.spec is not None:
            wanted.update(each.on for each in session.spec.after)
    for entity in live.entities.values():
        if entity.waits_for is not None:
            wanted.update(*map(entity.waits_for, live.of(entity.record).values()))
    missing = sorted(wanted - live.jobs.keys() - live.sessions.keys())
    for first in range(0, len(missing), CHUNK):
        live.ended_dependencies |= read_ended_by_id(connection, missing[first : first + CHUNK])


def _load_orphans(connection: Connection, live: Live) -> None:
    """Read the kernels that still hold room though their sessions have ended."""
    sessions, kernels = schema.sessions, schema.kernels
    orphans = [kernel for kernel in live.allocations_of if kernel not in live.kernels]
    ids = sorted({row.session_id for row in _in_chunks(connection, kernels, kernels.c.id, orphans)})
    found = list(_in_chunks(connection, sessions, sessions.c.id, ids))
    their_kernels = list(_in_chunks(connection, kernels, kernels.c.session_id, ids))
    for session in _sessions(connection, live, found, sorted(their_kernels, key=_by_index)):
        for kernel in session.kernels:
            if kernel.id in live.allocations_of:
                live.left[kernel.id] = kernel


def _by_index(kernel: Row[Any]) -> int:
    index: int = kernel.idx
    return index


def load_jobs(connection: Connection, live: Live) -> None:
    """Read the jobs that have not ended."""
    for row in JOBS.live.named(connection):
        live.add(load_job(row))


def load_tasks(connection: Connection, live: Live) -> None:
    """The live tasks of the jobs in the mirror; the jobs' rows have the counts of tasks already.

    To be called after ``load_sessions``. A task whose session has ended, and whose attempt was not
    judged, is tried again. No budget is charged for that attempt.
    """
    for row in _TASKS.named(connection):
        job = live.jobs.get(JobId(row.job_id))
        if job is not None:
            task = job.tasks[row.idx] = TASKS.load(row, job=job)
            if task.session_id not in live.sessions:
                task.session_id = None
            if task.session_id is None:
                job.waiting[task.index] = task


def load_sessions(connection: Connection, live: Live) -> None:
    """Read the sessions that have not ended, with their kernels."""
    found = [*SESSIONS.live.named(connection)]
    for session in _sessions(connection, live, found, _KERNELS.named(connection)):
        live.add(session)


def _sessions(
    connection: Connection, live: Live, found: Sequence[Row[Any]], kernels: Iterable[Row[Any]]
) -> Iterator[Session]:
    """The sessions of these rows.

    Args:
        kernels: the rows of their kernels, those of a session in the order of their indexes.
    """
    # A job may have ended while its last sessions are still being stopped.
    ended = sorted({row.job_id for row in found if row.job_id} - set(live.jobs))
    jobs: dict[str, Job] = {str(key): job for key, job in live.jobs.items()}
    for row in _in_chunks(connection, schema.jobs, schema.jobs.c.id, ended):
        jobs[row.id] = load_job(row)
    by_session: dict[str, list[Row[Any]]] = {row.id: [] for row in found}
    for row in kernels:
        by_session[row.session_id].append(row)
    specs = _Specs(live)
    for row in found:
        job = jobs.get(row.job_id)
        spec, processes = specs[row.spec] if row.spec else (None, _job_processes(job))
        session = _session(row, job, spec)
        session.kernels = [_kernel(each, session, processes) for each in by_session[session.id]]
        yield session


class _Specs(dict[str, tuple[SessionSpec, _Processes]]):
    """Sessions' specs by their stored texts, most of which are equal, with the processes of their
    kernels."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def __missing__(self, text: str) -> tuple[SessionSpec, _Processes]:
        spec = self._live.shared(stored_spec(text))
        self[text] = found = spec, spec_processes(spec)
        return found


def _in_chunks(
    connection: Connection, table: Table, column: ColumnElement[str], values: Sequence[str]
) -> Iterator[Row[Any]]:
    for start in range(0, len(values), CHUNK):
        some = values[start : start + CHUNK]
        yield from connection.execute(_with_one_of(table, column), {"some": some})


@cache
def _with_one_of(table: Table, column: ColumnElement[str]) -> Select[Any]:
    return select(table).where(column.in_(bindparam("some", expanding=True)))


def spec_processes(spec: SessionSpec) -> _Processes:
    """The process and the request of each kernel of a session without a job; equal kernels share
    the objects."""
    processes: list[tuple[Process, Resources]] = []
    for kernel in spec.kernels:
        processes += [(kernel, kernel.resources.resources())] * kernel.replicas
    return processes


def _job_processes(job: Job | None) -> _Processes:
    assert job is not None, "a session has a job or a spec of its own"
    return [(job.spec, job.resources)] * (job.tasks_total if job.spec.coscheduled else 1)


def load_agent(row: Row[Any]) -> Agent:
    """The agent of a row."""
    return AGENTS.load(row, term_s=row.lease_s)


def load_job(row: Row[Any]) -> Job:
    """The job of a row."""
    spec = JobSpec.stored(row.spec)
    size = len(row.spec.encode())
    return JOBS.load(row, spec=spec, resources=spec.resources.resources(), spec_bytes=size)


def _session(row: Row[Any], job: Job | None, spec: SessionSpec | None) -> Session:
    size = len(row.spec.encode()) if row.spec else 0
    # The failure for which it waits is not stored, and will be reported again.
    return _make_session(row, job, spec, size, 0.0)


def _kernel(row: Row[Any], session: Session, processes: _Processes) -> Kernel:
    process, resources = processes[row.idx]
    return _make_kernel(row, session, process, resources)


def _allocation(row: Any) -> Allocation:
    amounts = row.cpu_milli, row.memory_bytes, row.disk_bytes, row.gpu_milli, row.extra
    return ALLOCATIONS.load(row, resources=load_request(*amounts))
