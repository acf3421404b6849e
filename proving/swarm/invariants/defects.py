"""The controller's own defects: parts of it that fail, and wakes without an end."""

from muster.store.unit import Unit
from proving.swarm.judge import Invariant


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


class ControllerRests(Invariant):
    """Handlers that undo each other's changes, or do not notice their own, would go on for ever. A
    wake runs them often enough for all that follows from a change in so small a world."""

    says = "each wake comes to an end"

    def woke(self) -> None:
        controller = self.world.controller
        if controller is not None:
            plane = controller.plane
            self.expect(
                plane.is_calm or bool(plane.handlers_wait), "handlers still find something to do"
            )
            self.expect(not plane.handlers_wait.is_most, "handlers wait for ever")
