"""Invariants of deployments and routes: no replica without end, traffic for those that are
well. What probers told is the world's."""

from collections import Counter
from collections.abc import Sequence

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, DeploymentId, Route
from muster.control.deployment.traffic import Traffic
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_routes import RouteEnded
from muster.core.specs import SessionType
from muster.core.specs.deployment import DeploymentSpec
from muster.core.specs.serving import Strategy
from muster.core.states import SESSION_TABLE, SessionStatus
from muster.core.states.deployment import (
    PROBED,
    UP,
    EndpointLifecycle,
    RouteStatus,
)
from muster.store.live import Live
from muster.store.records import Session
from muster.store.unit import NEW, Unit
from proving.swarm.judge import Invariant, Judge

_GIVEN_UP = frozenset(
    {
        ReasonCode.ROLLOUT_STARTS_FAILED,
        ReasonCode.ROLLOUT_TOO_SLOW,
        ReasonCode.ROLLOUT_NO_ROOM,
        ReasonCode.ROLLOUT_ERRORS,
    }
)
_SIDE_BY_SIDE = frozenset({Strategy.BLUE_GREEN, Strategy.CANARY})
_FAILED = frozenset({ReasonCode.ROUTE_ENDED, ReasonCode.ROUTE_NEVER_GOOD})
SERVING = frozenset({RouteStatus.HEALTHY, RouteStatus.DEGRADED})


def _of(live: Live, deployment: Deployment) -> list[Route]:
    return [each for each in live.of(Route).values() if each.deployment is deployment]


def serves(route: Route) -> bool:
    """Whether a route was found healthy, and its last probe was good."""
    return route.good is True and route.healthy_since is not None


def _answers_with_errors(route: Route) -> bool:
    """Whether the revision of a route was given up because its requests failed."""
    deployment = route.deployment
    why = deployment.reason
    was_given_up = why is not None and why.code is ReasonCode.ROLLOUT_ERRORS
    return was_given_up and deployment.rollout is None and route.revision != deployment.stable


def runs(route: Route, live: Live) -> bool:
    """Whether the session of a route is RUNNING."""
    session = None if route.session_id is None else live.sessions.get(route.session_id)
    return session is not None and session.status is SessionStatus.RUNNING


def _failed_to_start(route: Route, stored: str) -> bool:
    """Whether a route has gone in this commit that was never healthy, but for those that went with
    their machine."""
    why = route.reason
    if why is None or why.code not in _FAILED:
        return False
    if isinstance(why, RouteEnded) and why.lost:
        return False
    return stored in UP and route.status not in UP and route.good_at is None


class ReplicasAreBounded(Invariant):
    says = "no replica is made beyond those that are wished, and their surge"

    def committed(self, unit: Unit) -> None:
        for deployment in {
            each.deployment for each, old in unit.touched[Route].items() if old == NEW
        }:
            wanted, spec = deployment.replicas, deployment.spec
            more = max(spec.update.surge.of(wanted, up=True), spec.disruptable(wanted))
            is_beside = deployment.rollout is not None and spec.update.strategy in _SIDE_BY_SIDE
            limit = (2 if is_beside else 1) * (wanted + more)
            up = sum(each.status in UP for each in _of(unit.live, deployment))
            self.expect(up <= limit, f"{deployment.id} has {up} replicas, and wishes {wanted}")


class DestroyedLeaveNothing(Invariant):
    says = "a destroyed deployment leaves no route, session, probe or published address"

    def committed(self, unit: Unit) -> None:
        for deployment in unit.touched[Deployment]:
            if deployment.status is EndpointLifecycle.DESTROYED:
                left = [each.id for each in _of(unit.live, deployment)]
                self.expect(not left, f"{deployment.id} is over, and has {left}")
        owned = {each.session_id for each in unit.live.of(Route).values()}
        for session in unit.touched[Session]:
            is_replica = session.type is SessionType.INFERENCE and not session.service
            if is_replica and session.status in SESSION_TABLE.live:
                self.expect(session.id in owned, f"{session.id} is of no route")

    def at_rest(self) -> None:
        world, controller = self.world, self.world.controller
        if controller is None:
            return
        watched = [*controller.prober.watched]
        self.expect(not watched, f"{watched} are probed, and nobody wants that")
        asked = {
            name: agent.probes.routes
            for name, agent in world.agents.items()
            if agent.probes is not None and agent.stream is not None and agent.probes.routes
        }
        self.expect(not asked, f"agents probe {asked}, and nobody wants that")
        there = [each.name for each in world.serving.services]
        self.expect(not there, f"{there} are published, and are gone")


class TrafficGoesToTheHealthy(Invariant):
    """Judged by what the probers told, whenever a controller has taken all of that."""

    says = (
        "traffic goes to routes that were healthy at their last probe, or the published set stands"
    )

    def woke(self) -> None:
        controller = self.world.controller
        if controller is None or not controller.is_idle or self.world.is_broken:
            return
        routes = controller.store.live.of(Route)
        live = controller.store.live
        for service in controller.plane.parts[Traffic].view().services:
            deployment = live.of(Deployment).get(service.id)
            its = [] if deployment is None else _of(live, deployment)
            for target in service.targets:
                route = routes.get(f"{service.id}/{target.route}")
                if not target.weight:
                    continue
                told = f"{service.id}/{target.route} gets traffic, and is"
                if route is None or route.status not in SERVING:
                    self.expect(False, f"{told} {None if route is None else route.status}")
                    continue
                if _are_bad_at_once(route, its):
                    well = route.status is RouteStatus.HEALTHY and route.healthy_since is not None
                    self.expect(well, f"{told} {route.status}")
                    continue
                heard = controller.plane.parts[Routes].heard_of(route.name)
                if heard is not None and heard.asked is not None:
                    continue  # what its agent tells may be on its way
                last = self.world.serving.told.get(route.name)
                is_current = last is not None and (
                    last.generation == route.deployment.probe_version
                )
                bad = last is not None and is_current and not last.good
                self.expect(not bad and route.good is True, f"{told} found bad: {last}")


def _are_bad_at_once(route: Route, others: Sequence[Route]) -> bool:
    """Whether no route serves that is of the same revision, or of any where these are alike."""
    deployment = route.deployment
    is_update = deployment.rollout is not None
    by_revision = is_update and deployment.spec.update.strategy in _SIDE_BY_SIDE
    return not any(
        each.status in SERVING and serves(each)
        for each in others
        if each.revision == route.revision or not by_revision
    )


class EnoughServe(Invariant):
    """Judged of replicas that were taken away while they served and their sessions ran: those that
    end by themselves, or with their machines, ask nobody. A revision that was given up because
    requests failed is no service, however its probes end."""

    says = "never fewer healthy routes than the update, or the disruption, allows"

    def committed(self, unit: Unit) -> None:
        taken = {
            route.deployment: route
            for route, stored in unit.touched[Route].items()
            if route.status is RouteStatus.TERMINATING
            and stored in SERVING
            and serves(route)
            and runs(route, unit.live)
            and not route.deployment.is_going
            and not _answers_with_errors(route)
        }
        for deployment, route in taken.items():
            wanted, spec = deployment.replicas, deployment.spec
            may_be_missing = max(
                spec.update.unavailable.of(wanted, up=False), spec.disruptable(wanted)
            )
            left = sum(
                each.status in SERVING and serves(each) for each in _of(unit.live, deployment)
            )
            self.expect(
                left >= wanted - may_be_missing,
                f"{route.name} is taken away, and {left} of {wanted} are left that serve, where "
                f"{may_be_missing} may be missing",
            )


class EvictionsAreBounded(Invariant):
    """Judged while nothing is rolled out: an update takes away what does not serve at once. A
    replica that is not needed any more, because it is where none may be, leaves by another rule."""

    says = "no more unhealthy replicas are replaced at a time than the disruption allows"

    def committed(self, unit: Unit) -> None:
        left = Counter(
            (route.deployment, route.reason.code)
            for route, stored in unit.touched[Route].items()
            if stored in PROBED
            and route.status is RouteStatus.TERMINATING
            and route.reason is not None
        )
        for deployment in {each for each, _ in left}:
            if deployment.rollout is not None or not left[deployment, ReasonCode.ROUTE_EVICTED]:
                continue
            wanted = deployment.replicas
            there = left[deployment, ReasonCode.ROUTE_NOT_NEEDED] + sum(
                each.status in PROBED
                and (each.good_at is not None or each.status is RouteStatus.UNHEALTHY)
                for each in _of(unit.live, deployment)
            )
            least = wanted - deployment.spec.disruptable(wanted)
            self.expect(there >= least, f"{deployment.id} has {there} of {wanted} left")


class _Specs:
    """The specs of deployments at their last look. With another one a revision is tried anew,
    unless only the number of replicas is another."""

    def __init__(self) -> None:
        self._of: dict[DeploymentId, DeploymentSpec] = {}

    def are_changed(self, deployment: Deployment) -> bool:
        """Whether the deployment's spec is another than at the last look."""
        spec = deployment.spec.model_copy(update={"replicas": 1})
        former, self._of[deployment.id] = self._of.get(deployment.id, spec), spec
        return former != spec


class StartsAreBounded(Invariant):
    """Judged of new revisions, and of first ones until a replica was healthy, against the most
    replicas that were wished meanwhile: those under way when the budget is used up fail as well."""

    says = "no more starts of a revision fail than its budget allows"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._failed: dict[DeploymentId, tuple[int, int, int]] = {}
        self._specs = _Specs()

    def committed(self, unit: Unit) -> None:
        for deployment in unit.touched[Deployment]:
            is_other = self._specs.are_changed(deployment)
            if is_other or (deployment.rollout is None and not deployment.failed_starts):
                self._failed.pop(deployment.id, None)
            else:
                self._count(deployment, 0)
        for route, stored in unit.touched[Route].items():
            deployment = route.deployment
            is_judged = deployment.rollout is not None or not deployment.proven
            if is_judged and route.revision == _tried(deployment):
                self._count(deployment, _failed_to_start(route, stored))

    def _count(self, deployment: Deployment, failed: int) -> None:
        update, wanted, revision = deployment.spec.update, deployment.replicas, _tried(deployment)
        most = max(1, wanted + update.surge.of(wanted, up=True))
        known, count, highest = self._failed.get(deployment.id, (revision, 0, 0))
        if known != revision:
            count, highest = 0, 0
        count, highest = count + failed, max(highest, most)
        self._failed[deployment.id] = revision, count, highest
        limit = min(3 * highest, 20) + highest
        told = f"{deployment.id}: {count} replicas of {revision} failed to start"
        self.expect(count <= limit, told)


def _tried(deployment: Deployment) -> int:
    """The revision of which replicas are made that may all fail."""
    rollout = deployment.rollout
    return deployment.stable if rollout is None else rollout.to_revision


class FailedStayFailed(Invariant):
    """Judged of replicas that are there: one that was made before its revision was given up in the
    same wake has ended in that, before it had a session."""

    says = "a revision that was given up stays so until the spec changes, and the former serves"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._given_up: dict[DeploymentId, int] = {}
        self._specs = _Specs()

    def committed(self, unit: Unit) -> None:
        for deployment in unit.touched[Deployment]:
            why, former = deployment.reason, self._given_up.get(deployment.id)
            is_other = self._specs.are_changed(deployment)
            if former is not None and (former != deployment.revision or is_other):
                del self._given_up[deployment.id]
            elif former is not None and not deployment.is_going:
                stays = deployment.rollout is None and deployment.stable != former
                self.expect(stays, f"{deployment.id}: {former} was given up, and is there again")
            if why is not None and why.code in _GIVEN_UP and deployment.rollout is None:
                self._given_up[deployment.id] = deployment.revision
        for route, stored in unit.touched[Route].items():
            is_made = stored == NEW and route.status in UP
            if is_made and self._given_up.get(route.deployment.id) is not None:
                wrong = route.revision == self._given_up[route.deployment.id]
                self.expect(not wrong, f"{route.name} is of a revision that was given up")


class DeploymentsSettle(Invariant):
    says = "each deployment has its replicas, or says why not, once faults have stopped"

    def at_rest(self) -> None:
        unsettled = self.scene.unsettled
        self.expect(not unsettled, f"not settled: {unsettled}")


INVARIANTS = (
    ReplicasAreBounded,
    DestroyedLeaveNothing,
    TrafficGoesToTheHealthy,
    EnoughServe,
    EvictionsAreBounded,
    StartsAreBounded,
    FailedStayFailed,
    DeploymentsSettle,
)
