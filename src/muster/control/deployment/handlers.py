"""The six handlers of deployments (source: Sokovan); RolloutDeployment is added by (design:
Deployments and routes)."""

from collections.abc import Sequence

from muster.control.deployment.book import Routes
from muster.control.deployment.dependents import why_not_begun
from muster.control.deployment.entity import NOT_BEGUN, Deployment, Route, RouteId
from muster.control.deployment.levelling import change, differs, is_refused
from muster.control.deployment.lifecycle import (
    MOST_OF_A_SENTENCE,
    RouteLifecycle,
    destroyed_at,
    may_start,
    tells_of_starts,
    why_not,
)
from muster.control.deployment.loads import Loads
from muster.control.deployment.standing import (
    replicas,
    session_of,
    standing,
    waits_for_room,
)
from muster.control.deployment.taking import take_away
from muster.control.deployment.telling import DeploymentTeller
from muster.control.engine.handler import (
    NO_CHANGE,
    HandlerResult,
    LifecycleHandler,
    Stage,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.explanation import findings
from muster.core.ids import IdKind
from muster.core.owner import Principal, Role
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_deployments import (
    DeploymentReplicasDiffer,
    DeploymentRoutesLeft,
    RolloutErrors,
    RolloutNoRoom,
    RolloutStartsFailed,
    RolloutTooSlow,
)
from muster.core.states.deployment import PROBED, UP, EndpointLifecycle, RouteStatus
from muster.serving.replicas import Standing
from muster.serving.rollout import RolloutCode, RolloutVerdict, advance
from muster.serving.why import Why

_E = EndpointLifecycle
MOST_AT_ONCE = 200
"""Routes of a deployment that are made in one wake, so that none delays the others."""


class RouteChanges:
    """Makes and takes away routes of a deployment."""

    def __init__(self, lifecycle: RouteLifecycle) -> None:
        self._lifecycle = lifecycle

    def make(self, deployment: Deployment, revision: int, count: int, work: Work) -> bool:
        """Make routes; whether those were all, because there is a most in one wake."""
        for _ in range(min(count, MOST_AT_ONCE)):
            route = Route(
                id=RouteId(work.ids.new(IdKind.ROUTE)),
                deployment=deployment,
                revision=revision,
                status=RouteStatus.PROVISIONING,
                status_changed_at=work.now,
                created_at=work.now,
            )
            work.unit.add(route)
            work.mark(route)
        if count > MOST_AT_ONCE:
            work.look_later([deployment])
        return count <= MOST_AT_ONCE

    def remove(self, names: Sequence[str], work: Work, phase: str, why: Reason | None) -> None:
        """Take routes away."""
        found = work.live.of(Route)
        for name in names:
            if (route := found.get(name)) is not None:
                take_away(self._lifecycle, route, work, phase, why)


class CheckPendingDeployment(LifecycleHandler[Deployment]):
    """Has a deployment that was handed in get its replicas, once the work on which it depends has
    come so far."""

    name = "CheckPendingDeployment"
    entity = Deployment
    statuses = NOT_BEGUN
    transitions = StatusTransitions(success=TransitionStatus(_E.SCALING))

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def execute(self, targets: Sequence[Deployment], work: Work) -> HandlerResult[Deployment]:
        result: HandlerResult[Deployment] = HandlerResult()
        for deployment in targets:
            unmet = why_not_begun(deployment, self._cluster)
            if unmet:
                result.skipped[deployment] = tuple(unmet)
            else:
                result.successes.append(deployment)
        return result


class ScalingDeployment(LifecycleHandler[Deployment]):
    """Makes and takes away routes until there are as many as wished."""

    name = "ScalingDeployment"
    entity = Deployment
    statuses = frozenset({_E.SCALING})
    transitions = StatusTransitions(success=TransitionStatus(_E.READY))

    def __init__(self, routes: Routes, changes: RouteChanges, cluster: ClusterState) -> None:
        self._routes = routes
        self._cluster = cluster
        self._changes = changes

    def execute(self, targets: Sequence[Deployment], work: Work) -> HandlerResult[Deployment]:
        result: HandlerResult[Deployment] = HandlerResult()
        for deployment in targets:
            wished = change(deployment, self._routes, work.live, self._cluster, work.now)
            self._changes.remove(wished.remove, work, self.name, None)
            if self._changes.make(deployment, deployment.stable, wished.create, work):
                result.successes.append(deployment)
        return result


class CheckReplicaDeployment(LifecycleHandler[Deployment]):
    """Sees that another number of replicas is wished."""

    name = "CheckReplicaDeployment"
    entity = Deployment
    statuses = frozenset({_E.READY})
    transitions = StatusTransitions(success=TransitionStatus(_E.SCALING))

    def __init__(self, routes: Routes, cluster: ClusterState) -> None:
        self._routes = routes
        self._cluster = cluster

    def execute(self, targets: Sequence[Deployment], work: Work) -> HandlerResult[Deployment]:
        result: HandlerResult[Deployment] = HandlerResult()
        for deployment in targets:
            if deployment.scaled_at <= deployment.status_changed_at:
                continue
            if differs(change(deployment, self._routes, work.live, self._cluster, work.now)):
                result.successes.append(deployment)
        return result


class ReconcileDeployment(LifecycleHandler[Deployment]):
    """Sees that the routes are not those that are wished: one is gone, or has to be replaced."""

    name = "ReconcileDeployment"
    entity = Deployment
    statuses = frozenset({_E.READY})
    transitions = StatusTransitions(success=NO_CHANGE, failure=TransitionStatus(_E.SCALING))

    def __init__(self, routes: Routes, cluster: ClusterState) -> None:
        self._routes = routes
        self._cluster = cluster

    def execute(self, targets: Sequence[Deployment], work: Work) -> HandlerResult[Deployment]:
        result: HandlerResult[Deployment] = HandlerResult()
        for deployment in targets:
            wished = change(deployment, self._routes, work.live, self._cluster, work.now)
            if differs(wished):
                up = sum(route.status in UP for route in self._routes.of(deployment))
                result.failures[deployment] = DeploymentReplicasDiffer(
                    up=up,
                    wanted=deployment.replicas,
                    create=wished.create,
                    remove=len(wished.remove),
                )
            elif self._serve(deployment):
                if tells_of_starts(deployment.reason):  # fewer are wished now
                    deployment.reason = None
                    work.unit.touch(deployment)
                result.successes.append(deployment)
            elif (why := why_not(deployment, work.now)) is not None:
                result.skipped[deployment] = (why,)
            else:
                result.successes.append(deployment)
        return result

    def _serve(self, deployment: Deployment) -> bool:
        """Whether as many replicas are healthy as are wished."""
        routes = self._routes.of(deployment)
        healthy = sum(route.status is RouteStatus.HEALTHY for route in routes)
        return healthy >= deployment.replicas


class RolloutDeployment(LifecycleHandler[Deployment]):
    """Leads a deployment from one revision to another, replica by replica; a revision that does not
    get healthy is given up, and the former one serves on."""

    name = "RolloutDeployment"
    entity = Deployment
    statuses = frozenset({_E.DEPLOYING})
    transitions = StatusTransitions(
        success=TransitionStatus(_E.READY),
        failure=TransitionStatus(_E.READY),
    )

    def __init__(
        self,
        routes: Routes,
        changes: RouteChanges,
        loads: Loads,
        teller: DeploymentTeller,
        cluster: ClusterState,
    ) -> None:
        self._routes = routes
        self._cluster = cluster
        self._changes = changes
        self._loads = loads
        self._teller = teller

    def execute(self, targets: Sequence[Deployment], work: Work) -> HandlerResult[Deployment]:
        result: HandlerResult[Deployment] = HandlerResult()
        for deployment in targets:
            rollout = deployment.rollout
            if rollout is None:
                result.successes.append(deployment)
                continue
            step = advance(
                rollout,
                deployment.spec.update,
                deployment.replicas,
                replicas(deployment, self._routes, work.live, work.now),
                self._seen(deployment),
                work.now,
                self._loads.since,
            )
            if step.wake_at is not None:
                self._routes.due[deployment.id] = step.wake_at
            if step.rollout != rollout:
                deployment.rollout = step.rollout
                work.unit.touch(deployment)
            if step.verdict is RolloutVerdict.FAILED:  # asked before its replicas are told to go
                why = self._failed(deployment, step.why, work)
                self._teller.given_up(work, deployment, rollout.to_revision, why)
                result.failures[deployment] = why
            self._changes.remove(step.remove, work, self.name, None)
            held_up = is_refused(deployment, self._routes)
            for revision, count in () if held_up else step.create.items():
                if revision != rollout.to_revision and not may_start(deployment, work.now):
                    continue  # the new one has a budget of its own
                self._changes.make(deployment, revision, count, work)
            if step.verdict is RolloutVerdict.DONE:
                self._done(deployment, work)
                self._teller.updated(work, deployment)
                result.successes.append(deployment)
        return result

    def _seen(self, deployment: Deployment) -> dict[int, tuple[int, int]]:
        """Requests and failures by revision, since the routes began."""
        seen: dict[int, tuple[int, int]] = {}
        for route in self._routes.of(deployment):
            total = self._loads.of(route)
            if total is not None:
                requests, failures = seen.get(route.revision, (0, 0))
                seen[route.revision] = (requests + total.requests, failures + total.failures)
        return seen

    def _done(self, deployment: Deployment, work: Work) -> None:
        assert deployment.rollout is not None
        deployment.stable = deployment.rollout.to_revision
        deployment.proven = deployment.replicas > 0  # of none at all, none was healthy
        deployment.rollout = None
        deployment.failed_starts, deployment.failed_at = 0, None
        deployment.reason = None
        work.unit.touch(deployment)

    def _failed(self, deployment: Deployment, failure: Why[RolloutCode], work: Work) -> Reason:
        why = self._why(deployment, failure, work)
        deployment.rollout = None
        deployment.reason = why
        work.unit.touch(deployment)
        return why

    def _why(self, deployment: Deployment, failure: Why[RolloutCode], work: Work) -> Reason:
        of, told = deployment.rollout, failure.numbers
        assert of is not None
        name, revision, stable = deployment.name, of.to_revision, deployment.stable
        how = of.how or self._how(deployment, of.to_revision)
        match failure.code:
            case RolloutCode.FAILED_STARTS:
                return RolloutStartsFailed(
                    deployment=name,
                    revision=revision,
                    stable=stable,
                    failed=round(told["failed"]),
                    how=how,
                )
            case RolloutCode.ERRORS:
                rate = round(100 * told["failures"] / max(told["requests"], 1), 1)
                return RolloutErrors(
                    deployment=name,
                    revision=revision,
                    stable=stable,
                    rate=rate,
                    requests=round(told["requests"]),
                    limit=told["max_error_rate"],
                )
            case _:
                deadline_s = deployment.spec.update.progress_deadline
                lacking = self._lacking(deployment, of.to_revision, work)
                if lacking is not None:
                    return RolloutNoRoom(
                        deployment=name,
                        revision=revision,
                        stable=stable,
                        deadline_s=deadline_s,
                        how=lacking,
                    )
                return RolloutTooSlow(
                    deployment=name,
                    revision=revision,
                    stable=stable,
                    deadline_s=deadline_s,
                    how=how,
                )

    def _lacking(self, deployment: Deployment, revision: int, work: Work) -> str | None:
        """The words for which room the replicas of a revision wait; None if one has room, and is
        not available for another reason."""
        mine = [each for each in self._routes.of(deployment) if each.revision == revision]
        found = [(each, standing(each, work.now)) for each in mine]
        missing = [each for each, its in found if its not in (Standing.AVAILABLE, Standing.HELD)]
        if not missing or not all(waits_for_room(each, work.live) for each in missing):
            return None
        first = missing[0]
        if first.reason is not None:
            return first.reason.sentence()[:MOST_OF_A_SENTENCE]
        session = session_of(first, work.live)
        if session is None:
            return ""
        asker = Principal(deployment.owner, Role.USER)
        reasons = findings(work.live, self._cluster, session, work.now, asker).reasons
        return "; ".join(each.sentence() for each in reasons)[:MOST_OF_A_SENTENCE]

    def _how(self, deployment: Deployment, revision: int) -> str:
        """The words of the latest of the revision's replicas that has some to say."""
        for route in reversed([*self._routes.of(deployment)]):
            if route.revision == revision and (said := self._said_by(route)):
                return said
        return ""

    def _said_by(self, route: Route) -> str:
        if route.status in PROBED and (found := self._routes.heard(route).detail):
            return found
        if route.reason is None or route.reason.code is ReasonCode.ROUTE_NOT_NEEDED:
            return ""
        return route.reason.sentence()[:MOST_OF_A_SENTENCE]


class DestroyingDeployment(LifecycleHandler[Deployment]):
    """Takes a deployment down with all its routes; one of which routes are left after a while is
    DESTROYED nevertheless, and they are led to their end by themselves."""

    name = "DestroyingDeployment"
    stage = Stage.SETTLE
    entity = Deployment
    statuses = frozenset({_E.DESTROYING})
    transitions = StatusTransitions(
        success=TransitionStatus(_E.DESTROYED),
        failure=TransitionStatus(_E.DESTROYED),
    )

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def execute(self, targets: Sequence[Deployment], work: Work) -> HandlerResult[Deployment]:
        result: HandlerResult[Deployment] = HandlerResult()
        for deployment in targets:
            left = len(self._routes.of(deployment))
            if not left:
                result.successes.append(deployment)
            elif work.now >= destroyed_at(deployment):
                why = DeploymentRoutesLeft(left=left)
                result.failures[deployment] = why
        return result
