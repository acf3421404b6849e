"""Live deployments and their load, as people see them."""

from msgspec.structs import asdict

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.loads import Loads, Total
from muster.control.deployment.queries import rollout_view
from muster.control.engine.module import Parts
from muster.core.serving.traffic import quantile_s
from muster.core.states.deployment import UP, RouteStatus
from muster.core.views.base import OwnerView, ReasonView
from muster.core.views.deployments import (
    DeploymentDetail,
    DeploymentView,
    LoadView,
    RouteLoadView,
    TopView,
)
from muster.store.live import Live


def live_deployment(deployment: Deployment, live: Live, parts: Parts) -> DeploymentView:
    """A deployment of the mirror."""
    mine = parts[Routes].of(deployment)
    return DeploymentView(
        id=deployment.id,
        name=deployment.name,
        host=deployment.host,
        group=deployment.group,
        owner=OwnerView.of(deployment.owner),
        status=deployment.status,
        status_changed_at=deployment.status_changed_at,
        created_at=deployment.created_at,
        finished_at=deployment.finished_at,
        revision=deployment.revision,
        stable=deployment.stable,
        replicas=deployment.replicas,
        up=sum(route.status in UP for route in mine),
        healthy=sum(route.status is RouteStatus.HEALTHY for route in mine),
        rollout=rollout_view(deployment.rollout, deployment.spec, deployment.replicas),
        reason=None if deployment.reason is None else ReasonView.of(deployment.reason),
    )


def top_of(found: DeploymentDetail, live: Live, loads: Loads, now: float) -> TopView:
    """The load of a deployment, in all and by replica."""
    routes = live.of(Route)
    rows = []
    whole = Total()
    in_flight, rate = 0, 0.0
    for view in found.routes:
        route = routes.get(f"{found.id}/{view.id}")
        total = None if route is None else loads.of(route)
        load = LoadView()
        if route is not None and total is not None:
            load = _load(total, loads.in_flight(route), loads.rate(route))
            whole.requests += total.requests
            whole.failures += total.failures
            whole.latencies = [a + b for a, b in zip(whole.latencies, total.latencies, strict=True)]
            in_flight, rate = in_flight + load.in_flight, rate + load.rate
        rows.append(RouteLoadView(route=view, load=load))
    fields = asdict(found)
    deployment = DeploymentView(
        **{key: fields[key] for key in DeploymentView.__struct_fields__ if key in fields}
    )
    load = _load(whole, in_flight, rate, loads.held(found.id, now))
    return TopView(deployment=deployment, load=load, routes=tuple(rows))


def _load(total: Total, in_flight: int, rate: float, held: int = 0) -> LoadView:
    latencies = tuple(total.latencies)
    return LoadView(
        in_flight=in_flight,
        held=held,
        rate=rate,
        requests=total.requests,
        failures=total.failures,
        p50_s=quantile_s(latencies, 0.5),
        p99_s=quantile_s(latencies, 0.99),
    )
