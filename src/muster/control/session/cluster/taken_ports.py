"""Fixed ports that agents have told to be in use on their machines, by programs that are no kernels
of theirs: no kernel that listens on such a port is placed there for a while.

Nothing here is stored: a controller that has just begun has agents asked once more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from muster.core.ids import AgentId
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.workload import users_of

FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 300.0
"""How long an agent is not asked again, which doubles each time that it tells the same."""
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


class TakenPorts:
    """The words of agents of all groups; placement counts each like a kernel that has the port."""

    def __init__(self, groups: Mapping[str, GroupState]) -> None:
        self._groups = groups
        self._told: dict[tuple[AgentId, int], _Told] = {}
        self._next_at: dict[int, float] = {}  # by port; many sessions ask for the same

    def told(self, group: str, agent: AgentId, port: int, now: float) -> None:
        """Take note that an agent has refused to start a kernel for its port."""
        pause_s, before = FIRST_PAUSE_S, self._told.pop((agent, port), None)
        if before is not None and before.stands:
            self._told[agent, port] = before
            return  # it was placed there before that was known
        if before is not None and now < before.until + 2 * before.pause_s:
            pause_s = min(2 * before.pause_s, LONGEST_PAUSE_S)
        while len(self._told) >= MOST_TOLD:
            self._forget(next(iter(self._told)))
        self._told[agent, port] = _Told(group, now + pause_s, pause_s)
        self._next_at.pop(port, None)
        self._groups[group].snapshot.set_joined(agent, users_of(port), 1)

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
        """Forget an agent that is no more."""
        for key in [key for key in self._told if key[0] == agent]:
            self._forget(key)

    def _forget(self, key: tuple[AgentId, int]) -> None:
        told = self._told.pop(key)
        if told.stands:
            self._lift(key, told)

    def _lift(self, key: tuple[AgentId, int], told: _Told) -> None:
        agent, port = key
        group, told.stands = self._groups[told.group], False
        self._next_at.pop(port, None)
        group.snapshot.set_joined(agent, users_of(port), -1)
        group.due = True
