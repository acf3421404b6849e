"""How often the failing tasks of one user may have one machine checked, where checks find nothing.
A bounded memory, which a restart forgets.

While a machine is checked nobody gets new work on it. So a program that merely fails, again and
again, must not keep machines out of work.
"""

from collections.abc import Container

from muster.core.ids import AgentId
from muster.core.owner import Owner

MOST = 3
"""Times that a user's failing tasks may have a machine taken out of work for a check."""
WITHIN_S = 3600.0
"""Seconds for which one of them counts."""
MAX_USERS = 100
"""Users who are remembered of a machine, at most."""

User = tuple[str, str]


class AskedChecks:
    """The memory, by machine and user: the incidents, with the time until which the machine was to
    be free for the check."""

    def __init__(self) -> None:
        self._of: dict[AgentId, dict[User, dict[tuple[str, float], float]]] = {}

    def may_ask(self, owner: Owner, agent: AgentId, now: float) -> bool:
        """Whether a failed task of this owner may have the machine checked now."""
        times = self._of.get(agent, {}).get((owner.domain, owner.user), {})
        return sum(at > now - WITHIN_S for at in times.values()) < MOST

    def note(self, owner: Owner, agent: AgentId, asked: tuple[str, float], now: float) -> None:
        """Take note that a machine is out of work for a check.

        Args:
            asked: the incident, and until when work may leave; the same ones count once.
        """
        users = self._of.setdefault(agent, {})
        user = owner.domain, owner.user
        times = users.pop(user, {})
        users[user] = times
        while len(users) > MAX_USERS:
            del users[next(iter(users))]
        times.setdefault(asked, now)
        while len(times) > MOST:
            del times[next(iter(times))]

    def found_faulty(self, agent: AgentId) -> None:
        """Take note that the suspicions of a machine were right."""
        self._of.pop(agent, None)

    def forget(self, agents: Container[AgentId], now: float) -> None:
        """Forget machines that are no more, and what counts no longer."""
        recent = {
            id_: {
                user: times
                for user, times in users.items()
                if any(at > now - WITHIN_S for at in times.values())
            }
            for id_, users in self._of.items()
            if id_ in agents
        }
        self._of = {id_: users for id_, users in recent.items() if users}
