"""The parts of the controller that failed."""

from muster.simulate.swarm.judge import Invariant
from muster.store.unit import Unit


class NoHandlerFailed(Invariant):
    """A handler that raises, or gives a verdict that it does not declare, only holds work up for a
    while: no other invariant notices."""

    says = "no handler failed"

    def committed(self, unit: Unit) -> None:
        self._judge()

    def between_steps(self) -> None:
        self._judge()

    def _judge(self) -> None:
        controller = self.world.controller
        if controller is not None:
            defects = controller.plane.defects
            self.expect(not defects.count, defects.last)
