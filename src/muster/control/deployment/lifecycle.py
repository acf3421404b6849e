"""The lifecycles of deployments and routes: what their moves mean for each other."""

from collections.abc import Iterable
from dataclasses import replace

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.loads import Loads
from muster.control.deployment.standing import looks_again_at
from muster.control.deployment.telling import DeploymentTeller
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.work import Move, Work
from muster.core.reasons import Reason
from muster.core.reasons.of_deployments import DeploymentNeverHealthy, DeploymentStartsAgain
from muster.core.states.deployment import EndpointLifecycle, RouteStatus
from muster.serving.rollout import FAILED_STARTS_EACH, MOST_FAILED_STARTS

STEADY_S = 60.0
"""A replica that was healthy for so long has not failed to start, however it ended."""
LOOK_AGAIN_S = 1.0
"""How often a route is looked at that waits for room to be released, or for requests to end."""
DESTROY_S = 300.0
"""How long past its drain a deployment waits for the end of its routes."""
OUTAGE_S = 30.0
"""How long no replica serves before channels are told: one that is replaced at once is no
outage."""
_ENDS = frozenset({RouteStatus.TERMINATING, RouteStatus.TERMINATED})
"""States into which a route takes the reason that it has already, if the move has none."""
MOST_OF_A_SENTENCE = 300
"""Characters of what a replica's reason tells that are told with its deployment's."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 300.0


_FailedStarts = DeploymentStartsAgain | DeploymentNeverHealthy


def wait_before_start_s(failed_starts: int) -> float:
    """How long to wait before another replica is made, after so many in a row that failed; the
    first is replaced at once."""
    if failed_starts < 2:
        return 0.0
    return min(_FIRST_WAIT_S * 2.0 ** min(failed_starts - 2, 16), _LONGEST_WAIT_S)


def next_start_at(deployment: Deployment) -> float:
    """The moment before which no replica of the stable revision is made."""
    return (deployment.failed_at or 0.0) + wait_before_start_s(deployment.failed_starts)


def _budget(replicas: int) -> int:
    return min(FAILED_STARTS_EACH * max(replicas, 1), MOST_FAILED_STARTS)


def destroyed_at(deployment: Deployment) -> float:
    """The moment at which a deployment that is taken down is over, though routes are left."""
    spec = deployment.spec
    return deployment.status_changed_at + spec.drain + spec.grace + DESTROY_S


def starts_left(deployment: Deployment) -> bool:
    """Whether another replica may be tried: a revision of which none was ever healthy has a
    budget of failed starts."""
    return deployment.proven or deployment.failed_starts < _budget(deployment.replicas)


def why_not(deployment: Deployment, now: float) -> Reason | None:
    """Why no replica is made although one is missing, if that is so."""
    failing = _failing(deployment, *_last_failed(deployment))
    if isinstance(failing, DeploymentNeverHealthy):
        return failing
    in_s = next_start_at(deployment) - now
    return replace(failing, in_s=in_s) if in_s > 0 else None


def tells_of_starts(why: Reason | None) -> bool:
    """Whether a deployment's reason is that its replicas do not become healthy."""
    return isinstance(why, _FailedStarts)


def judge_starts_anew(deployment: Deployment) -> None:
    """Have the reason of a deployment whose replicas do not become healthy say whether others are
    tried, once its budget is another one."""
    if tells_of_starts(deployment.reason):
        deployment.reason = _failing(deployment, *_last_failed(deployment))


def _failing(deployment: Deployment, how: str | None, route: str | None) -> _FailedStarts:
    """The reason of a deployment whose replicas do not become healthy.

    Args:
        how, route: the end of the last of them, and its id.
    """
    kind = DeploymentStartsAgain if starts_left(deployment) else DeploymentNeverHealthy
    return kind(how=how, route=route, failed=deployment.failed_starts)


def _last_failed(deployment: Deployment) -> tuple[str | None, str | None]:
    """The end and the id of the last replica that did not become healthy, where they are known."""
    known = deployment.reason
    return (known.how, known.route) if isinstance(known, _FailedStarts) else (None, None)


def _how(why: Reason) -> str:
    """The sentence of a replica's end, as a part of its deployment's."""
    return why.sentence()[:MOST_OF_A_SENTENCE]


def may_start(deployment: Deployment, now: float) -> bool:
    """Whether a replica of the stable revision may be made now."""
    return starts_left(deployment) and next_start_at(deployment) <= now


def _has_served(route: Route, now: float) -> bool:
    """Whether a route was healthy for long enough, up to now or until it was found otherwise; bad
    probes that did not make it UNHEALTHY do not matter."""
    if route.good_at is None:
        return False
    until = route.status_changed_at if route.healthy_since is None else now
    return until - route.good_at >= STEADY_S


class DeploymentLifecycle(Lifecycle[Deployment]):
    entity = Deployment

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def moved(self, work: Work, record: Deployment, move: Move) -> None:
        match record.status:
            case EndpointLifecycle.DESTROYING:
                record.reason, record.rollout = move.reason, None
                for route in self._routes.of(record):
                    work.mark(route)
            case EndpointLifecycle.DESTROYED:
                record.finished_at = work.now

    def deadlines(self, record: Deployment, work: Work) -> Iterable[float]:
        yield next_start_at(record)
        due = self._routes.due.get(record.id)
        if record.status is EndpointLifecycle.DESTROYING:
            yield destroyed_at(record)
        if record.unserved_at is not None and not record.outage_told:
            yield record.unserved_at + OUTAGE_S
        if record.rollout is not None and due is not None:
            yield due
        elif record.status is EndpointLifecycle.READY:
            yield from looks_again_at(record, self._routes, work.live, work.now)


class RouteLifecycle(Lifecycle[Route]):
    entity = Route

    def __init__(self, teller: DeploymentTeller, loads: Loads) -> None:
        self._teller = teller
        self._loads = loads

    def moved(self, work: Work, record: Route, move: Move) -> None:
        if move.reason is not None or record.status not in _ENDS:
            record.reason = move.reason
        match record.status:
            case RouteStatus.HEALTHY:
                if record.healthy_since is None:  # it stands while nothing is known
                    record.healthy_since = work.now
                if record.good_at is None:
                    record.good_at = work.now
                self._proved(work, record)
            case RouteStatus.UNHEALTHY:
                record.healthy_since = None
            case RouteStatus.TERMINATED:
                record.finished_at = work.now
                self._keep_counts(work, record)

    def _keep_counts(self, work: Work, route: Route) -> None:
        """Have the requests of a replica that has ended count in the roll-out of its revision."""
        deployment, total = route.deployment, self._loads.of(route)
        rollout = deployment.rollout
        if rollout is None or total is None or route.revision != rollout.to_revision:
            return
        deployment.rollout = rollout.without(total.requests, total.failures)
        work.unit.touch(deployment)

    def _proved(self, work: Work, route: Route) -> None:
        deployment = route.deployment
        if route.revision == deployment.stable and not deployment.proven:
            deployment.proven = True
            work.unit.touch(deployment)
        if route.revision == deployment.stable and tells_of_starts(deployment.reason):
            deployment.reason = None
            work.unit.touch(deployment)

    def failed(self, work: Work, route: Route, why: Reason) -> None:
        """Count the end of a replica that nobody wished, where it had hardly served."""
        deployment = route.deployment
        if _has_served(route, work.now):
            if deployment.failed_starts and route.revision == deployment.stable:
                deployment.failed_starts = 0
                work.unit.touch(deployment)
            return
        rollout = deployment.rollout
        if rollout is not None and route.revision == rollout.to_revision:
            failed_starts, how = rollout.failed_starts + 1, _how(why)
            deployment.rollout = replace(rollout, failed_starts=failed_starts, how=how)
        elif route.revision == deployment.stable:
            could_start = starts_left(deployment)
            deployment.failed_starts += 1
            deployment.failed_at = work.now
            failing = _failing(deployment, _how(why), route.id if route.session_id else None)
            is_over = could_start and not starts_left(deployment)
            if is_over or deployment.reason is None or tells_of_starts(deployment.reason):
                deployment.reason = failing
            if is_over:
                self._teller.never_healthy(work, deployment, failing)
        work.unit.touch(deployment)

    def deadlines(self, record: Route, work: Work) -> Iterable[float]:
        probe = record.probe
        match record.status:
            case RouteStatus.TERMINATING:
                yield work.now + LOOK_AGAIN_S
            case RouteStatus.UNHEALTHY:
                yield record.status_changed_at + probe.evict_after
                yield work.now + probe.stale_after_s()
            case RouteStatus.HEALTHY:
                yield work.now + probe.stale_after_s()
                if record.healthy_since is not None:
                    yield record.healthy_since + record.deployment.spec.update.min_healthy_time
            case RouteStatus.DEGRADED:
                yield work.now + probe.stale_after_s()
                if record.good_at is None:
                    yield record.status_changed_at + probe.start_timeout
            case RouteStatus.PROVISIONING if record.retry_at > work.now:
                yield record.retry_at
