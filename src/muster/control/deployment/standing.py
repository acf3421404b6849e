"""Routes and deployments as the pure decisions see them (``muster.serving``)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.core.states import AgentBar, AgentStatus, SessionStatus
from muster.core.states.deployment import RouteStatus
from muster.serving.replicas import SERVING, Replica, Standing
from muster.serving.rollout import weights_of
from muster.store.live import Live
from muster.store.records import Session

REPLACEMENT_WAIT_S = 60.0
"""How long a replacement waits for room before a replica that is to leave its machine goes without
one, as far as the disruption allows."""
LOOK_FOR_ROOM_S = 5.0
"""How often it is looked whether replacements have room."""


def standing(route: Route, now: float) -> Standing:
    """How a route counts by itself. One that is DEGRADED counts as it did when it was last
    probed."""
    match route.status:
        case RouteStatus.TERMINATING | RouteStatus.FAILED_TO_START | RouteStatus.TERMINATED:
            return Standing.HELD
        case RouteStatus.UNHEALTHY:
            return Standing.UNHEALTHY
        case RouteStatus.DEGRADED if route.good is False and route.good_at is not None:
            return Standing.UNHEALTHY
    if route.healthy_since is None:
        return Standing.STARTING
    if route.good is False:
        return Standing.WITHDRAWN
    age_s = now - route.healthy_since
    if age_s < route.deployment.spec.update.min_healthy_time:
        return Standing.HEALTHY
    return Standing.AVAILABLE


def percent_wished(deployment: Deployment) -> Mapping[int, int]:
    """Percent of the requests, by revision, while an update has two revisions side by side;
    revisions that are not named share the rest."""
    rollout = deployment.rollout
    if rollout is None:
        return {}
    return weights_of(rollout, deployment.spec.update, deployment.replicas)


def in_traffic(deployment: Deployment, routes: Routes, now: float) -> list[Route]:
    """The routes of a deployment that get requests, oldest first: those that are healthy and whose
    last completed probe was good. Where that is none, because the probes of all were bad at once,
    the published set stands: the WITHDRAWN ones, until one is good again or they are UNHEALTHY.

    That holds for each part of the requests by itself (``percent_wished``): bad probes of one
    revision do not send its part to the other, which may not be tested yet or be too few.
    """
    wished = percent_wished(deployment)
    rest = 100 - sum(wished.values())
    found = [each for each in routes.of(deployment) if each.address is not None]
    stands = {each: standing(each, now) for each in found}
    serving = {each for each in found if stands[each] in SERVING}
    served_parts = {_part(each, wished) for each in serving}
    for each in found:
        part = _part(each, wished)
        share = rest if part is None else wished[part]
        is_published = share > 0 and part not in served_parts
        if stands[each] is Standing.WITHDRAWN and (is_published or not served_parts):
            serving.add(each)
    return [each for each in found if each in serving]


def _part(route: Route, wished: Mapping[int, int]) -> int | None:
    """The revision of a route, if it has a part of the requests to itself."""
    return route.revision if route.revision in wished else None


def _since(route: Route) -> float:
    return route.created_at if route.healthy_since is None else route.healthy_since


def session_of(route: Route, live: Live) -> Session | None:
    """The session of a route, unless it has ended and left the mirror."""
    return None if route.session_id is None else live.sessions.get(route.session_id)


def waits_for_room(route: Route, live: Live) -> bool:
    """Whether a route's session has no place yet, or a quota keeps it from being taken."""
    if route.status is not RouteStatus.PROVISIONING:
        return False
    session = session_of(route, live)
    return session is None or session.status is SessionStatus.PENDING


def is_misplaced(route: Route, live: Live) -> bool:
    """Whether the machine of a route is one that work has to leave, or that is not heard."""
    session = session_of(route, live)
    agent_id = None if session is None or not session.kernels else session.kernels[0].agent_id
    agent = None if agent_id is None else live.agents.get(agent_id)
    if agent is None:
        return False
    leaves = agent.barred is AgentBar.DRAINING or bool(agent.ill or agent.withheld)
    return leaves or agent.status is not AgentStatus.ALIVE


def replicas(deployment: Deployment, routes: Routes, live: Live, now: float) -> list[Replica]:
    """The routes of a deployment, oldest first."""
    mine = routes.of(deployment)
    found = [
        Replica(
            route=route.name,
            revision=route.revision,
            standing=standing(route, now),
            since=_since(route),
            misplaced=is_misplaced(route, live),
        )
        for route in mine
    ]
    if all(each.standing is not Standing.WITHDRAWN for each in found):
        return found
    serving = {each.name for each in in_traffic(deployment, routes, now)}
    return [
        replace(each, standing=Standing.HEALTHY)
        if each.standing is Standing.WITHDRAWN and each.route in serving
        else each
        for each in found
    ]


def looks_again_at(
    deployment: Deployment, routes: Routes, live: Live, now: float
) -> Iterator[float]:
    """The moment at which to look whether replacements find no room, where replicas are to leave
    their machines."""
    mine = routes.of(deployment)
    waiting = [each.created_at for each in mine if waits_for_room(each, live)]
    if waiting and any(is_misplaced(each, live) for each in mine):
        yield max(min(waiting) + REPLACEMENT_WAIT_S, now + LOOK_FOR_ROOM_S)
