"""The answers of `muster why` about deployments and routes."""

from sqlalchemy import Connection

from muster.control.deployment.book import Routes
from muster.control.deployment.dependents import why_not_begun
from muster.control.deployment.entity import NOT_BEGUN, Deployment, Route
from muster.control.deployment.health_check import out_of_sight
from muster.control.deployment.lifecycle import tells_of_starts, why_not
from muster.control.deployment.port_watch import is_proven, taken, unseen
from muster.control.deployment.probes import agent_of, can_probe
from muster.control.deployment.standing import session_of, standing, waits_for_room
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.explanation import Found, findings
from muster.core import sentences
from muster.core.owner import Principal
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_deployments import RolloutUnderWay
from muster.core.reasons.of_routes import (
    RouteAgentCannotProbe,
    RouteBad,
    RouteNotProbed,
    RouteNotYetGood,
    RouteSeenByAgent,
    RouteStarts,
)
from muster.core.specs.serving import ProbeSide
from muster.core.states import SessionStatus
from muster.core.states.deployment import UP, RouteStatus, deployment_standing
from muster.core.views.deployments import DeploymentView, RouteView
from muster.core.views.placement import WhyView
from muster.serving.replicas import Standing
from muster.store.live import Live
from muster.store.records import Session

_MOST = 10
"""Routes whose reasons are told with their deployment."""


def explain_deployment(
    live: Live, cluster: ClusterState, routes: Routes, id_: str, now: float, asker: Principal
) -> WhyView:
    """How a live deployment stands, and why replicas are missing. Those that wait for room wait for
    the same, so one of them tells for all."""
    deployment = live.of(Deployment)[id_]
    mine = routes.of(deployment)
    healthy = sum(route.status is RouteStatus.HEALTHY for route in mine)
    waiting = (each for route in mine if (each := _waiting(route, live)) is not None)
    first = next(waiting, None)
    found = Found() if first is None else findings(live, cluster, first, now, asker)
    reasons = _reasons(deployment, routes, now)
    if deployment.status in NOT_BEGUN:
        reasons += why_not_begun(deployment, cluster)
    for route in mine:
        if route.status is not RouteStatus.HEALTHY and len(reasons) < _MOST:
            of_route = route_reasons(route, routes, live, now)
            reasons += [each for each in of_route if each.code is not ReasonCode.ROUTE_NOT_NEEDED]
    found.reasons = [*dict.fromkeys([*reasons, *found.reasons])]
    verdict = sentences.deployment(deployment.name, deployment.status, healthy, deployment.replicas)
    standing = deployment_standing(deployment.status, deployment.replicas, healthy)
    return found.answer(
        deployment.id, deployment.status, verdict, name=deployment.name, standing=standing
    )


def _waiting(route: Route, live: Live) -> Session | None:
    """The session of a route, if it waits for room."""
    return session_of(route, live) if waits_for_room(route, live) else None


def _reasons(deployment: Deployment, routes: Routes, now: float) -> list[Reason]:
    rollout, stored = deployment.rollout, deployment.reason
    missing = sum(route.status in UP for route in routes.of(deployment)) < deployment.replicas
    why = why_not(deployment, now) if rollout is None and missing else None
    found = [] if why is None else [why]
    if stored is not None and not (why is not None and tells_of_starts(stored)):
        found.insert(0, stored)
    if rollout is not None:
        available = sum(
            standing(route, now) is Standing.AVAILABLE
            for route in routes.of(deployment)
            if route.revision == rollout.to_revision
        )
        found.append(
            RolloutUnderWay(
                revision=rollout.to_revision,
                available=available,
                wanted=deployment.replicas,
                paused=rollout.paused_at is not None,
                deployment=deployment.name,
            )
        )
    return found


def explain_route(
    live: Live, cluster: ClusterState, routes: Routes, name: str, now: float, asker: Principal
) -> WhyView:
    """Why a live route is in its status."""
    route = live.of(Route)[name]
    waiting = _waiting(route, live)
    found = Found() if waiting is None else findings(live, cluster, waiting, now, asker)
    found.reasons = [
        *route_reasons(route, routes, live, now),
        *_seen_by_agent(route, routes, now),
        *found.reasons,
    ]
    for_s = now - route.status_changed_at
    verdict = sentences.route(
        route.deployment.name, route.status, for_s, served=route.good_at is not None
    )
    return found.answer(
        route.id, route.status, verdict, name=route.deployment.name, standing=route.status
    )


def route_reasons(route: Route, routes: Routes, live: Live, now: float) -> list[Reason]:
    """Why a route is not healthy."""
    heard = routes.heard(route)
    if (thief := taken(routes, route)) is not None:
        return [thief]
    match route.status:
        case RouteStatus.PROVISIONING:
            session = session_of(route, live)
            if session is None:
                return [] if route.reason is None else [route.reason]
            if session.status is SessionStatus.PENDING:
                return []  # the session's own reasons say more
            return [RouteStarts(status=session.status, session=session.id)]
        case RouteStatus.DEGRADED if routes.is_out_of_sight(route, now):
            return [out_of_sight(routes)]
        case RouteStatus.DEGRADED if _cannot_be_probed(route, live):
            return [RouteAgentCannotProbe()]
        case RouteStatus.DEGRADED if route.good is None and heard.completed_at is None:
            return [RouteNotProbed()]
        case RouteStatus.DEGRADED if heard.good and not is_proven(routes, route, live):
            return [unseen(route)]
        case RouteStatus.DEGRADED if heard.good is False:
            streak, found = heard.streak, heard.detail
            by_command = route.probe.command is not None
            if route.good_at is not None:
                why = RouteBad(streak=streak, found=found, by_command=by_command, route=route.id)
                return [why]
            limit_s = route.probe.start_timeout
            return [
                RouteNotYetGood(
                    streak=streak,
                    found=found,
                    by_command=by_command,
                    route=route.id,
                    limit_s=limit_s,
                )
            ]
        case _:
            return [] if route.reason is None else [route.reason]


def _cannot_be_probed(route: Route, live: Live) -> bool:
    """Whether only its agent is to probe a route, and it cannot."""
    agent = agent_of(route, live)
    if agent is None or route.probe.side is not ProbeSide.AGENT:
        return False
    return agent.connected and not can_probe(agent, route)


def _seen_by_agent(route: Route, routes: Routes, now: float) -> list[Reason]:
    """Why its agent probes a route instead of the controller, which was to probe it."""
    heard = routes.heard(route)
    if route.probe.side is ProbeSide.AGENT or not heard.is_seen_by_agent:
        return []
    if heard.here_at is None or now - heard.here_at > route.probe.stale_after_s():
        return [RouteSeenByAgent(found="nothing was found out")]
    if heard.reached:
        return []
    return [RouteSeenByAgent(found=heard.found_here)]


def explain_ended_deployment(
    connection: Connection, principal: Principal, found: DeploymentView, now: float
) -> WhyView:
    """How a deployment ended."""
    verdict = sentences.deployment(found.name, found.status, 0, 0)
    return WhyView.of_ended(found, verdict, name=found.name)


def explain_ended_route(
    connection: Connection, principal: Principal, found: RouteView, now: float
) -> WhyView:
    """How a route ended."""
    ended_at = found.finished_at or found.status_changed_at
    return WhyView.of_ended(found, sentences.route("", found.status, now - ended_at))
