"""The removal of a controller's own agents that are not started any more."""

import asyncio
import logging
from collections.abc import Collection
from functools import partial

from muster.agent.identity import identities_in
from muster.agent.supervisor.shutdown import shut_down
from muster.app.home import Home
from muster.app.local_agents import holder
from muster.app.lost_supervisors import look_at
from muster.control.agent.leases import LeaseBook
from muster.control.agent.requests import AgentRequests
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.plane import ControlPlane
from muster.core.errors import MusterError
from muster.core.ids import AgentId
from muster.core.owner import Owner, Principal, Role
from muster.core.states import AgentStatus

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 1.0
STOP_GRACE_S = 10.0
STOP_TIMEOUT_S = 30.0

_UP = Principal(Owner("default", "default", "up"), Role.ADMIN)


async def forget(
    plane: ControlPlane, leases: LeaseBook, home: Home, former: Collection[AgentId]
) -> None:
    """Remove the ``former`` agents, each once it is silent and its kernels have ended, until none
    is left.

    Their leases are not waited for: they have no end on this machine while their supervisors live,
    and nobody else would end the kernels.
    """
    left = set(former)
    while left := {id_ for id_ in left if id_ in plane.live.agents}:
        for id_ in left:
            if plane.live.agents[id_].status is AgentStatus.ALIVE:
                continue
            try:
                if plane.live.allocations_on.get(id_):
                    await asyncio.to_thread(_end_kernels, home, id_)
                    leases.end(id_)
                    await plane.request(partial(look_at, id_))
                else:
                    await plane.request(partial(_remove, id_))
            except (MusterError, OSError) as error:  # a TimeoutError is an OSError
                log.warning("agent %s, not started any more, is still known: %s", id_, error)
        await asyncio.sleep(LOOK_AGAIN_S)


def _remove(id_: AgentId, work: Work, parts: Parts) -> None:
    parts[AgentRequests].remove(work, _UP, id_)


def _end_kernels(home: Home, id_: AgentId) -> None:
    """End the supervisor of an agent and its kernels, also those of one that has died.

    Raises:
        MusterError: an agent runs there, or the directory is gone.
        OSError: the supervisor does not start, or does not end.
    """
    directory = identities_in(home.agent_directories()).get(id_)
    if directory is None:
        raise MusterError("its directory is gone, and with it what could tell whether it runs work")
    if holder(directory) is not None:
        raise MusterError("somebody has started it")
    shut_down(directory, grace_s=STOP_GRACE_S, timeout_s=STOP_TIMEOUT_S)
