"""The controller's time, which everything that may end by itself is judged by."""

import math

from muster.store.unit import Unit
from proving.swarm.judge import Invariant

SLOW_S = 5.0
"""How long a commit may wait for its database."""
EXACT_S = 1e-3
PROVEN_S = 20.0
"""How far time may be ahead that agents have proven: their messages may be late by so much."""


class LeapsCountForNothing(Invariant):
    """The controller's time may differ from the time that passes by no leap of the time of day:
    else time-outs, drains, deadlines, leases and retention would end what has time left. On another
    machine it may be behind while no agent could confirm how long no controller ran."""

    says = "the controller's time passes as time does, whatever the time of day says"

    def committed(self, unit: Unit) -> None:
        ahead_s = unit.now - self.world.clock.now()
        controller = self.world.controller
        is_confirmed = controller is None or controller.is_time_confirmed
        least_s = -SLOW_S if is_confirmed and not self.world.controller_moved else -math.inf
        most_s = PROVEN_S if self.world.controller_moved else EXACT_S
        self.expect(least_s < ahead_s < most_s, f"the controller is {ahead_s:g} s ahead")
