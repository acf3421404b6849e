"""Live deployments and their load, as people see them."""

from collections.abc import Iterable, Iterator

from msgspec.structs import asdict, replace

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.loads import Loads, Total
from muster.control.deployment.queries import rollout_view, unready_counts
from muster.control.engine.module import Parts
from muster.control.session.explaining.spec_warnings import spec_warnings
from muster.core.reasons import Reason
from muster.core.reasons.of_deployments import AccessAtProxyAlone, AccessUnknown
from muster.core.serving.port_holders import BY_NOTHING, PORTS
from muster.core.states import AgentStatus
from muster.core.states.deployment import UP, RouteStatus
from muster.core.views.base import ReasonView
from muster.core.views.deployments import (
    DeploymentDetail,
    DeploymentView,
    LoadView,
    RouteLoadView,
    TopView,
)
from muster.core.views.projection import view_of
from muster.store.accounts import Accounts
from muster.store.live import Live

SEVERAL = 2
"""Users from whom each other's deployments are to be kept."""
MOST_UNKNOWN = 5
"""Names that a warning tells."""


def live_deployment(deployment: Deployment, live: Live, parts: Parts) -> DeploymentView:
    """A deployment of the mirror."""
    mine, rollout = parts[Routes].of(deployment), None
    if deployment.rollout is not None:
        rollout = rollout_view(
            deployment.rollout, deployment.spec, deployment.replicas, deployment.revisions
        )
    return view_of(
        DeploymentView,
        deployment,
        up=sum(route.status in UP for route in mine),
        healthy=sum(route.status is RouteStatus.HEALTHY for route in mine),
        unready=unready_counts((route.status, route.good_at is not None, 1) for route in mine),
        rollout=rollout,
    )


def accepted_deployment(deployment: Deployment, live: Live, parts: Parts) -> DeploymentView:
    """The answer to a deployment that is handed in."""
    found = [
        *spec_warnings(deployment.spec),
        *_unknown_access(deployment, live.accounts),
        *_access_at_proxy_alone(deployment, live),
    ]
    warnings = tuple(map(ReasonView.of, found))
    return replace(live_deployment(deployment, live, parts), warnings=warnings)


def _unknown_access(deployment: Deployment, accounts: Accounts) -> Iterator[Reason]:
    """That nobody has some of the names which may send requests."""
    domain, access = deployment.owner.domain, deployment.spec.access
    unknown = [f"user {name}" for name in access.users if (domain, name) not in accounts.users]
    unknown += [
        f"project {name}" for name in access.projects if (domain, name) not in accounts.projects
    ]
    if unknown:
        more = len(unknown) - MOST_UNKNOWN
        named = ", ".join(unknown[:MOST_UNKNOWN]) + (f" and {more} more" if more > 0 else "")
        yield AccessUnknown(who=named, domain=domain)


def _access_at_proxy_alone(deployment: Deployment, live: Live) -> Iterator[Reason]:
    """That other users reach its replicas around the proxy, where there are others."""
    if deployment.spec.access.public or len(live.accounts.users) < SEVERAL:
        return
    there = [
        agent
        for agent in live.agents.values()
        if agent.group == deployment.group and agent.status is AgentStatus.ALIVE
    ]
    unkept = sum(agent.attributes.get(PORTS) == BY_NOTHING for agent in there)
    if unkept:
        yield AccessAtProxyAlone(open=unkept, machines=len(there), group=deployment.group)


def load_of(routes: Iterable[Route], loads: Loads, now: float, held: int = 0) -> LoadView:
    """The load of these routes together, and of requests that are ``held`` for one."""
    whole, recent = Total(), Total()
    in_flight, rate = 0, 0.0
    for route in routes:
        if (total := loads.of(route)) is not None:
            whole.plus(total)
            recent.plus(loads.recent(route, now))
        in_flight += loads.in_flight(route)
        rate += loads.rate(route)
    return LoadView(
        in_flight=in_flight,
        held=held,
        rate=rate,
        requests=whole.requests,
        failures=whole.failures,
        recent=recent.requests,
        recent_failures=recent.failures,
        p50_s=recent.latency_s(0.5),
        p99_s=recent.latency_s(0.99),
    )


def deployment_load(found: DeploymentView, live: Live, parts: Parts, now: float) -> LoadView:
    """The load of a deployment; it has none once it is over."""
    held = parts[Loads].held(found.id, now)
    deployment = live.of(Deployment).get(found.id)
    routes = () if deployment is None else parts[Routes].of(deployment)
    return load_of(routes, parts[Loads], now, held)


def top_of(found: DeploymentDetail, live: Live, parts: Parts, now: float) -> TopView:
    """The load of a deployment, in all and by replica."""
    load = deployment_load(found, live, parts, now)
    routes = live.of(Route)
    rows = []
    for view in found.routes:
        route = routes.get(f"{found.id}/{view.id}")
        of_route = load_of([] if route is None else [route], parts[Loads], now)
        rows.append(RouteLoadView(route=view, load=of_route))
    fields = asdict(found)
    deployment = DeploymentView(
        **{key: fields[key] for key in DeploymentView.__struct_fields__ if key in fields}
    )
    return TopView(deployment=deployment, load=load, routes=tuple(rows))
