"""States of deployments and of their routes (source: Sokovan)."""

from enum import StrEnum

from muster.core.states.table import StateTable


class EndpointLifecycle(StrEnum):
    """The states of a deployment. CREATED is the reference's older word for READY: nothing arrives
    there any more, and what is there goes on as if PENDING."""

    PENDING = "PENDING"
    CREATED = "CREATED"
    SCALING = "SCALING"  # routes are made or taken away until there are as many as wished
    READY = "READY"
    DEPLOYING = "DEPLOYING"  # a new revision takes the place of the former one
    DESTROYING = "DESTROYING"
    DESTROYED = "DESTROYED"


class RouteStatus(StrEnum):
    """The states of a route. DEGRADED is one that was not probed yet, or not for too long."""

    PROVISIONING = "PROVISIONING"  # its session is not RUNNING yet
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DEGRADED = "DEGRADED"
    TERMINATING = "TERMINATING"  # it is drained, and its session stopped
    TERMINATED = "TERMINATED"
    FAILED_TO_START = "FAILED_TO_START"


_E = EndpointLifecycle
_R = RouteStatus

DEPLOYMENT_TABLE: StateTable[EndpointLifecycle] = StateTable(
    "deployment",
    initial=_E.PENDING,
    terminal=frozenset({_E.DESTROYED}),
    allowed={
        (_E.PENDING, _E.SCALING): "it was accepted",
        (_E.CREATED, _E.SCALING): "it was accepted",
        (_E.SCALING, _E.READY): "there are as many routes as wished",
        (_E.READY, _E.SCALING): "another number of routes is wished, or one is gone",
        (_E.READY, _E.DEPLOYING): "a new revision",
        (_E.SCALING, _E.DEPLOYING): "a new revision",
        (_E.DEPLOYING, _E.READY): "the new revision serves, or was given up",
        **{
            (state, _E.DESTROYING): "it was destroyed by a person, or what it waits for cannot be"
            for state in (_E.PENDING, _E.CREATED)
        },
        **{
            (state, _E.DESTROYING): "it was destroyed by a person"
            for state in (_E.SCALING, _E.READY, _E.DEPLOYING)
        },
        (_E.DESTROYING, _E.DESTROYED): "its routes are told to end",
    },
    words={
        _E.PENDING: "was accepted",
        _E.SCALING: "changes the number of its replicas",
        _E.READY: "needs no other number of replicas",
        _E.DEPLOYING: "rolls out a new revision",
        _E.DESTROYING: "is being taken down",
        _E.DESTROYED: "was taken down",
    },
)

ROUTE_TABLE: StateTable[RouteStatus] = StateTable(
    "route",
    initial=_R.PROVISIONING,
    terminal=frozenset({_R.TERMINATED}),
    allowed={
        (_R.PROVISIONING, _R.DEGRADED): "its session runs",
        (_R.PROVISIONING, _R.FAILED_TO_START): "its session ended, or was too slow to start",
        (_R.PROVISIONING, _R.TERMINATING): "it is not needed any more",
        (_R.DEGRADED, _R.HEALTHY): "probes are good",
        (_R.DEGRADED, _R.UNHEALTHY): "probes are bad",
        (_R.DEGRADED, _R.TERMINATING): "not needed any more, or its session ended",
        (_R.HEALTHY, _R.UNHEALTHY): "probes are bad",
        (_R.HEALTHY, _R.DEGRADED): "not probed for too long",
        (_R.HEALTHY, _R.TERMINATING): "not needed any more, or its session ended",
        (_R.UNHEALTHY, _R.HEALTHY): "probes are good again",
        (_R.UNHEALTHY, _R.DEGRADED): "not probed for too long",
        (_R.UNHEALTHY, _R.TERMINATING): "evicted, not needed any more, or its session ended",
        (_R.FAILED_TO_START, _R.TERMINATING): "what is left of it is stopped",
        (_R.TERMINATING, _R.TERMINATED): "its session has ended",
    },
    words={
        _R.PROVISIONING: "waits for its session to run",
        _R.HEALTHY: "is healthy",
        _R.UNHEALTHY: "is unhealthy",
        _R.DEGRADED: "runs, and is not probed",
        _R.TERMINATING: "is drained and stopped",
        _R.TERMINATED: "ended",
        _R.FAILED_TO_START: "failed to start",
    },
)

NOT_READY = "NOT_READY"
"""The word for a deployment that is to have replicas and of which none is healthy."""


def deployment_standing(status: EndpointLifecycle, wanted: int, healthy: int) -> str:
    """How a deployment stands, as people read it: READY means that no replica is to be made or
    taken away, also where none of those that are wished is healthy."""
    is_hollow = status is EndpointLifecycle.READY and wanted and not healthy
    return NOT_READY if is_hollow else status


PROBED = frozenset({_R.HEALTHY, _R.UNHEALTHY, _R.DEGRADED})
"""Routes whose session runs, so that they are probed."""
UP = PROBED | {_R.PROVISIONING}
"""Routes that count as replicas."""


class Unready(StrEnum):
    """The ways in which a replica is not healthy, in the order in which it passes through them."""

    PENDING = "pending"  # its session does not run yet
    STARTING = "starting"  # it was never healthy
    UNPROBED = "not probed"
    UNHEALTHY = "unhealthy"


def unready(status: RouteStatus, *, served: bool) -> Unready | None:
    """The way in which a route that counts as a replica is not healthy; None of any other.

    Args:
        served: whether it was ever healthy.
    """
    match status:
        case RouteStatus.PROVISIONING:
            return Unready.PENDING
        case RouteStatus.DEGRADED:
            return Unready.UNPROBED if served else Unready.STARTING
        case RouteStatus.UNHEALTHY:
            return Unready.UNHEALTHY
        case _:
            return None
