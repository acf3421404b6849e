"""The handler that judges routes by what their probes found (source: Sokovan)."""

from collections.abc import Sequence
from dataclasses import replace

from muster.control.deployment.book import Heard, Routes
from muster.control.deployment.entity import Route
from muster.control.deployment.port_watch import is_proven, taken, unseen
from muster.control.deployment.standing import session_of
from muster.control.engine.handler import (
    HandlerResult,
    LifecycleHandler,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.core.reasons import Reason
from muster.core.reasons.of_routes import (
    RouteBad,
    RouteNeverGood,
    RouteNotProbed,
    RouteOutOfSight,
    RouteStale,
)
from muster.core.serving.port_holders import PortHolder
from muster.core.states.deployment import PROBED, RouteStatus
from muster.serving.probing import Health, HealthCode, HealthVerdict, judge

_R = RouteStatus


class HealthCheckRoute(LifecycleHandler[Route]):
    """Judges routes by what their probes found; the probes themselves are the prober's. A probe
    proves nothing where somebody else than the replica listens on its port."""

    name = "HealthCheckRoute"
    entity = Route
    statuses = PROBED
    transitions = StatusTransitions(
        success=TransitionStatus(_R.HEALTHY),
        failure=TransitionStatus(_R.UNHEALTHY),
        stale=TransitionStatus(_R.DEGRADED),
    )

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def execute(self, targets: Sequence[Route], work: Work) -> HandlerResult[Route]:
        result: HandlerResult[Route] = HandlerResult()
        for route in targets:
            heard = self._routes.heard(route)
            if (thief := taken(self._routes, route)) is not None:
                _withdraw(route, work)
                if route.status is not _R.UNHEALTHY:
                    result.failures[route] = thief
                continue
            if self._routes.is_out_of_sight(route, work.now):
                self._keep(route, heard, work)
                if route.status is not _R.DEGRADED:
                    result.stale[route] = out_of_sight(self._routes)
                continue
            _take_note(route, heard, work)
            proven = is_proven(self._routes, route, work.live)
            health = _judged(route, heard, work)
            why = _found(health, heard, route)
            match health.verdict:
                case HealthVerdict.HEALTHY:
                    if proven:
                        result.successes.append(route)
                case HealthVerdict.UNHEALTHY:
                    result.failures[route] = why
                case HealthVerdict.FAILED_TO_START if route.status is not _R.UNHEALTHY:
                    result.failures[route] = why
                case HealthVerdict.STALE:
                    heard.be_ordered_anew()
                    result.stale[route] = why
        return result

    def _keep(self, route: Route, heard: Heard, work: Work) -> None:
        """Have a route get the traffic that it got when it was seen, unless that is too long ago
        to have been taken from it by the prober's blindness."""
        seen, lately_s = heard.seen, route.probe.stale_after_s()
        if seen is None or work.now - seen.at > lately_s:
            return
        heard.bad_at = None  # what was bad was the way to it
        if (route.good, route.healthy_since) != (seen.good, seen.healthy_since):
            route.good, route.healthy_since = seen.good, seen.healthy_since
            work.unit.touch(route)


def _judged(route: Route, heard: Heard, work: Work) -> Health:
    """The verdict on a route by its last probe. Before it was ever healthy, a good one counts as
    bad where nobody is seen to listen."""
    last = heard.last(work.now)
    if last is not None and route.good_at is None and heard.holder is PortHolder.NOBODY:
        last = replace(last, good=False)
    session = session_of(route, work.live)
    started_at = None if session is None else session.started_at
    return judge(
        route.probe,
        route.status,
        last,
        work.now - (started_at or route.created_at),
        route.good_at is not None,
        heard.unheard_s(work.now),
    )


def _withdraw(route: Route, work: Work) -> None:
    """Have a route get no traffic, whatever its probes find."""
    if route.good is not False:
        route.good = False
        work.unit.touch(route)


def _take_note(route: Route, heard: Heard, work: Work) -> None:
    """Take note of a route's last probe. After a bad one the time in which it has been healthy
    begins anew, with the next good one."""
    if heard.good is None:
        return
    good = heard.good and heard.holder is not PortHolder.NOBODY
    if good and route.healthy_since is not None:
        was_bad = heard.bad_at is not None and heard.bad_at > route.healthy_since
        if was_bad or route.good is False:
            route.healthy_since = work.now
            work.unit.touch(route)
    if good is not route.good:
        route.good = good
        work.unit.touch(route)


def out_of_sight(routes: Routes) -> Reason:
    """Why nothing is known of routes while the prober is blind."""
    sight = routes.sight
    return RouteOutOfSight(unreached=sight.out_of_reach, machines=sight.machines)


def _found(health: Health, heard: Heard, route: Route) -> Reason:
    """Why a route is judged so."""
    told = health.why.numbers
    found, by_command = heard.detail, route.probe.command is not None
    match health.why.code:
        case HealthCode.NEVER_GOOD if heard.good:
            return unseen(route)
        case HealthCode.NEVER_GOOD:
            return RouteNeverGood(after_s=told["limit_s"], found=found, by_command=by_command)
        case HealthCode.STALE:
            return RouteStale(after_s=told["limit_s"])
        case HealthCode.BAD:
            streak = int(told["streak"])
            return RouteBad(streak=streak, found=found, by_command=by_command, route=route.id)
        case _:
            return RouteNotProbed()
