"""A controller's own agents that are not started any more, and how they are forgotten."""

import asyncio
import logging
from collections.abc import Collection

from muster.control.plane import ControlPlane
from muster.core.errors import MusterError
from muster.core.ids import AgentId
from muster.core.owner import Owner, Principal, Role
from muster.core.states import AgentStatus

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 1.0

_UP = Principal(Owner("default", "default", "up"), Role.ADMIN)


async def forget(plane: ControlPlane, former: Collection[AgentId]) -> None:
    """Remove ``former``, each once it is silent and its kernels are proven gone; until none is
    left."""
    left = set(former)
    while left := {id_ for id_ in left if id_ in plane.live.agents}:
        for id_ in left:
            alive = plane.live.agents[id_].status is AgentStatus.ALIVE
            if not alive and not plane.live.held_by.get(id_):
                await _remove(plane, id_)
        await asyncio.sleep(LOOK_AGAIN_S)


async def _remove(plane: ControlPlane, id_: AgentId) -> None:
    try:
        await plane.request(lambda work, requests: requests.remove_agent(work, _UP, id_))
    except (MusterError, TimeoutError) as error:
        log.warning("agent %s, which is not started any more, is still known: %s", id_, error)
