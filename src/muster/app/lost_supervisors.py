"""The watch for supervisors of the controller's own machine that have ended: with them, the leases
of their agents end."""

import asyncio
import logging
from functools import partial

from muster.agent.boot import boot_id
from muster.agent.supervisor_process import is_gone
from muster.control.agent.leases import LeaseBook
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.plane import ControlPlane
from muster.core.errors import MusterError
from muster.core.ids import AgentId, system_boot
from muster.core.states import AgentStatus
from muster.store.records import Agent

log = logging.getLogger(__name__)

LOOK_S = 2.0


async def watch_supervisors(plane: ControlPlane, leases: LeaseBook) -> None:
    """End the endless lease of each silent agent of this boot whose supervisor has ended, until
    cancelled."""
    own_boot = boot_id()
    while True:
        await asyncio.sleep(LOOK_S)
        for agent in list(plane.live.agents.values()):
            if (
                agent.status is AgentStatus.UNREACHABLE
                and system_boot(agent.boot_id) == own_boot
                and leases.is_endless(agent.id)
            ):
                await _look(plane, leases, agent)


async def _look(plane: ControlPlane, leases: LeaseBook, agent: Agent) -> None:
    kernels = {kernel for kernel, _ in plane.live.allocations_on.get(agent.id, ())}
    try:
        if not await asyncio.to_thread(is_gone, agent.supervisor, kernels):
            return
        log.warning("agent %s is silent and its supervisor gone: it is lost", agent.name)
        leases.end(agent.id)
        await plane.request(partial(look_at, agent.id))
    except (MusterError, OSError) as error:  # a TimeoutError is an OSError
        log.warning("agent %s is silent, and not looked at: %s", agent.name, error)


def look_at(id_: AgentId, work: Work, _: Parts) -> None:
    """Have control judge the agent anew."""
    if (agent := work.live.agents.get(id_)) is not None:
        work.mark(agent)
