"""Sightings by agents of their own health, on their way from the desk to those who judge it
(design: Machine health). These stand above agents, so they ask to be told."""

from collections.abc import Callable, Container

from muster.control.engine.work import Work
from muster.core.clock import Clock
from muster.core.ids import AgentId
from muster.store.records import Agent
from muster.wire.messages import HealthSeen

AT_ONCE = 8
"""Messages about its health that an agent is heard with at once."""
AGAIN_S = 2.0
"""Seconds after which an agent that has used them up is heard with one more."""

Hear = Callable[[Work, Agent, HealthSeen], None]


class HealthReports:
    """The listeners to what agents saw; a part, made anew whenever the mirror is read."""

    def __init__(self) -> None:
        self._listeners: list[Hear] = []

    def listen(self, hear: Hear) -> None:
        """Have ``hear`` told of everything that agents saw of their own health."""
        self._listeners.append(hear)

    def hear(self, work: Work, agent: Agent, seen: HealthSeen) -> None:
        for hear in self._listeners:
            hear(work, agent, seen)


class HealthPace:
    """How often each agent is heard about its health. An honest agent says less, and repeats what
    nobody noted, so what a defective one says beyond it is dropped unread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at: dict[AgentId, float] = {}  # when all of AT_ONCE may be used again

    def allows(self, agent: AgentId) -> bool:
        """Whether to hear the agent now, which counts."""
        now = self._clock.now()
        free_at = max(self._free_at.get(agent, now), now)
        if free_at - now > (AT_ONCE - 1) * AGAIN_S:
            return False
        self._free_at[agent] = free_at + AGAIN_S
        return True

    def forget_all_but(self, agents: Container[AgentId]) -> None:
        """Forget agents that are no more, and those that have been silent for long."""
        now = self._clock.now()
        self._free_at = {id_: at for id_, at in self._free_at.items() if id_ in agents and at > now}
