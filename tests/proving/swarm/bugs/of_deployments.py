"""Bugs that the invariants of deployments find."""

import pytest
from proving.swarm.invariants import deployments
from tests.proving.swarm.bugs.registry import finds

from muster.control.deployment import handlers, traffic
from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.handlers import (
    DestroyingDeployment,
    ReconcileDeployment,
    RolloutDeployment,
)
from muster.control.deployment.route_handlers import RouteEviction
from muster.control.engine.handler import HandlerResult
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.core.reasons import Reason
from muster.core.states.deployment import PROBED
from muster.serving import rollout
from muster.serving.replicas import Change
from muster.serving.rollout import RolloutCode
from muster.serving.why import Why
from muster.store.live import Live


@finds(deployments.TrafficGoesToTheHealthy, first=5)
def requests_go_to_all_that_run(patch: pytest.MonkeyPatch) -> None:
    def all_that_run(deployment: Deployment, routes: Routes, now: float) -> list[Route]:
        found = routes.of(deployment)
        return [each for each in found if each.address is not None and each.status in PROBED]

    patch.setattr(traffic, "in_traffic", all_that_run)


@finds(deployments.ReplicasAreBounded, first=5)
def replicas_that_run_do_not_count(patch: pytest.MonkeyPatch) -> None:
    def wished(
        deployment: Deployment, routes: Routes, live: Live, cluster: ClusterState, now: float
    ) -> Change:
        return Change(create=1 if len(routes.of(deployment)) < 20 else 0)

    patch.setattr(handlers, "change", wished)


@finds(deployments.DestroyedLeaveNothing, first=5)
def deployments_end_before_their_routes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        DestroyingDeployment,
        "execute",
        lambda self, targets, work: HandlerResult(successes=[*targets]),
    )


@finds(deployments.EnoughServe, first=23)
def any_number_may_be_missing_in_an_update(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rollout, "_limits", lambda update, wanted: (1, wanted))


@finds(deployments.EvictionsAreBounded, first=23)
def all_that_are_unhealthy_are_evicted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RouteEviction, "_room", lambda self, deployment, now: 99)


@finds(deployments.StartsAreBounded, first=59)
def failed_starts_end_no_update(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rollout, "_too_many_failed", lambda rollout, wanted: None)
    patch.setattr(rollout, "_too_slow", lambda *given: None)


@finds(deployments.FailedStayFailed, first=11)
def revisions_that_are_given_up_take_the_place_of_the_former(patch: pytest.MonkeyPatch) -> None:
    failed = RolloutDeployment._failed

    def taken(
        self: RolloutDeployment, deployment: Deployment, failure: Why[RolloutCode], work: Work
    ) -> Reason:
        why = failed(self, deployment, failure, work)
        deployment.stable = deployment.revision
        return why

    patch.setattr(RolloutDeployment, "_failed", taken)


@finds(deployments.DeploymentsSettle, first=59)
def replicas_that_are_lost_are_not_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ReconcileDeployment,
        "execute",
        lambda self, targets, work: HandlerResult(successes=[*targets]),
    )
