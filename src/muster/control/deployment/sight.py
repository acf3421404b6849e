"""The prober's sight: whether it reaches the machines of the replicas that it probes (design:
Deployments and routes)."""

from muster.core.ids import AgentId

FEWEST = 3
"""Machines that a prober does not reach, of which it may be told that it is blind itself."""
BLIND_PERCENT, SEES_PERCENT = 50, 25
"""Percent of all machines: with so many out of reach the prober is blind, and sees again with
less."""


class Sight:
    """The machines that are out of reach: those of which the last probe of no route arrived. If
    they are many at once, it is more likely that the prober's own network is at fault.

    Attributes:
        is_blind: whether the prober is, as of the last ``is_changed``.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[AgentId, bool]] = {}  # of a route: its machine, and if reached
        self._routes: dict[AgentId, int] = {}
        self._reached: dict[AgentId, int] = {}
        self._out = 0  # machines with routes, none of which is reached
        self.is_blind = False

    @property
    def machines(self) -> int:
        """How many machines have routes that were probed."""
        return len(self._routes)

    @property
    def out_of_reach(self) -> int:
        """How many of them are out of reach."""
        return self._out

    def looked(self, route: str, machine: AgentId, *, reached: bool) -> None:
        """Take note of a completed probe of a route on a machine."""
        if self._of.get(route) == (machine, reached):
            return
        self.forget(route)
        self._of[route] = (machine, reached)
        self._count(machine, 1, int(reached))

    def forget(self, route: str) -> None:
        """Forget a route that is probed no more."""
        known = self._of.pop(route, None)
        if known is not None:
            machine, reached = known
            self._count(machine, -1, -int(reached))

    def is_changed(self) -> bool:
        """Judge anew; whether the judgement is another one."""
        percent = SEES_PERCENT if self.is_blind else BLIND_PERCENT
        is_blind = self._out >= FEWEST and 100 * self._out >= percent * self.machines
        changed = is_blind is not self.is_blind
        self.is_blind = is_blind
        return changed

    def unreached(self) -> list[str]:
        """The routes whose last probe did not arrive."""
        return [route for route, (_, reached) in self._of.items() if not reached]

    def _count(self, machine: AgentId, routes: int, reached: int) -> None:
        self._out -= self._is_out(machine)
        self._routes[machine] = self._routes.get(machine, 0) + routes
        self._reached[machine] = self._reached.get(machine, 0) + reached
        self._out += self._is_out(machine)
        if not self._routes[machine]:
            del self._routes[machine], self._reached[machine]

    def _is_out(self, machine: AgentId) -> bool:
        return self._routes.get(machine, 0) > 0 and not self._reached[machine]
