"""The change of its replicas that is due for a deployment of which nothing is rolled out."""

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment
from muster.control.deployment.lifecycle import may_start
from muster.control.deployment.standing import (
    REPLACEMENT_WAIT_S,
    replicas,
    session_of,
    waits_for_room,
)
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.explanation import waits_for_slice
from muster.core.states.deployment import RouteStatus
from muster.serving.replicas import Change, level
from muster.store.live import Live


def change(
    deployment: Deployment, routes: Routes, live: Live, cluster: ClusterState, now: float
) -> Change:
    """The change that is due now for a deployment of which nothing is rolled out."""
    wanted = deployment.replicas
    there = replicas(deployment, routes, live, now)
    spared = 0
    if any(each.misplaced and each.is_up for each in there):
        without_room = _without_room(deployment, routes, live, cluster, now)
        spared = deployment.spec.bearable(wanted) if without_room else 0
    disruptable = deployment.spec.disruptable(wanted)
    wished = level(wanted, there, deployment.stable, disruptable, spared)
    if may_start(deployment, now) and not is_refused(deployment, routes):
        return wished
    return Change(0, wished.remove)


def _without_room(
    deployment: Deployment, routes: Routes, live: Live, cluster: ClusterState, now: float
) -> bool:
    """Whether a replacement has waited for room for a while, and no pool makes a machine for it."""
    for route in routes.of(deployment):
        if now < route.created_at + REPLACEMENT_WAIT_S or not waits_for_room(route, live):
            continue
        session = session_of(route, live)
        if session is None or not waits_for_slice(cluster, session, now):
            return True
    return False


def is_refused(deployment: Deployment, routes: Routes) -> bool:
    """Whether a quota refuses sessions of the deployment, so that no further routes are made."""
    return any(
        route.status is RouteStatus.PROVISIONING and route.reason is not None
        for route in routes.of(deployment)
    )


def differs(wished: Change) -> bool:
    """Whether there is anything to do."""
    return bool(wished.create or wished.remove)
