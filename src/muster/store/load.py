"""Reading the mirror from SQL: when a store begins, and after a failed commit."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, bindparam, select

from muster.core.ids import AgentId, JobId, KernelId, SessionId
from muster.core.owner import Owner
from muster.core.resources import Resources
from muster.core.specs import (
    JobSpec,
    Level,
    QuotaSpec,
    ScalingGroup,
    SessionSpec,
    SessionType,
)
from muster.core.specs.service import stored_spec
from muster.core.specs.session import Process
from muster.core.states import (
    AGENT_TABLE,
    JOB_TABLE,
    SESSION_TABLE,
    TASK_TABLE,
    AgentBar,
    AgentStatus,
    JobState,
    KernelStatus,
    SessionStatus,
    TaskState,
)
from muster.core.task_ranges import TaskRanges
from muster.store import schema
from muster.store.accounts import read_accounts
from muster.store.ended_specs import load_ended_specs
from muster.store.entity import Entities
from muster.store.live import Live
from muster.store.lookup import Lookup
from muster.store.queries.dependencies import read_ended_by_id
from muster.store.records import Agent, Allocation, Job, Kernel, Session, Task
from muster.store.rows import (
    load_devices,
    load_list,
    load_reason,
    load_request,
    load_resources,
    load_shares,
)
from muster.store.sql import one_of

# Sessions are many, so the values of their rows are taken by their places: by name it takes thrice
# as long.
_TYPES = {str(each): each for each in SessionType}
_SESSION_STATUSES = {str(each): each for each in SessionStatus}
_KERNEL_STATUSES = {str(each): each for each in KernelStatus}

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
_JOBS = Lookup(
    select(schema.jobs)
    .where(one_of(schema.jobs.c.status, JOB_TABLE.live))
    .order_by(schema.jobs.c.id)
)
_TASKS = Lookup(
    select(schema.tasks)
    .where(schema.tasks.c.status.in_(sorted(TASK_TABLE.live)))
    .order_by(schema.tasks.c.job_id, schema.tasks.c.idx)
)
_IS_LIVE = one_of(schema.sessions.c.status, SESSION_TABLE.live)
_SESSIONS = Lookup(select(schema.sessions).where(_IS_LIVE).order_by(schema.sessions.c.id))
_KERNELS = Lookup(
    select(schema.kernels)
    .where(schema.kernels.c.session_id.in_(select(schema.sessions.c.id).where(_IS_LIVE)))
    .order_by(schema.kernels.c.session_id, schema.kernels.c.idx)
)


def load_live(connection: Connection, entities: Entities) -> Live:
    """All records that have not ended, and all rows of the ledger."""
    live = Live(entities)
    live.accounts = read_accounts(connection)
    for row in _GROUPS.named(connection):
        live.groups[row.name] = ScalingGroup.model_validate_json(row.spec)
    for row in _QUOTAS.named(connection):
        live.quotas[Level(row.level), row.name] = QuotaSpec.model_validate_json(row.spec)
    for entity in entities.values():
        if entity.load is not None:
            entity.load(connection, live)
    load_ended_specs(connection, live)
    _load_ended_dependencies(connection, live)
    for row in _ALLOCATIONS.each(connection):
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
    for row in _JOBS.named(connection):
        live.add(load_job(row))


def load_tasks(connection: Connection, live: Live) -> None:
    """The live tasks of the jobs in the mirror; the jobs' rows have the counts of tasks already.

    To be called after ``load_sessions``. A task whose session has ended, and whose attempt was not
    judged, is tried again. No budget is charged for that attempt.
    """
    for row in _TASKS.named(connection):
        job = live.jobs.get(JobId(row.job_id))
        if job is not None:
            task = job.tasks[row.idx] = _task(row, job)
            if task.session_id not in live.sessions:
                task.session_id = None
            if task.session_id is None:
                job.waiting[task.index] = task


def load_sessions(connection: Connection, live: Live) -> None:
    """Read the sessions that have not ended, with their kernels."""
    found = [*_SESSIONS.named(connection)]
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


@lru_cache(maxsize=4096)
def _owner(domain: str, project: str, user: str) -> Owner:
    return Owner(domain, project, user)


def load_agent(row: Row[Any]) -> Agent:
    """The agent of a row."""
    return Agent(
        id=AgentId(row.id),
        name=row.name,
        group=row.group,
        status=AgentStatus(row.status),
        status_changed_at=row.status_changed_at,
        credential_hash=row.credential_hash,
        boot_id=row.boot_id,
        version=row.version,
        host=row.host,
        capacity=load_resources(row.capacity),
        devices=load_devices(row.devices),
        attributes=json.loads(row.attributes),
        fixed=json.loads(row.fixed),
        joined_at=row.joined_at,
        seen_at=row.seen_at,
        barred=AgentBar(row.barred) if row.barred else None,
        bar_note=row.bar_note,
        leave_by=row.leave_by,
        instance=row.instance,
        lease_s=row.lease_s,
        silence_s=row.silence_s,
        machine=row.machine,
        supervisor=row.supervisor,
        booted_at=row.booted_at,
        term_s=row.lease_s,
        reason=load_reason(row.reason, row.reason_numbers),
    )


def load_job(row: Row[Any]) -> Job:
    """The job of a row."""
    spec = JobSpec.model_validate_json(row.spec)
    return Job(
        id=JobId(row.id),
        name=row.name,
        owner=_owner(row.domain, row.project, row.user),
        group=row.group,
        spec=spec,
        resources=spec.resources.resources(),
        status=JobState(row.status),
        status_changed_at=row.status_changed_at,
        tasks_total=row.tasks_total,
        next_task=row.next_task,
        counts={TaskState(state): count for state, count in json.loads(row.counts).items()},
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        reason=load_reason(row.reason, row.reason_numbers),
        retry_of=row.retry_of and JobId(row.retry_of),
        stopped=TaskRanges.parse(row.stopped) if row.stopped else None,
        spec_bytes=len(row.spec.encode()),
    )


def _task(row: Row[Any], job: Job) -> Task:
    return Task(
        job=job,
        index=row.idx,
        status=TaskState(row.status),
        status_changed_at=row.status_changed_at,
        attempt=row.attempt,
        failure_count=row.failure_count,
        preemption_count=row.preemption_count,
        session_id=row.session_id and SessionId(row.session_id),
        kernel_id=row.kernel_id and KernelId(row.kernel_id),
        started_at=row.started_at,
        finished_at=row.finished_at,
        exit_code=row.exit_code,
        reason=load_reason(row.reason, row.reason_numbers),
    )


def _session(row: Sequence[Any], job: Job | None, spec: SessionSpec | None) -> Session:
    (
        id_,
        _job_id,
        name,
        type_,
        domain,
        project,
        user,
        group,
        priority,
        text,
        status,
        status_changed_at,
        created_at,
        queued_at,
        tries,
        _retry_at,  # the failure for which it waits is not stored, and will be reported again
        reschedules,
        failed_agents,
        started_at,
        finished_at,
        reason,
        reason_numbers,
        barrier_opened_at,
        _large_bytes,
        _spec_cut,
    ) = row
    return Session(
        id=id_,
        job=job,
        name=name,
        type=_TYPES[type_],
        owner=_owner(domain, project, user),
        group=group,
        priority=priority,
        spec=spec,
        status=_SESSION_STATUSES[status],
        status_changed_at=status_changed_at,
        created_at=created_at,
        queued_at=queued_at,
        tries=tries,
        reschedules=reschedules,
        failed_agents=load_list(failed_agents),
        started_at=started_at,
        finished_at=finished_at,
        barrier_opened_at=barrier_opened_at,
        spec_bytes=len(text.encode()) if text else 0,
        reason=load_reason(reason, reason_numbers),
    )


def _kernel(row: Sequence[Any], session: Session, processes: _Processes) -> Kernel:
    (
        _session_id,
        index,
        id_,
        _job_id,
        task_index,
        attempt,
        status,
        status_changed_at,
        generation,
        agent_id,
        devices,
        ports,
        started_at,
        ended_at,
        exit_code,
        signal,
        reason,
        reason_numbers,
        failed_at,
        result,
    ) = row
    process, resources = processes[index]
    return Kernel(
        id=id_,
        session=session,
        index=index,
        process=process,
        resources=resources,
        status=_KERNEL_STATUSES[status],
        status_changed_at=status_changed_at,
        task_index=task_index,
        attempt=attempt,
        generation=generation,
        agent_id=agent_id,
        shares=load_shares(devices),
        ports=load_list(ports),
        started_at=started_at,
        ended_at=ended_at,
        exit_code=exit_code,
        signal=signal,
        reason=load_reason(reason, reason_numbers),
        failed_at=failed_at,
        result=result,
    )


def _allocation(row: Sequence[Any]) -> Allocation:
    kernel_id, generation, agent_id, charged, cpu, memory, disk, gpu, extra, devices, *rest = row
    boot_id, since = rest
    return Allocation(
        kernel_id=kernel_id,
        generation=generation,
        agent_id=agent_id,
        charged=bool(charged),
        resources=load_request(cpu, memory, disk, gpu, extra),
        shares=load_shares(devices),
        boot_id=boot_id,
        since=since,
    )
