"""Kernels of which an agent tells that it removed their files, and the rows of history that tell it
already."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from muster.core.ids import AgentId, SessionId
from muster.core.reasons import Reason
from muster.store import schema
from muster.store.records import LedgerKey
from muster.store.stored_values import load_reasons


class EndedKernel(NamedTuple):
    """A kernel that ran on an agent.

    Args:
        place: its index among the kernels of its session.
        status: of its session.
        kernels: how many kernels its session has.
    """

    session: SessionId
    place: int
    status: str
    kernels: int


def kernels_that_ran(
    connection: Connection, agent: AgentId, keys: Collection[LedgerKey]
) -> dict[LedgerKey, EndedKernel]:
    """The kernels among these that ran on the agent, in their last generation."""
    kernels, sessions = schema.kernels, schema.sessions
    others = kernels.alias()
    count = (
        select(func.count())
        .where(others.c.session_id == kernels.c.session_id)
        .correlate(kernels)
        .scalar_subquery()
    )
    wanted = (
        select(
            kernels.c.id,
            kernels.c.generation,
            kernels.c.session_id,
            kernels.c.idx,
            sessions.c.status,
            count.label("kernels"),
        )
        .join(sessions, sessions.c.id == kernels.c.session_id)
        .where(kernels.c.id.in_([kernel for kernel, _ in keys]), kernels.c.agent_id == agent)
    )
    return {
        (row.id, row.generation): EndedKernel(row.session_id, row.idx, row.status, row.kernels)
        for row in connection.execute(wanted)
    }


def told_already(
    connection: Connection, sessions: Collection[SessionId], phase: str
) -> set[tuple[SessionId, Reason]]:
    """The reasons in the sessions' rows of history of this phase."""
    history = schema.history
    wanted = select(history.c.entity, history.c.reasons).where(
        history.c.entity.in_(sessions), history.c.phase == phase
    )
    return {
        (SessionId(row.entity), why)
        for row in connection.execute(wanted)
        for why in load_reasons(row.reasons)
    }
