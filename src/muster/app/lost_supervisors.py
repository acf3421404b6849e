"""The watch for supervisors of the controller's own machine that have ended: with them, the leases
of their agents end."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from functools import partial

from muster.agent.boot import boot_id
from muster.agent.config import AgentConfig
from muster.agent.identity import identities_in
from muster.agent.supervisor_process import is_gone
from muster.app.home import Home
from muster.control.agent.leases import LeaseBook
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.plane import ControlPlane
from muster.core.errors import MusterError
from muster.core.ids import AgentId, system_boot
from muster.core.states import AgentStatus
from muster.providers.local.machine import machines_of_pools
from muster.store.records import Agent

log = logging.getLogger(__name__)

LOOK_S = 2.0
START_S = 60.0
"""How long an agent that this controller has started may take to say Hello, before the loss of its
supervisor counts as the loss of its kernels: many start side by side, on a machine that is busy."""


def agents_started_here(
    home: Home, own: Iterable[AgentConfig], former: Collection[AgentId]
) -> AbstractSet[AgentId]:
    """The agents that a controller starts by itself: its ``own`` and those of local pools' machines
    whenever they have ended, ``former`` ones once, for what their journals have."""
    directories = [config.directory for config in own]
    directories += [machine.agent_directory for machine in machines_of_pools(home.providers)]
    return identities_in(directories).keys() | set(former)


async def watch_supervisors(
    plane: ControlPlane, leases: LeaseBook, started_here: Callable[[], AbstractSet[AgentId]]
) -> None:
    """End the endless lease of each silent agent of this boot whose supervisor has ended, until
    cancelled.

    Args:
        started_here: the agents that are started again when they have ended; ``START_S`` are left
            to them, because their next supervisors read the journals of the last ones.
    """
    own_boot = boot_id()
    while True:
        await asyncio.sleep(LOOK_S)
        for agent in list(plane.live.agents.values()):
            if (
                agent.status is AgentStatus.UNREACHABLE
                and system_boot(agent.boot_id) == own_boot
                and leases.is_endless(agent.id)
            ):
                await _look(plane, leases, agent, started_here)


async def _look(
    plane: ControlPlane,
    leases: LeaseBook,
    agent: Agent,
    started_here: Callable[[], AbstractSet[AgentId]],
) -> None:
    kernels = {kernel for kernel, _ in plane.live.allocations_on.get(agent.id, ())}
    try:
        if not await asyncio.to_thread(is_gone, agent.supervisor, kernels):
            return
        if agent.id in await asyncio.to_thread(started_here):
            log.warning(
                "agent %s is silent and its supervisor gone: it is lost unless it is back within "
                "%.0f s",
                agent.name,
                START_S,
            )
            leases.expect([agent.id], START_S)
        else:
            log.warning("agent %s is silent and its supervisor gone: it is lost", agent.name)
        leases.end(agent.id)
        await plane.request(partial(look_at, agent.id))
    except (MusterError, OSError) as error:  # a TimeoutError is an OSError
        log.warning("agent %s is silent, and not looked at: %s", agent.name, error)


def look_at(id_: AgentId, work: Work, _: Parts) -> None:
    """Have control judge the agent anew."""
    if (agent := work.live.agents.get(id_)) is not None:
        work.mark(agent)
