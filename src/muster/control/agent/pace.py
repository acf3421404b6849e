"""How often an agent is heard with what it says again and again."""

from collections.abc import Container

from muster.core.clock import Clock
from muster.core.ids import AgentId


class Pace:
    """How often each agent is heard. An honest agent says less, and repeats what nobody noted, so
    what a defective one says beyond it is dropped unread.

    Args:
        at_once: messages, or parts of them, with which an agent is heard at once.
        again_s: seconds after which an agent that has used them up is heard with one more.
    """

    def __init__(self, clock: Clock, at_once: int, again_s: float) -> None:
        self._clock = clock
        self._wait_s = (at_once - 1) * again_s
        self._again_s = again_s
        self._free_at: dict[AgentId, float] = {}  # when all of them may be used again

    def allows(self, agent: AgentId, amount: int = 1) -> bool:
        """Whether to hear the agent now, which counts as so many messages."""
        now = self._clock.now()
        free_at = max(self._free_at.get(agent, now), now)
        if free_at - now > self._wait_s:
            return False
        self._free_at[agent] = free_at + amount * self._again_s
        return True

    def __len__(self) -> int:
        """How many agents are remembered."""
        return len(self._free_at)

    def forget_all_but(self, agents: Container[AgentId]) -> None:
        """Forget agents that are no more, and those that have been silent for long."""
        now = self._clock.now()
        self._free_at = {id_: at for id_, at in self._free_at.items() if id_ in agents and at > now}
