"""Agents as their rows tell them. The resources that they hold, and whether they can be reached,
are known in memory only (``api.live_views``)."""

from sqlalchemy import Connection, select

from muster.core.owner import Principal
from muster.core.resources import GPU_WHOLE, Resources
from muster.core.views.base import ReasonView, ResourcesView
from muster.core.views.cluster import AgentView, DeviceView
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
    return view_of(load_agent(row))


def view_of(agent: Agent) -> AgentView:
    """An agent without its free and held resources."""
    return AgentView(
        id=agent.id,
        name=agent.name,
        group=agent.group,
        status=agent.status,
        status_changed_at=agent.status_changed_at,
        version=agent.version,
        host=agent.host,
        capacity=ResourcesView.of(capacity_of(agent)),
        free=ResourcesView(),
        held=ResourcesView(),
        devices=tuple(
            DeviceView(
                index=device.index,
                model=device.model,
                uuid=device.uuid,
                memory_bytes=device.memory_bytes,
                free=0.0,
            )
            for device in agent.devices
        ),
        attributes=agent.attributes,
        joined_at=agent.joined_at,
        seen_at=agent.seen_at if agent.seen_known else None,
        barred=agent.barred,
        bar_note=agent.bar_note,
        leave_by=agent.leave_by,
        disk_full=agent.disk_full,
        withheld=agent.withheld,
        ill=agent.ill,
        connected=agent.connected,
        reason=ReasonView.of(agent.reason) if agent.reason else None,
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
