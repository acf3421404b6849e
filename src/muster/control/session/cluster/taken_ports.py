"""Fixed ports that agents have told to be in use on their machines, by programs that are no kernels
of theirs: no kernel that listens on such a port is placed there for a while.

Where a pool made the machine, and nothing else runs on it, the program is one that all machines of
the pool run. No further one is made for kernels of that port for a longer while: otherwise one
would be made after the other, each for nothing.

Nothing here is stored: a controller that has just begun has agents asked once more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from muster.core.ids import AgentId
from muster.core.specs.pool import POOL
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.workload import others_on
from muster.store.records import Agent

FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 300.0
"""How long an agent is not asked again, which doubles each time that it tells the same."""
FIRST_POOL_PAUSE_S = 900.0
LONGEST_POOL_PAUSE_S = 86_400.0
"""The same for further machines of a pool."""
MOST_TOLD = 10_000


@dataclass(slots=True)
class _Told:
    """The word of an agent that a port is taken.

    Args:
        until: the moment until which placement goes by it.
        pause_s: the length of that time.
        stands: whether placement goes by it still.
    """

    group: str
    until: float
    pause_s: float
    stands: bool = True


@dataclass(frozen=True, slots=True)
class _ToldOfPool:
    until: float
    pause_s: float


class TakenPorts:
    """The words of agents of all groups; placement counts each like a kernel that has the port."""

    def __init__(self, groups: Mapping[str, GroupState]) -> None:
        self._groups = groups
        self._told: dict[tuple[AgentId, int], _Told] = {}
        self._next_at: dict[int, float] = {}  # by port; many sessions ask for the same
        self._of_pools: dict[str, dict[int, _ToldOfPool]] = {}

    def told(self, agent: Agent, port: int, now: float, *, alone: bool) -> bool:
        """Take note that an agent has refused to start a kernel for its port; ``alone`` says that
        no other kernel is there, so that it is none that has the port. False if there is no room
        for another note: the kernel may be placed there again at once."""
        key = agent.id, port
        pause_s, before = FIRST_PAUSE_S, self._told.get(key)
        if before is not None and before.stands:
            return True  # it was placed there before that was known
        if before is None and len(self._told) >= MOST_TOLD:
            self._told = {of: told for of, told in self._told.items() if told.stands}
            if len(self._told) >= MOST_TOLD:
                return False
        if before is not None and now < before.until + 2 * before.pause_s:
            pause_s = min(2 * before.pause_s, LONGEST_PAUSE_S)
        self._told[key] = _Told(agent.group, now + pause_s, pause_s)
        self._next_at.pop(port, None)
        self._groups[agent.group].snapshot.set_joined(agent.id, others_on(port), 1)
        if alone and (pool := agent.fixed.get(POOL)) is not None:
            self._told_of_pool(pool, port, now)
        return True

    def _told_of_pool(self, pool: str, port: int, now: float) -> None:
        words = self._of_pools.setdefault(pool, {})
        before = words.get(port)
        if before is None:
            words[port] = _ToldOfPool(now + FIRST_POOL_PAUSE_S, FIRST_POOL_PAUSE_S)
        elif before.until <= now:
            pause_s = min(2 * before.pause_s, LONGEST_POOL_PAUSE_S)
            words[port] = _ToldOfPool(now + pause_s, pause_s)

    def found_free(self, agent: Agent, port: int) -> None:
        """Take note that an agent has the port for a kernel."""
        if (words := self._of_pools.get(agent.fixed.get(POOL, ""))) is not None:
            words.pop(port, None)

    def of_pool(self, pool: str, now: float) -> frozenset[int]:
        """The ports for which no machine of a pool is to be made."""
        words = self._of_pools.get(pool, {})
        return frozenset(port for port, told in words.items() if told.until > now)

    def pool_asked_at(self, pool: str, now: float) -> float | None:
        """When the answer of ``of_pool`` changes, if nobody tells anything before."""
        words = self._of_pools.get(pool, {}).values()
        return min((told.until for told in words if told.until > now), default=None)

    def expire(self, now: float) -> None:
        """Believe no longer what was told long ago; sessions that wait are placed there again."""
        for key, told in list(self._told.items()):
            if told.stands and told.until <= now:
                self._lift(key, told)
            elif told.until + 2 * told.pause_s <= now:
                del self._told[key]

    def next_at(self, port: int) -> float:
        """The moment from which an agent may be asked again for the port; infinity if none has told
        anything of it."""
        if port not in self._next_at:
            told = self._told.items()
            moments = (each.until for (_, its), each in told if its == port and each.stands)
            self._next_at[port] = min(moments, default=math.inf)
        return self._next_at[port]

    def forget(self, agent: AgentId) -> None:
        """Forget an agent that is no more. What it told of its pool stands."""
        for key in [key for key in self._told if key[0] == agent]:
            told = self._told.pop(key)
            if told.stands:
                self._lift(key, told)

    def forget_pool(self, pool: str) -> None:
        """Forget what was told of machines of a pool: it may make others now."""
        self._of_pools.pop(pool, None)

    def _lift(self, key: tuple[AgentId, int], told: _Told) -> None:
        agent, port = key
        group, told.stands = self._groups[told.group], False
        self._next_at.pop(port, None)
        group.snapshot.set_joined(agent, others_on(port), -1)
        group.due = True
