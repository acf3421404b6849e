"""The listeners on replicas' ports, as agents see them (design: Deployments and routes).

A probe finds out that somebody answers on a replica's port. The agent of its machine tells who.
"""

import logging
from collections.abc import Sequence

from muster.control.deployment.book import PortWatched, Routes
from muster.control.deployment.entity import Route
from muster.control.deployment.standing import session_of
from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.control.tell_agent import TellAgent
from muster.core.host_port import parted
from muster.core.reasons import Reason
from muster.core.reasons.of_routes import RoutePortTaken, RoutePortUnseen
from muster.core.serving.port_holders import PortHolder, PortOrder, PortSeen
from muster.core.states.deployment import PROBED, ROUTE_TABLE, RouteStatus
from muster.store.live import Live
from muster.store.records import Agent, Kernel

log = logging.getLogger(__name__)

_WATCHED = PROBED | {RouteStatus.TERMINATING}
"""A replica that is drained still gets the requests of its sessions."""
_WHO = {
    PortHolder.OTHER_KERNEL: "another kernel of the same account",
    PortHolder.OTHER_ACCOUNT: "a program of another account",
}


class WatchPorts(FollowingHandler[Route]):
    """Has agents look at who listens on the ports of replicas that run."""

    name = "WatchPorts"
    stage = Stage.TELL
    entity = Route
    statuses = frozenset(ROUTE_TABLE.live) | ROUTE_TABLE.terminal

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def follow(self, record: Route, work: Work) -> None:
        if record.status in _WATCHED and record.address is not None:
            self._watch(record, work)
        elif record.status is not RouteStatus.PROVISIONING:
            self._watch_no_more(record, work)

    def _watch(self, record: Route, work: Work) -> None:
        kernel = _kernel_of(record, work.live)
        agent = _agent_of(kernel, work.live)
        if kernel is None or agent is None:
            return
        heard = self._routes.heard(record)
        if heard.port is None or heard.port.key != (agent.id, kernel.id, kernel.generation):
            heard.port = PortWatched(agent.id, kernel.id, kernel.generation)
        watched = heard.port
        if not (agent.connected and agent.sees_ports):
            watched.is_told = False
        elif not watched.is_told:
            watched.is_told = True
            order = PortOrder(record.name, kernel.id, kernel.generation, _port_of(record))
            work.emit(TellAgent(agent.id, order))

    def _watch_no_more(self, record: Route, work: Work) -> None:
        heard = self._routes.heard_of(record.name)
        if heard is None or heard.port is None:
            return
        watched, heard.port = heard.port, None
        if watched.is_told:
            order = PortOrder(record.name, watched.kernel, watched.generation)
            work.emit(TellAgent(watched.agent, order))


def be_told_anew(routes: Routes, agent: Agent, work: Work) -> None:
    """Have an agent, which says Hello, ordered anew whose ports it is to look at."""
    for kernel_id, _ in list(work.live.allocations_on.get(agent.id, ())):
        kernel = work.live.kernels.get(kernel_id)
        route = None if kernel is None else routes.of_session(kernel.session.id)
        heard = None if route is None else routes.heard_of(route.name)
        if route is not None and heard is not None and heard.port is not None:
            heard.port.is_told = False
            work.mark(route)


def ports_seen(routes: Routes, agent: Agent, ports: Sequence[PortSeen], work: Work) -> None:
    """Take what an agent tells of ports; it is told again not to look at those of which nothing is
    to be known."""
    found = work.live.of(Route)
    for seen in ports:
        route = found.get(seen.route)
        heard = None if route is None else routes.heard_of(route.name)
        watched = None if heard is None else heard.port
        key = (agent.id, seen.kernel, seen.generation)
        if route is None or heard is None or watched is None or watched.key != key:
            work.emit(TellAgent(agent.id, PortOrder(seen.route, seen.kernel, seen.generation)))
            continue
        if seen.holder is watched.holder:
            continue
        watched.holder = seen.holder
        if seen.holder.is_thief:
            heard.value = None  # load that the thief told
            who = _WHO[seen.holder]
            log.warning("%s listens on port %s of %s", who, _port_of(route), route.name)
        work.mark(route)
        work.mark(route.deployment)


def is_proven(routes: Routes, route: Route, live: Live) -> bool:
    """Whether a route's own program listens on its port, as far as its agent can tell: one that is
    of an earlier version, or cannot look, is not asked."""
    heard = routes.heard_of(route.name)
    watched = None if heard is None else heard.port
    if watched is not None and watched.holder is not None:
        return watched.holder is PortHolder.REPLICA
    agent = _agent_of(_kernel_of(route, live), live)
    was_connected = agent is not None and agent.connected_at > 0.0
    return agent is not None and was_connected and not agent.sees_ports


def may_get_secret(routes: Routes, route: Route, live: Live) -> bool:
    """Whether probes of a route may carry its deployment's secret: once its own program listens on
    its port, and as long as nobody else is seen there. One that was healthy before this controller
    began gets it at once, as it gets requests."""
    if taken(routes, route) is not None:
        return False
    return route.good_at is not None or is_proven(routes, route, live)


def taken(routes: Routes, route: Route) -> Reason | None:
    """The thief of a route's port, who listens there; None if nobody does."""
    heard = routes.heard_of(route.name)
    holder = None if heard is None else heard.holder
    if holder is None or not holder.is_thief:
        return None
    return RoutePortTaken(who=_WHO[holder], port=_port_of(route))


def unseen(route: Route) -> Reason:
    """Why a route is not healthy whose probes are good."""
    return RoutePortUnseen(port=_port_of(route), route=route.id)


def _port_of(route: Route) -> int:
    return int(parted(route.address or "")[1] or 0)


def _kernel_of(route: Route, live: Live) -> Kernel | None:
    session = session_of(route, live)
    return None if session is None or not session.kernels else session.kernels[0]


def _agent_of(kernel: Kernel | None, live: Live) -> Agent | None:
    agent_id = None if kernel is None else kernel.agent_id
    return None if agent_id is None else live.agents.get(agent_id)
