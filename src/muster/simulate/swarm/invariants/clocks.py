"""The controller's time, which everything that may end by itself is judged by."""

from muster.simulate.swarm.judge import Invariant
from muster.store.unit import Unit

SLOW_S = 5.0
"""How long a commit may wait for its database."""
EXACT_S = 1e-3


class LeapsCountForNothing(Invariant):
    """The controller's time may differ from the time that passes by no leap of the time of day:
    else time-outs, drains, deadlines, leases and retention would end what has time left."""

    says = "the controller's time passes as time does, whatever the time of day says"

    def committed(self, unit: Unit) -> None:
        ahead_s = unit.now - self.world.clock.now()
        self.expect(-SLOW_S < ahead_s < EXACT_S, f"the controller is {ahead_s:g} s ahead")
