"""Agents as their rows tell them. The resources that they hold, and whether they can be reached,
are known in memory only (``api.live_views``)."""

from sqlalchemy import Connection, select

from muster.core.owner import Principal
from muster.core.resources import GPU_WHOLE, Resources
from muster.core.views.base import ResourcesView
from muster.core.views.cluster import AgentView, DeviceView
from muster.core.views.projection import view_of
from muster.store import schema
from muster.store.entities import AGENT
from muster.store.load import load_agent
from muster.store.queries.refs import resolve
from muster.store.records import Agent


def read_agent(connection: Connection, principal: Principal, ref: str) -> AgentView:
    """One agent without free or held resources, as after its removal.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    agents = schema.agents
    id_ = resolve(connection, AGENT, principal, ref)
    row = connection.execute(select(agents).where(agents.c.id == id_)).one()
    return stored_agent(load_agent(row))


def stored_agent(agent: Agent) -> AgentView:
    """An agent without its free and held resources."""
    return view_of(
        AgentView,
        agent,
        capacity=ResourcesView.of(capacity_of(agent)),
        free=ResourcesView(),
        held=ResourcesView(),
        devices=tuple(view_of(DeviceView, device, free=0.0) for device in agent.devices),
        seen_at=agent.seen_at if agent.seen_known else None,
    )


def capacity_of(agent: Agent) -> Resources:
    """The resources of an agent, its GPUs among them."""
    return Resources.with_extra(
        agent.capacity.cpu_milli,
        agent.capacity.memory_bytes,
        agent.capacity.disk_bytes,
        len(agent.devices) * GPU_WHOLE,
        dict(agent.capacity.extra),
    )
