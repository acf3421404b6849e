"""The removal of a controller's own agents that are not started any more.

One that has work to account for is started once more, so that it reports the ends in its
supervisor's journal: what ended well while no controller was there does not run again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from muster.agent.config import AgentConfig
from muster.agent.identity import identities_in
from muster.agent.supervisor.shutdown import shut_down
from muster.app.home import Home
from muster.app.local_agents import holder, kept_agent
from muster.app.lost_supervisors import START_S, look_at
from muster.control.agent.leases import LeaseBook
from muster.control.agent.requests import AgentRequests
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.plane import ControlPlane
from muster.core.errors import MusterError
from muster.core.ids import AgentId
from muster.core.owner import Owner, Principal, Role
from muster.core.states import AgentBar, AgentStatus

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 1.0
STOP_GRACE_S = 10.0
STOP_TIMEOUT_S = 30.0
AT_ONCE = 8
"""Former agents that are dealt with at a time."""
NOTE = "it is not started any more, and reports what has ended"

_LOOK_S = 0.1
_LOOKS = int(START_S / _LOOK_S)
_UP = Principal(Owner("default", "default", "up"), Role.ADMIN)


@dataclass(frozen=True, slots=True)
class FormerAgents:
    """
    Args:
        home: has their directories.
        agents: the former agents; those that the controller starts are none of them.
        configure: the settings with which one on this directory is started.
        prepare: is called with an agent's settings before its start.
    """

    plane: ControlPlane
    leases: LeaseBook
    home: Home
    agents: Collection[AgentId]
    configure: Callable[[Path], AgentConfig]
    prepare: Callable[[AgentConfig], Awaitable[None]]

    async def forget(self) -> None:
        """Remove the former agents, each once it is silent and the ends of its kernels are known,
        until none is left.

        Their leases are not waited for: they have no end on this machine while their supervisors
        live, and nobody else would end the kernels.
        """
        turns = asyncio.Semaphore(AT_ONCE)
        rounds = 1 + len(self.agents) // AT_ONCE
        self.leases.expect(self.agents, rounds * (STOP_TIMEOUT_S + START_S))
        await self.plane.request(partial(_take_back, self.agents))
        async with asyncio.TaskGroup() as group:
            for id_ in self.agents:
                group.create_task(self._forget(id_, turns))

    async def _forget(self, id_: AgentId, turns: asyncio.Semaphore) -> None:
        is_heard = False
        while id_ in self.plane.live.agents:
            if self.plane.live.agents[id_].status is not AgentStatus.ALIVE:
                try:
                    async with turns:
                        await self._settle(id_, hears=not is_heard)
                    is_heard = True
                except (MusterError, OSError) as error:  # a TimeoutError is an OSError
                    log.warning("agent %s, not started any more, is still known: %s", id_, error)
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _settle(self, id_: AgentId, *, hears: bool) -> None:
        """Remove a silent agent that holds no work; have one that does report its ends, or count as
        lost if it could not."""
        if not self._holds_work(id_):
            await self.plane.request(partial(_remove, id_))
            return
        directory = await asyncio.to_thread(_end_kernels, self.home, id_)
        if hears:
            await self.plane.request(partial(_cordon, id_))
            await self._hear_ends(id_, directory)
            await asyncio.to_thread(_end_kernels, self.home, id_)
        if self._holds_work(id_):
            self.leases.end(id_)
            await self.plane.request(partial(look_at, id_))

    async def _hear_ends(self, id_: AgentId, directory: Path) -> None:
        """Start the agent, until control has heard how its kernels ended, or ``START_S`` are
        over."""
        process = kept_agent(self.configure(directory), self.prepare)
        keeping = asyncio.create_task(process.keep())
        try:
            for _ in range(_LOOKS):
                if not self._holds_work(id_):
                    return
                await asyncio.sleep(_LOOK_S)
            log.warning("agent %s, not started any more, does not report its ends", id_)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    def _holds_work(self, id_: AgentId) -> bool:
        return bool(self.plane.live.allocations_on.get(id_))


def _remove(id_: AgentId, work: Work, parts: Parts) -> None:
    parts[AgentRequests].remove(work, _UP, id_)


def _cordon(id_: AgentId, work: Work, parts: Parts) -> None:
    if id_ in work.live.agents:
        parts[AgentRequests].bar(work, _UP, id_, AgentBar.CORDONED, NOTE)


def _take_back(former: Collection[AgentId], work: Work, parts: Parts) -> None:
    """Have agents that were former ones, and are started again, take work."""
    for agent in list(work.live.agents.values()):
        if agent.id not in former and agent.bar_note == NOTE:
            parts[AgentRequests].bar(work, _UP, agent.id, None)


def _end_kernels(home: Home, id_: AgentId) -> Path:
    """End the supervisor of an agent and its kernels, also those of one that has died; the answer
    is the agent's directory.

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
    return directory
