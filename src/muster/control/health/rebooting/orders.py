"""The machines that effects name by ids alone, as the database has them when they are rebooted."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from muster.control.health.entity import incidents
from muster.control.health.rebooting.effects import RebootMachine
from muster.control.pool.performing.orders import Order, read_spec
from muster.control.pool.records import load_machines, slices
from muster.core.ids import AgentId
from muster.core.specs.pool import POOL, SLICE
from muster.core.states.agent import AGENT_TABLE
from muster.core.states.health import HealthStatus
from muster.providers.provider import Machine, MachineState
from muster.store.queries.cluster import read_cluster_id
from muster.store.schema import agents
from muster.store.sql import one_of


@dataclass(frozen=True, slots=True)
class RebootOrder:
    """A machine to be rebooted, as its agent's row describes it.

    Args:
        boot_id: of the boot that is to end.
        controller: the id of the controller's machine, where the agent has run on that; else empty.
        attributes: of the agent, as JSON.
        is_done: whether the agent has returned with another boot already.
        of_pool: the pool of its slice with the machine as its provider knows it; None for an agent
            of no pool, or where the provider has not told of the machine.
        slice: the id of its slice; empty for an agent of no pool.
    """

    agent: AgentId
    name: str
    group: str
    host: str
    boot_id: str
    controller: str
    attributes: str
    is_done: bool
    of_pool: tuple[Order, Machine] | None = None
    slice: str = ""


def read_lines(connection: Connection, ids: Collection[AgentId]) -> Mapping[AgentId, str]:
    """The line in which each agent that is not removed waits: that of its pool, or of the agents of
    its group that are of no pool; no pool's name begins as such a line's."""
    c = agents.c
    live = one_of(c.status, AGENT_TABLE.live)
    rows = connection.execute(select(c.id, c.group, c.fixed).where(c.id.in_(ids), live))
    return {row.id: json.loads(row.fixed).get(POOL) or f"/{row.group}" for row in rows}


def read_rebooting(connection: Connection, effect: RebootMachine) -> RebootOrder | None:
    """The machine of an effect; None if it is not to be rebooted any more, or another effect was
    emitted for it since."""
    c = incidents.c
    incident = connection.execute(
        select(c.status, c.generation, c.boot_id).where(c.id == effect.incident)
    ).first()
    if (
        incident is None
        or incident.status != HealthStatus.REBOOTING
        or incident.generation != effect.generation
    ):
        return None
    row = connection.execute(select(agents).where(agents.c.id == effect.agent)).first()
    if row is None or row.status not in AGENT_TABLE.live:
        return None
    slice_ = str(json.loads(row.fixed).get(SLICE, ""))
    return RebootOrder(
        agent=row.id,
        name=row.name,
        group=row.group,
        host=row.host,
        boot_id=row.boot_id,
        controller=row.machine,
        attributes=row.attributes,
        is_done=bool(incident.boot_id) and row.boot_id != incident.boot_id,
        of_pool=_of_pool(connection, slice_, row.name) if slice_ else None,
        slice=slice_,
    )


def _of_pool(connection: Connection, slice_: str, name: str) -> tuple[Order, Machine] | None:
    row = connection.execute(select(slices).where(slices.c.id == slice_)).first()
    if row is None:
        return None
    own = next((each for each in load_machines(row.machines) if each.name == name), None)
    spec = read_spec(connection, (row.pool, row.revision))
    if own is None or not own.id or spec is None:
        return None
    order = Order(read_cluster_id(connection), row.pool, spec, row.secret)
    return order, Machine(own.id, row.id, own.name, MachineState.RUNNING, own.address)
