"""Each row of the reference's tables of deployments and routes (source: Sokovan), declared and
carried out: what stands in history is what the table says."""

from collections.abc import Callable
from typing import TypeAlias

import pytest
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.deployment_scenarios import (
    deployment_that_comes_and_goes,
    deployment_whose_routes_do_not_end,
    replica_that_cannot_be_created,
    revision_that_is_given_up,
)
from tests.control.served_cluster import Cluster
from tests.control.test_verdicts import handlers
from tests.control.world import World

from muster.control.engine.handler import LifecycleHandler
from muster.control.group.requests import GroupRequests
from muster.core.specs import QuotaSpec
from muster.core.states.deployment import RouteStatus
from muster.store import schema

MAINTAIN, NEVER = "(maintain)", "-"
"""The verdict changes nothing; no target ever gets it."""
PENDING, CREATED, SCALING, READY = "PENDING", "CREATED", "SCALING", "READY"
DEPLOYING, DESTROYING, DESTROYED = "DEPLOYING", "DESTROYING", "DESTROYED"
PROVISIONING, HEALTHY, UNHEALTHY, DEGRADED = "PROVISIONING", "HEALTHY", "UNHEALTHY", "DEGRADED"
TERMINATING, TERMINATED, FAILED_TO_START = "TERMINATING", "TERMINATED", "FAILED_TO_START"

Row: TypeAlias = tuple[set[str], str, str, str]
"""Current statuses; the next ones by SUCCESS, FAILURE and STALE."""

TABLES: dict[str, Row] = {
    "CheckPendingDeployment": ({PENDING, CREATED}, SCALING, MAINTAIN, NEVER),
    "ScalingDeployment": ({SCALING}, READY, MAINTAIN, NEVER),
    "CheckReplicaDeployment": ({READY}, SCALING, MAINTAIN, NEVER),
    "ReconcileDeployment": ({READY}, MAINTAIN, SCALING, NEVER),
    "RolloutDeployment": ({DEPLOYING}, READY, READY, NEVER),
    "DestroyingDeployment": ({DESTROYING}, DESTROYED, DESTROYED, NEVER),
    "ProvisioningRoute": ({PROVISIONING}, DEGRADED, FAILED_TO_START, NEVER),
    "HealthCheckRoute": ({HEALTHY, UNHEALTHY, DEGRADED}, HEALTHY, UNHEALTHY, DEGRADED),
    "RunningRoute": (
        {DEGRADED, HEALTHY, UNHEALTHY, FAILED_TO_START},
        MAINTAIN,
        TERMINATING,
        NEVER,
    ),
    "RouteEviction": ({UNHEALTHY}, TERMINATING, MAINTAIN, NEVER),
    "TerminatingRoute": ({TERMINATING}, TERMINATED, MAINTAIN, NEVER),
    "ServiceDiscoverySync": ({HEALTHY}, MAINTAIN, MAINTAIN, NEVER),
}


@pytest.mark.parametrize("name", TABLES)
def test_handler_is_declared_as_its_row_says(group_world: MakeWorld, name: str) -> None:
    (handler,) = (each for each in handlers(group_world({})) if each.name == name)
    assert isinstance(handler, LifecycleHandler)
    there = handler.transitions
    assert there.need_retry is None
    assert there.expired is None
    assert there.give_up is None
    stale = NEVER if there.stale is None else str(there.stale.status)
    declared = [
        MAINTAIN if each is None or each.status is None else str(each.status)
        for each in (there.success, there.failure)
    ]
    assert ({str(each) for each in handler.statuses}, *declared, stale) == TABLES[name]


def _cluster(make: MakeWorld) -> Cluster:
    def world(agents: object, **options: object) -> World:
        return make({"a": 8, "b": 8}, **options)

    cluster = Cluster(world)
    cluster.deploy(replicas=2, drain=1, probe={"interval": 1, "timeout": 1, "evict_after": 300})
    return cluster


def _cancel_one(cluster: Cluster) -> World:
    (route, *_) = cluster.routes()
    assert route.session_id is not None
    cluster.cancel_session(route.session_id)
    cluster.run(10)
    return cluster.world


def _sick(make: MakeWorld) -> Cluster:
    cluster = _cluster(make)
    cluster.run(10)
    cluster.sick.add(cluster.routes()[0].name)
    cluster.run(10)
    assert cluster.routes()[0].status is RouteStatus.UNHEALTHY
    return cluster


def route_that_recovers(make: MakeWorld) -> World:
    cluster = _sick(make)
    cluster.sick.clear()
    cluster.run(3)
    return cluster.world


def unhealthy_route_that_is_probed_no_more(make: MakeWorld) -> World:
    cluster = _sick(make)
    cluster.probes.blind = True
    cluster.run(30)
    return cluster.world


def route_that_is_bad_when_it_is_probed_again(make: MakeWorld) -> World:
    cluster = _cluster(make)
    cluster.run(10)
    cluster.probes.blind = True
    cluster.run(30)
    cluster.probes.blind = False
    cluster.sick.add(cluster.routes()[0].name)
    cluster.run(10)
    return cluster.world


def unhealthy_route_whose_session_ends(make: MakeWorld) -> World:
    return _cancel_one(_sick(make))


def route_whose_session_ends_before_its_first_probe(make: MakeWorld) -> World:
    cluster = _cluster(make)
    cluster.probes.blind = True
    cluster.run(3)
    return _cancel_one(cluster)


COMES, GIVEN_UP = deployment_that_comes_and_goes, revision_that_is_given_up
CARRIED_OUT: dict[tuple[str, str, str, str], Callable[[MakeWorld], World]] = {
    ("CheckPendingDeployment", PENDING, "SUCCESS", SCALING): COMES,
    ("ScalingDeployment", SCALING, "SUCCESS", READY): COMES,
    ("CheckReplicaDeployment", READY, "SUCCESS", SCALING): COMES,
    ("ReconcileDeployment", READY, "FAILURE", SCALING): COMES,
    ("RolloutDeployment", DEPLOYING, "SUCCESS", READY): COMES,
    ("RolloutDeployment", DEPLOYING, "FAILURE", READY): GIVEN_UP,
    ("DestroyingDeployment", DESTROYING, "SUCCESS", DESTROYED): COMES,
    ("DestroyingDeployment", DESTROYING, "FAILURE", DESTROYED): deployment_whose_routes_do_not_end,
    ("ProvisioningRoute", PROVISIONING, "SUCCESS", DEGRADED): COMES,
    ("ProvisioningRoute", PROVISIONING, "FAILURE", FAILED_TO_START): replica_that_cannot_be_created,
    ("HealthCheckRoute", DEGRADED, "SUCCESS", HEALTHY): COMES,
    ("HealthCheckRoute", UNHEALTHY, "SUCCESS", HEALTHY): route_that_recovers,
    ("HealthCheckRoute", HEALTHY, "FAILURE", UNHEALTHY): GIVEN_UP,
    ("HealthCheckRoute", DEGRADED, "FAILURE", UNHEALTHY): route_that_is_bad_when_it_is_probed_again,
    ("HealthCheckRoute", HEALTHY, "STALE", DEGRADED): GIVEN_UP,
    ("HealthCheckRoute", UNHEALTHY, "STALE", DEGRADED): unhealthy_route_that_is_probed_no_more,
    ("RunningRoute", HEALTHY, "FAILURE", TERMINATING): COMES,
    ("RunningRoute", UNHEALTHY, "FAILURE", TERMINATING): unhealthy_route_whose_session_ends,
    (
        "RunningRoute",
        DEGRADED,
        "FAILURE",
        TERMINATING,
    ): route_whose_session_ends_before_its_first_probe,
    ("RunningRoute", FAILED_TO_START, "FAILURE", TERMINATING): replica_that_cannot_be_created,
    ("RouteEviction", UNHEALTHY, "SUCCESS", TERMINATING): GIVEN_UP,
    ("TerminatingRoute", TERMINATING, "SUCCESS", TERMINATED): COMES,
}


@pytest.mark.parametrize(
    ("row", "scenario"), CARRIED_OUT.items(), ids=["-".join(row) for row in CARRIED_OUT]
)
def test_row_stands_in_history(
    group_world: MakeWorld, row: tuple[str, str, str, str], scenario: Callable[[MakeWorld], World]
) -> None:
    assert row in _told(scenario(group_world))


def route_that_a_quota_keeps_waiting(make: MakeWorld) -> World:
    cluster = _cluster(make)
    none = QuotaSpec.model_validate({"level": "domain", "name": "default", "pending_sessions": 0})
    cluster.world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, none))
    cluster.run(60)
    return cluster.world


@pytest.mark.parametrize("scenario", [COMES, GIVEN_UP, route_that_a_quota_keeps_waiting])
def test_history_has_the_results_of_the_reference_and_no_others(
    group_world: MakeWorld, scenario: Callable[[MakeWorld], World]
) -> None:
    told = _told(scenario(group_world))
    assert {result for _, _, result, _ in told} <= {"SUCCESS", "FAILURE", "STALE"}


def test_each_change_of_the_tables_is_carried_out_somewhere() -> None:
    changes = {
        (name, to)
        for name, (_, *nexts) in TABLES.items()
        for to in nexts
        if to not in (MAINTAIN, NEVER)
    }
    assert changes == {(name, to) for name, _, _, to in CARRIED_OUT}


def test_unhealthy_route_stays_while_its_eviction_has_no_room(group_world: MakeWorld) -> None:
    cluster = _cluster(group_world)
    cluster.run(10)
    cluster.sick |= {each.name for each in cluster.routes()}
    cluster.run(320, lambda: cluster.sick.update(each.name for each in cluster.routes()))
    assert sorted(each.status for each in cluster.routes()) == [DEGRADED, UNHEALTHY]


def _told(world: World) -> set[tuple[str, str, str, str]]:
    """Phase, former status, result and next status of what history tells of deployments."""
    told = schema.history.c
    mine = select(told.phase, told.from_status, told.result, told.to_status).where(
        told.entity.like("dep-%")
    )
    with world.store.engine.connect() as connection:
        return {(phase, was, result, to) for phase, was, result, to in connection.execute(mine)}
