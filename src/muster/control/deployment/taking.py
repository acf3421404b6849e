"""The way of a route that is not to be: it is withdrawn, drained and stopped."""

from muster.control.deployment.entity import Route
from muster.control.deployment.lifecycle import RouteLifecycle
from muster.control.engine.handler import TransitionStatus
from muster.control.engine.work import Move, Work
from muster.core.reasons import Reason
from muster.core.reasons.of_routes import RouteNotNeeded
from muster.core.states.deployment import ROUTE_TABLE, RouteStatus

TO_TERMINATING = TransitionStatus(RouteStatus.TERMINATING)


def take_away(
    lifecycle: RouteLifecycle, route: Route, work: Work, phase: str, why: Reason | None = None
) -> None:
    """Have a route be drained and stopped."""
    to = why or RouteNotNeeded()
    expected = ROUTE_TABLE.live - {RouteStatus.TERMINATING}
    lifecycle.move(work, [route], expected, TO_TERMINATING, Move(phase, reason=to))
