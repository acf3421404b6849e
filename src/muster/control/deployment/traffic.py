"""The services that are published: where requests may go (design: Deployments and routes)."""

from collections import Counter
from collections.abc import Mapping

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, DeploymentId, Route
from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.core.serving.traffic import Service, Target, TrafficView
from muster.core.states.deployment import DEPLOYMENT_TABLE, EndpointLifecycle, RouteStatus
from muster.serving.rollout import weights_of
from muster.serving.weights import of_replicas

_GETS_TRAFFIC = frozenset({RouteStatus.HEALTHY, RouteStatus.DEGRADED})
_GOING = frozenset({EndpointLifecycle.DESTROYING, EndpointLifecycle.DESTROYED})


def serves(route: Route) -> bool:
    """Whether requests may go to a route: it was found healthy, and its last completed probe was
    good. One that is not probed for too long keeps its traffic."""
    found = route.status in _GETS_TRAFFIC and route.healthy_since is not None
    return found and route.good is True and route.address is not None


def service_of(deployment: Deployment, routes: Routes) -> Service:
    """A deployment as proxies see it; a route that is drained has weight 0."""
    serving = [each for each in routes.of(deployment) if serves(each)]
    spec, rollout = deployment.spec, deployment.rollout
    wished = {} if rollout is None else weights_of(rollout, spec.update, deployment.replicas)
    weight = of_replicas(wished, Counter(each.revision for each in serving))
    drained = [
        each
        for each in routes.of(deployment)
        if each.status is RouteStatus.TERMINATING and each.address is not None
    ]
    owner, scale = deployment.owner, spec.scale
    return Service(
        id=deployment.id,
        name=deployment.name,
        host=spec.host,
        domain=owner.domain,
        project=owner.project,
        user=owner.user,
        public=spec.access.public,
        users=spec.access.users,
        projects=spec.access.projects,
        affinity=spec.affinity,
        drain_s=spec.drain,
        holds=scale is not None and scale.min == 0,
        targets=tuple(
            [_target(each, weight[each.revision]) for each in serving]
            + [_target(each, 0) for each in drained]
        ),
    )


def _target(route: Route, weight: int) -> Target:
    host, _, port = (route.address or "").rpartition(":")
    return Target(route=route.id, host=host, port=int(port), revision=route.revision, weight=weight)


TRAFFIC = "traffic"
"""The kind and the name of the event that tells of a change of what is published."""


class Traffic:
    """The published services, as of the last commit. They outlive the mirror, so that they stand
    while it is read anew."""

    def __init__(self) -> None:
        self._services: dict[DeploymentId, Service] = {}
        self._pending: dict[DeploymentId, Service | None] = {}
        self._routes: Routes | None = None
        self.version = 0
        """Grows with each change, also over restarts; 0 until something is known."""

    def follow(self, routes: Routes, live: Mapping[str, Deployment]) -> None:
        """Go on with a mirror that was just read."""
        self._routes, self._pending = routes, {}
        for gone in self._services.keys() - live.keys():
            del self._services[gone]

    def publish(self, deployment: Deployment, work: Work) -> None:
        """Have the deployment's present service published with the commit."""
        assert self._routes is not None, "modules declare before they are run"
        if deployment.status in _GOING:
            if deployment.id in self._services:
                self._pending[deployment.id] = None
                work.unit.tell(TRAFFIC, TRAFFIC, "CHANGED")
            return
        service = service_of(deployment, self._routes)
        if service != self._services.get(deployment.id):
            self._pending[deployment.id] = service
            work.unit.tell(TRAFFIC, TRAFFIC, "CHANGED")
        else:
            self._pending.pop(deployment.id, None)

    def committed(self, now: float) -> None:
        """Publish what the wake decided, now that it is stored."""
        pending, self._pending = self._pending, {}
        changed = False
        for id_, service in pending.items():
            if service is None:
                changed |= self._services.pop(id_, None) is not None
            else:
                changed = True
                self._services[id_] = service
        if changed or not self.version:
            self.version = max(self.version + 1, int(now * 1000))

    def view(self) -> TrafficView:
        """All that is published."""
        return TrafficView(version=self.version, services=tuple(self._services.values()))


class PublishTraffic(FollowingHandler[Deployment]):
    """Publishes a service in the commit that changed what it consists of."""

    name = "PublishTraffic"
    stage = Stage.TELL
    entity = Deployment
    statuses = frozenset(DEPLOYMENT_TABLE.live) | DEPLOYMENT_TABLE.terminal

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def follow(self, record: Deployment, work: Work) -> None:
        self._traffic.publish(record, work)
