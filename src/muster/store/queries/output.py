"""The place of the output of a task's attempt, or of a session's kernel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, and_, select

from muster.core.errors import NotFound
from muster.core.ids import AgentId, KernelId
from muster.core.owner import Principal
from muster.core.states import KERNEL_TABLE
from muster.store import schema
from muster.store.entities import SESSION
from muster.store.queries.refs import resolve
from muster.store.queries.tasks import job_row, task_view


@dataclass(frozen=True, slots=True)
class OutputSource:
    """A kernel whose output somebody wants.

    Args:
        entity: the task or session, as events and history call it.
        state: of the task or session, as a person reads it.
        attempt: the attempt that was found, or whose start is waited for.
        last: whether no other attempt will follow it.
        ended: whether the attempt is over; if so, and without a ``kernel``, it never started.
        kernel, generation, agent: where the output is; None as long as there is no output.
        agent_name: as people know the agent, also one that was removed.
    """

    entity: str
    state: str
    attempt: int
    last: bool
    ended: bool
    kernel: KernelId | None = None
    generation: int = 0
    agent: AgentId | None = None
    agent_name: str = ""


class BegunOutput(NamedTuple):
    """The place of the output of the latest attempt of a task that has begun."""

    task: int
    attempt: int
    kernel: KernelId
    generation: int
    agent: AgentId


def task_output(
    connection: Connection, principal: Principal, ref: str, index: int, attempt: int | None
) -> OutputSource:
    """The output of an attempt of a task: the latest when ``attempt`` is None.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``; NotFound also when there is no such task.
    """
    kernels = schema.kernels
    job = job_row(connection, principal, ref)
    task = task_view(connection, job, index)
    wanted = attempt or max(task.attempt, 1)
    entity = f"{job.id}/{index}"
    last = task.ended and wanted >= task.attempt
    row = connection.execute(
        select(kernels).where(
            kernels.c.job_id == job.id,
            kernels.c.task_index == index,
            kernels.c.attempt == wanted,
        )
    ).one_or_none()
    if row is None:
        return OutputSource(entity, task.state, wanted, last, ended=task.ended)
    return _source(connection, row, entity, task.state, last)


def begun_outputs(
    connection: Connection, principal: Principal, ref: str, indexes: Sequence[int]
) -> list[BegunOutput]:
    """The outputs of the latest attempts of a job's tasks, by index; tasks whose latest attempt has
    not begun are left out.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    tasks, kernels = schema.tasks.c, schema.kernels.c
    job = job_row(connection, principal, ref)
    of_latest = and_(
        kernels.job_id == tasks.job_id,
        kernels.task_index == tasks.idx,
        kernels.attempt == tasks.attempt,
    )
    rows = connection.execute(
        select(tasks.idx, kernels.attempt, kernels.id, kernels.generation, kernels.agent_id)
        .select_from(schema.tasks.join(schema.kernels, of_latest))
        .where(tasks.job_id == job.id, tasks.idx.in_(indexes))
        .where(kernels.started_at.is_not(None), kernels.agent_id.is_not(None))
        .order_by(tasks.idx)
    )
    return [
        BegunOutput(row.idx, row.attempt, KernelId(row.id), row.generation, AgentId(row.agent_id))
        for row in rows
    ]


def session_output(
    connection: Connection, principal: Principal, ref: str, index: int
) -> OutputSource:
    """The output of a session's kernel.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``; NotFound also when there is no such kernel.
    """
    sessions, kernels = schema.sessions, schema.kernels
    id_ = resolve(connection, SESSION, principal, ref)
    status = connection.execute(select(sessions.c.status).where(sessions.c.id == id_)).scalar_one()
    row = connection.execute(
        select(kernels).where(kernels.c.session_id == id_, kernels.c.idx == index)
    ).one_or_none()
    if row is None:
        raise NotFound(f"session {ref} has no kernel {index}")
    return _source(connection, row, id_, status, last=True)


def _source(
    connection: Connection, row: Row[Any], entity: str, state: str, last: bool
) -> OutputSource:
    started = row.started_at is not None and row.agent_id is not None
    agents = schema.agents
    named = select(agents.c.name).where(agents.c.id == row.agent_id)
    return OutputSource(
        entity=entity,
        state=state,
        attempt=row.attempt,
        last=last,
        ended=row.status in KERNEL_TABLE.terminal,
        kernel=KernelId(row.id) if started else None,
        generation=row.generation,
        agent=AgentId(row.agent_id) if started else None,
        agent_name=connection.execute(named).scalar_one() if started else "",
    )
