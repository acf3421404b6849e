"""The budget of a deployment: how many of its replicas may be missing by others' doing (design:
Deployments and routes)."""

import math
from functools import partial

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, DeploymentId, Route
from muster.control.deployment.lifecycle import RouteLifecycle
from muster.control.deployment.standing import in_traffic, standing
from muster.control.deployment.taking import take_away
from muster.control.engine.work import Work
from muster.control.session.cluster.guard import ServicesGuard
from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.core.reasons.of_deployments import (
    DisruptionExhausted,
    ReplacementFirst,
    ReplacementPaused,
)
from muster.core.states import SessionStatus
from muster.core.states.deployment import RouteStatus
from muster.scheduling.budgets import DisruptionBudget
from muster.serving.replicas import UP
from muster.store.records import Session


class ReplicaGuard(ServicesGuard):
    """Has replicas that are to leave a machine be withdrawn and drained first; one that serves goes
    only while no more replicas are missing than ``disruption`` allows."""

    def __init__(self, routes: Routes, lifecycle: RouteLifecycle) -> None:
        self._routes = routes
        self._lifecycle = lifecycle

    def budget(self, session: SessionId) -> DisruptionBudget | None:
        route = self._routes.of_session(session)
        if route is None or not _serves(route):
            return None
        return DisruptionBudget(route.deployment.id, partial(self._left, route.deployment))

    def sees_to(self, work: Work, session: Session, phase: str, why: Reason, until: float) -> bool:
        route = self._routes.of_session(session.id)
        if route is None or session.status is not SessionStatus.RUNNING:
            return False
        if route.status is RouteStatus.TERMINATING:
            return work.now < until  # it is stopped once its requests have ended
        if _serves(route):
            lefts = work.once(self._no_counts)
            deployment = route.deployment
            if deployment.id not in lefts:
                lefts[deployment.id] = self._left(deployment)
            if lefts[deployment.id] <= 0 and work.now < until:
                return True
            lefts[deployment.id] -= 1
        take_away(self._lifecycle, route, work, phase, why)
        return work.now < until

    def withdraw(self, work: Work, session: Session, phase: str, why: Reason) -> None:
        route = self._routes.of_session(session.id)
        begun = session.status is SessionStatus.RUNNING
        if route is not None and begun and route.status is not RouteStatus.TERMINATING:
            take_away(self._lifecycle, route, work, phase, why)

    def why_stays(self, session: SessionId, left_s: float | None) -> Reason | None:
        budget, route = self.budget(session), self._routes.of_session(session)
        if budget is None or route is None:
            return None
        deployment, rollout = route.deployment, route.deployment.rollout
        paused = rollout is not None and rollout.paused_at is not None
        if budget.left() > 0:
            if left_s is not None:
                return None
            if paused:
                return ReplacementPaused(deployment=deployment.name)
            return ReplacementFirst(deployment=deployment.name)
        return DisruptionExhausted(
            in_s=left_s,
            endless=left_s is None,
            paused=paused,
            deployment=deployment.name,
            serving=self._serving(deployment),
            wanted=deployment.replicas,
            disruption=str(deployment.spec.disruption),
        )

    def waits_without_limit(self, session: SessionId) -> bool:
        return self._routes.of_session(session) is not None

    def _no_counts(self) -> dict[DeploymentId, int]:
        """Of each deployment how many more replicas may be taken in a wake, as far as asked."""
        return {}

    def _left(self, deployment: Deployment) -> int:
        """How many more replicas that serve may be taken away."""
        missing = max(0, deployment.replicas - self._serving(deployment))
        return deployment.spec.bearable(deployment.replicas) - missing

    def _serving(self, deployment: Deployment) -> int:
        """How many replicas get requests."""
        return len(in_traffic(deployment, self._routes, math.inf))


def _serves(route: Route) -> bool:
    return standing(route, math.inf) in UP  # however short, and if its last probe was bad
