"""The six handlers of routes, and one that follows their sessions (source: Sokovan)."""

from collections.abc import Sequence

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.lifecycle import RouteLifecycle
from muster.control.deployment.loads import Loads
from muster.control.deployment.sessions import session_spec
from muster.control.deployment.standing import session_of, standing
from muster.control.deployment.taking import TO_TERMINATING, take_away
from muster.control.deployment.traffic import Traffic
from muster.control.engine.handler import (
    NO_CHANGE,
    FollowingHandler,
    HandlerResult,
    LifecycleHandler,
    Stage,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.session.lifecycle import SessionLifecycle
from muster.control.session.requests import SessionRequests
from muster.core.errors import Conflict, InvalidSpec, NotFound
from muster.core.host_port import joined
from muster.core.owner import Principal, Role
from muster.core.reasons import DISPLACED, Reason, ReasonCode
from muster.core.reasons.of_routes import RouteEnded, RouteEvicted, RouteNotTaken, RouteQuota
from muster.core.states import SESSION_TABLE, SessionStatus
from muster.core.states.deployment import PROBED, ROUTE_TABLE, RouteStatus
from muster.serving.probing import (
    evicts,
    is_fresh,
)
from muster.serving.replicas import UP, Standing
from muster.store.records import Session

_R = RouteStatus
_OF_MACHINES = DISPLACED | {
    ReasonCode.AGENT_LOST,
    ReasonCode.AGENT_GIVEN_UP,
    ReasonCode.AGENT_REBOOTED,
}
"""Ends that say nothing of the replica. Others of which a machine may be to blame are not among
them: a program can bring them about by itself, again and again."""
QUOTA_WAIT_S, LONGEST_QUOTA_WAIT_S = 5.0, 30.0
"""How long a route waits before its session is handed in again that a quota refused: as long as it
has waited so far, within these bounds."""


HANDED_IN_A_WAKE = 1_000
"""Sessions of routes that one wake hands in, of its share; the others follow in the next ones."""


class ProvisioningRoute(LifecycleHandler[Route]):
    """Hands in a route's session, and waits until it runs."""

    name = "ProvisioningRoute"
    entity = Route
    statuses = frozenset({_R.PROVISIONING})
    transitions = StatusTransitions(
        success=TransitionStatus(_R.DEGRADED), failure=TransitionStatus(_R.FAILED_TO_START)
    )

    def __init__(
        self, routes: Routes, lifecycle: RouteLifecycle, sessions: SessionRequests
    ) -> None:
        self._routes = routes
        self._lifecycle = lifecycle
        self._sessions = sessions

    def execute(self, targets: Sequence[Route], work: Work) -> HandlerResult[Route]:
        result: HandlerResult[Route] = HandlerResult()
        refused: dict[tuple[str, int], Reason] = {}  # its siblings would be as well
        new = [route for route in targets if route.session_id is None]
        handed_in = work.once(_handed_in)
        room = max(0, work.share.of(HANDED_IN_A_WAKE) - len(handed_in))
        handed_in += new[:room]
        later = new[room:]
        work.look_later(later)
        others = set(later)
        for route in targets:
            if route in others:
                continue
            if route.session_id is None:
                key = route.deployment.id, route.revision
                if key not in refused and (why := self._hand_in(route, work, result)) is not None:
                    refused[key] = why
                if key in refused:
                    _wait(route, refused[key], work, result)
                continue
            session = session_of(route, work.live)
            if session is None or session.status not in SESSION_TABLE.live:
                why = _ended(route, session)
                if not _went_with_machine(session):
                    self._lifecycle.failed(work, route, why)
                result.failures[route] = why
            elif session.status is SessionStatus.RUNNING:
                route.address = _address(route, session, work)
                work.unit.touch(route)
                result.successes.append(route)
        return result

    def _hand_in(self, route: Route, work: Work, result: HandlerResult[Route]) -> Reason | None:
        """Hand in a route's session; the answer is why it is not taken yet."""
        owner = Principal(route.owner, Role.USER)
        try:
            session = self._sessions.submit(work, owner, session_spec(route), is_replica=True)
        except Conflict as refused:
            return RouteQuota(how=str(refused)[:500])
        except (InvalidSpec, NotFound) as refused:
            why = RouteNotTaken(how=str(refused)[:500])
            self._lifecycle.failed(work, route, why)
            result.failures[route] = why
            return None
        work.begin_try(route)
        if route.reason is not None:
            route.reason = None
            work.mark(route.deployment)  # more may be made now
        route.session_id, route.kernel_id = session.id, session.kernels[0].id
        work.unit.touch(route)
        return None


def _handed_in() -> list[Route]:
    """The routes whose sessions the wake has handed in, or tried to."""
    return []


def _wait(route: Route, why: Reason, work: Work, result: HandlerResult[Route]) -> None:
    """Have a route's session be handed in later."""
    wait_s = min(max(work.now - route.created_at, QUOTA_WAIT_S), LONGEST_QUOTA_WAIT_S)
    work.try_later(route, work.now + wait_s)
    result.skipped[route] = (why,)
    if route.reason != why:
        route.reason = why
        work.unit.touch(route)


class RunningRoute(LifecycleHandler[Route]):
    """Has a route end whose session has ended, or that failed to start."""

    name = "RunningRoute"
    entity = Route
    statuses = PROBED | {_R.FAILED_TO_START}
    transitions = StatusTransitions(success=NO_CHANGE, failure=TO_TERMINATING)

    def __init__(self, lifecycle: RouteLifecycle) -> None:
        self._lifecycle = lifecycle

    def execute(self, targets: Sequence[Route], work: Work) -> HandlerResult[Route]:
        result: HandlerResult[Route] = HandlerResult()
        for route in targets:
            session = session_of(route, work.live)
            if route.status is _R.FAILED_TO_START:
                result.failures[route] = route.reason or _ended(route, session)
            elif session is None or session.status is not SessionStatus.RUNNING:
                why = _ended(route, session)
                if not _went_with_machine(session):
                    self._lifecycle.failed(work, route, why)
                result.failures[route] = why
            else:
                result.successes.append(route)
        return result


class RouteEviction(LifecycleHandler[Route]):
    """Has routes replaced that were unhealthy for too long, no more of a deployment at a time than
    its disruption allows; nobody on knowledge that is stale."""

    name = "RouteEviction"
    entity = Route
    statuses = frozenset({_R.UNHEALTHY})
    transitions = StatusTransitions(success=TO_TERMINATING)

    def __init__(self, routes: Routes, lifecycle: RouteLifecycle) -> None:
        self._routes = routes
        self._lifecycle = lifecycle

    def execute(self, targets: Sequence[Route], work: Work) -> HandlerResult[Route]:
        result: HandlerResult[Route] = HandlerResult()
        room: dict[Deployment, int] = {}
        for route in targets:
            deployment = route.deployment
            probe, last = route.probe, self._routes.heard(route).last(work.now)
            never_good = route.good_at is None and is_fresh(probe, last)
            unhealthy_s = work.now - route.status_changed_at
            if not never_good and not evicts(probe, unhealthy_s, is_fresh(probe, last)):
                continue
            if deployment not in room:
                room[deployment] = self._room(deployment, work.now)
            if room[deployment] <= 0:
                continue
            room[deployment] -= 1
            if not never_good or route.reason is None:
                found = self._routes.heard(route).detail
                route.reason = RouteEvicted(after_s=unhealthy_s, found=found)
            self._lifecycle.failed(work, route, route.reason)
            result.successes.append(route)
        return result

    def _room(self, deployment: Deployment, now: float) -> int:
        """How many more may be evicted: those that were are replaced once there are as many again
        that are unhealthy themselves, or have been healthy once for ``min_healthy_time``."""
        there = sum(_has_come(route, now) for route in self._routes.of(deployment))
        missing = max(0, deployment.replicas - there)
        return deployment.spec.disruptable(deployment.replicas) - missing


def _has_come(route: Route, now: float) -> bool:
    """Whether a route is no replacement any more for which others wait."""
    if standing(route, now) is Standing.UNHEALTHY:
        return True
    if standing(route, now) not in UP or route.good_at is None:
        return False
    return now - route.good_at >= route.deployment.spec.update.min_healthy_time


class TerminatingRoute(LifecycleHandler[Route]):
    """Lets requests under way end, stops the session, and waits until its room is free."""

    name = "TerminatingRoute"
    entity = Route
    statuses = frozenset({_R.TERMINATING})
    transitions = StatusTransitions(success=TransitionStatus(_R.TERMINATED))

    def __init__(self, sessions: SessionLifecycle, loads: Loads) -> None:
        self._sessions = sessions
        self._loads = loads

    def execute(self, targets: Sequence[Route], work: Work) -> HandlerResult[Route]:
        result: HandlerResult[Route] = HandlerResult()
        for route in targets:
            session = session_of(route, work.live)
            if session is None or session.status in SESSION_TABLE.terminal:
                if route.kernel_id is None or route.kernel_id not in work.live.allocations_of:
                    result.successes.append(route)
            elif session.status is not SessionStatus.TERMINATING and self._is_drained(route, work):
                self._sessions.terminate(work, [session], self.name, route.reason)
        return result

    def _is_drained(self, route: Route, work: Work) -> bool:
        if route.healthy_since is None and route.good is not True:
            return True  # nobody was ever sent to it, or it was withdrawn long ago
        withdrawn_at = route.status_changed_at
        if work.now >= withdrawn_at + route.deployment.spec.drain:
            return True
        return self._loads.is_idle(route, since=withdrawn_at)


class ServiceDiscoverySync(LifecycleHandler[Route]):
    """Has balancers told of the services where these differ from what they were told: at once, in
    the wake that changed them, and in the first one of a controller. ``PublishTraffic`` has found
    out what differs."""

    name = "ServiceDiscoverySync"
    stage = Stage.TELL
    entity = Route
    statuses = frozenset({_R.HEALTHY})
    transitions = StatusTransitions(success=NO_CHANGE)

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def is_due(self, targets: Sequence[Route]) -> bool:
        return bool(targets) or self._traffic.is_to_be_told

    def execute(self, targets: Sequence[Route], work: Work) -> HandlerResult[Route]:
        if self._traffic.is_to_be_told:
            work.emit(self._traffic.order(work.now))
        return HandlerResult(successes=list(targets))


class FollowSessions(FollowingHandler[Session]):
    """Has routes looked at whose session has begun to run, or ends."""

    name = "FollowSessionsOfRoutes"
    stage = Stage.SETTLE
    entity = Session
    statuses = (
        frozenset({SessionStatus.RUNNING, SessionStatus.TERMINATING}) | SESSION_TABLE.terminal
    )
    narrows = True

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def gather(self, candidates: Sequence[Session], work: Work) -> Sequence[Session]:
        mine = [each for each in candidates if self._routes.of_session(each.id) is not None]
        return super().gather(mine, work) if mine else mine

    def follow(self, record: Session, work: Work) -> None:
        route = self._routes.of_session(record.id)
        if route is not None and route.status in ROUTE_TABLE.live:
            work.mark(route)


class TakeDownRoutes(FollowingHandler[Route]):
    """Has a route end whose deployment is taken down, whatever state either is in."""

    name = "TakeDownRoutes"
    stage = Stage.EXPAND
    entity = Route
    statuses = ROUTE_TABLE.live - {_R.TERMINATING}

    def __init__(self, lifecycle: RouteLifecycle) -> None:
        self._lifecycle = lifecycle

    def follow(self, record: Route, work: Work) -> None:
        if record.deployment.is_going:
            take_away(self._lifecycle, record, work, self.name, record.deployment.reason)


def _ended(route: Route, session: Session | None) -> Reason:
    """Why a route's session ended, as far as is known."""
    why = None if session is None else session.reason
    how = "" if why is None else why.sentence()
    lost = _went_with_machine(session)
    return RouteEnded(how=how, session=route.session_id or "", lost=lost)


def _went_with_machine(session: Session | None) -> bool:
    """Whether a session ended because its machine did, or had to be left."""
    whys = () if session is None else (session.reason, *(each.reason for each in session.kernels))
    return any(why is not None and why.code in _OF_MACHINES for why in whys)


def _address(route: Route, session: Session, work: Work) -> str | None:
    kernel, port = session.kernels[0], route.deployment.spec.port
    template = route.deployment.numbered(route.revision)
    if template is not None:
        port = template.template.get("port")
    agent = None if kernel.agent_id is None else work.live.agents.get(kernel.agent_id)
    if agent is None:
        return None
    if port is None:
        port = kernel.ports[0] if kernel.ports else None
    return None if port is None else joined(agent.host, port)
