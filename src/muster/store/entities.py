"""The entities with whose records the store itself works: the ledger and the mirror's indexes refer
to them, and they are read together. Every other entity is declared in its folder of ``control``.
"""

from enum import StrEnum
from itertools import chain
from typing import cast

from sqlalchemy import Select, String, select

from muster.core.ids import IdKind
from muster.core.states import (
    TASK_TABLE,
    KernelStatus,
    TaskState,
)
from muster.store import schema
from muster.store.entity import Entities, Entity, Told, Visible
from muster.store.kernel_tallies import tally_of
from muster.store.live import Live
from muster.store.load import load_agents, load_jobs, load_sessions, load_tasks
from muster.store.records import (
    AGENTS,
    JOBS,
    KERNELS,
    SESSIONS,
    TASKS,
    Agent,
    Job,
    Kernel,
    Session,
    Task,
)
from muster.store.unit import Unit


def _agent_joins(live: Live, agent: Agent) -> None:
    live.agent_names[agent.name] = agent


def _agent_leaves(live: Live, agent: Agent) -> None:
    if live.agent_names.get(agent.name) is agent:  # the name may be another's by now
        del live.agent_names[agent.name]


def _job_joins(live: Live, job: Job) -> None:
    live.job_names[job.owner, job.name] = job
    live.holdings.set_open(job.id, job.owner, job.spec_bytes)


def _job_leaves(live: Live, job: Job) -> None:
    del live.job_names[job.owner, job.name]
    live.holdings.ended(schema.jobs.name, job.id)


def _task_joins(live: Live, task: Task) -> None:
    job = task.job
    job.tasks[task.index] = task
    job.counts[task.status] = job.counts.get(task.status, 0) + 1


def _task_moved(unit: Unit, task: Task, before: StrEnum) -> None:
    job = task.job
    job.counts[cast(TaskState, before)] -= 1
    job.counts[task.status] = job.counts.get(task.status, 0) + 1
    unit.touch(job)
    if task.status in TASK_TABLE.terminal:
        job.tasks.pop(task.index, None)


def _session_joins(live: Live, session: Session) -> None:
    if session.job is None:
        live.holdings.set_open(session.id, session.owner, session.spec_bytes)
    if session.name is not None:
        live.session_names[session.owner, session.name] = session
    session.tally = tally_of(session.kernels)
    for kernel in session.kernels:
        live.kernels[kernel.id] = kernel


def _session_leaves(live: Live, session: Session) -> None:
    if session.job is None:
        live.holdings.ended(schema.sessions.name, session.id)
    if session.name is not None:
        name = (session.owner, session.name)
        if live.session_names.get(name) is session:
            del live.session_names[name]
    for kernel in session.kernels:
        del live.kernels[kernel.id]
        if kernel.id in live.allocations_of:
            live.left[kernel.id] = kernel


def _kernel_moved(unit: Unit, kernel: Kernel, before: StrEnum) -> None:
    kernel.session.tally.moved(kernel, cast(KernelStatus, before))


MAX_SESSIONS = 1000
"""The number of a job's latest sessions whose history is shown with that of the job."""


def sessions_of(job_id: str, index: int | None = None) -> Select[tuple[str]]:
    """The ids of the latest sessions of a job, or of one of its tasks."""
    kernels = schema.kernels
    sessions = select(kernels.c.session_id).distinct().where(kernels.c.job_id == job_id)
    if index is not None:
        sessions = sessions.where(kernels.c.task_index == index)
    return sessions.order_by(kernels.c.session_id.desc()).limit(MAX_SESSIONS)


AGENT = Entity(
    "agent",
    AGENTS,
    load_agents,
    described="the machine as the controller sees it",
    lasts=True,
    joins=_agent_joins,
    leaves=_agent_leaves,
    prefix=IdKind.AGENT,
    visible=Visible.TO_ALL,
)
JOB = Entity(
    "job",
    JOBS,
    load_jobs,
    described="work of many tasks; its status is derived from theirs",
    prefix=IdKind.JOB,
    visible=Visible.TO_OWNER,
    unsuccessful=schema.UNSUCCESSFUL_JOBS,
    beside=sessions_of,
    joins=_job_joins,
    leaves=_job_leaves,
)
TASK = Entity(
    "task",
    TASKS,
    load_tasks,
    described="one replica of a job; it FAILED only once no retry is left",
    visible=Visible.TO_OWNER,
    owned_with=JOB,
    id_of=lambda task: f"{task.job.id}/{task.index}",
    id_column=schema.tasks.c.job_id + "/" + schema.tasks.c.idx.cast(String),
    part_of=lambda task: task.job,
    listed=lambda live: chain.from_iterable(job.tasks.values() for job in live.jobs.values()),
    told=Told.WITH_REASON,
    joins=_task_joins,
    moved=_task_moved,
)
SESSION = Entity(
    "session",
    SESSIONS,
    load_sessions,
    described="what is placed: kernels that start together or not at all",
    prefix=IdKind.SESSION,
    visible=Visible.TO_OWNER,
    part_of=lambda session: session.job,
    joins=_session_joins,
    leaves=_session_leaves,
)
KERNEL = Entity(
    "kernel",
    KERNELS,
    described="one process tree on one agent",
    prefix=IdKind.KERNEL,
    part_of=lambda kernel: kernel.session,
    listed=lambda live: live.kernels.values(),
    told=Told.NEVER,  # its session's history tells of it
    moved=_kernel_moved,
)

ENTITIES = Entities((AGENT, JOB, SESSION, KERNEL, TASK))
"""The store's entities, in the order in which their rows are read and written; the entities of
modules come after these."""
