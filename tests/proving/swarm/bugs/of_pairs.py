"""Bugs where two systems meet, which the invariants of pairs find."""

import pytest
from proving.swarm.invariants import need, turns, updates
from tests.proving.swarm.bugs.registry import finds

from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.demand import Demand
from muster.autoscaling.routing import route_demand
from muster.control.deployment import standing, traffic
from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.control.engine.work import Work
from muster.control.health.entity import Incident
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.health.turns import GiveTurns
from muster.control.pool import autoscaler
from muster.core.states.deployment import RouteStatus
from muster.core.states.health import HealthStatus
from muster.serving.replicas import Standing


@finds(turns.NobodyWaitsForTheIsolated, first=4)
def no_turn_comes_free_beside_an_isolated_machine(patch: pytest.MonkeyPatch) -> None:
    follow = GiveTurns.follow

    def unless_isolated(self: GiveTurns, record: Incident, work: Work) -> None:
        incidents = work.live.of(Incident).values()
        of_group = [each.status for each in incidents if each.group == record.group]
        if HealthStatus.ISOLATED not in of_group:
            follow(self, record, work)

    patch.setattr(GiveTurns, "follow", unless_isolated)


@finds(turns.NobodyWaitsForTheIsolated, first=39)
def checks_of_idle_machines_need_a_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IncidentLifecycle, "check_if_idle", lambda *of: None)


@finds(need.MachinesAreNeeded, first=7)
def machines_that_are_coming_serve_nobody(patch: pytest.MonkeyPatch) -> None:
    def as_if_none_came(demand: Demand, *given: object, **named: object) -> RoutingDecision:
        snapshot, selector, pools, _coming = given
        return route_demand(demand, snapshot, selector, pools, (), **named)  # type: ignore[arg-type]

    patch.setattr(autoscaler, "route_demand", as_if_none_came)


@finds(updates.UpdatesKeepServing, first=5)
def replicas_are_available_as_soon_as_they_answer(patch: pytest.MonkeyPatch) -> None:
    stands = standing.standing

    def at_once(route: Route, now: float) -> Standing:
        found = stands(route, now)
        answers = route.status is RouteStatus.HEALTHY and found is Standing.HEALTHY
        return Standing.AVAILABLE if answers else found

    patch.setattr(standing, "standing", at_once)


@finds(updates.UpdatesKeepServing, first=5)
def replicas_with_a_bad_probe_count_until_they_are_unhealthy(patch: pytest.MonkeyPatch) -> None:
    stands = standing.standing

    def while_healthy(route: Route, now: float) -> Standing:
        found = stands(route, now)
        return Standing.AVAILABLE if found is Standing.WITHDRAWN else found

    patch.setattr(standing, "standing", while_healthy)


@finds(updates.UpdatesKeepServing, first=11)
def nobody_is_published_where_all_were_bad_at_once(patch: pytest.MonkeyPatch) -> None:
    published = standing.in_traffic

    def without_withdrawn(deployment: Deployment, routes: Routes, now: float) -> list[Route]:
        return [each for each in published(deployment, routes, now) if each.good is not False]

    patch.setattr(traffic, "in_traffic", without_withdrawn)
