"""The services that are published: where requests may go (design: Deployments and routes)."""

import math
from collections import Counter
from collections.abc import Collection, Mapping

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, DeploymentId, Route
from muster.control.deployment.publishing.effects import PublishServices
from muster.control.deployment.standing import in_traffic, percent_wished
from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.core.host_port import parted
from muster.core.serving.traffic import Target, TrafficService, TrafficView
from muster.core.states.deployment import DEPLOYMENT_TABLE, RouteStatus
from muster.serving.weights import of_replicas


def service_of(
    deployment: Deployment, routes: Routes, own_hosts: Collection[str] = ()
) -> TrafficService:
    """A deployment as proxies see it; a route that is drained has weight 0. A host that is one of
    the proxies' own is left out: whoever had it would get all requests that come by path."""
    serving, spec = in_traffic(deployment, routes, math.inf), deployment.spec
    in_all = Counter(each.revision for each in serving)
    weight = of_replicas(percent_wished(deployment), in_all)
    drained = [
        each
        for each in routes.of(deployment)
        if each.status is RouteStatus.TERMINATING
        and each.address is not None
        and routes.listens(each)
    ]
    owner, scale, affinity = deployment.owner, spec.scale, spec.affinity
    return TrafficService(
        id=deployment.id,
        name=deployment.name,
        host=None if spec.host in own_hosts else spec.host,
        domain=owner.domain,
        project=owner.project,
        user=owner.user,
        public=spec.access.public,
        users=spec.access.users,
        projects=spec.access.projects,
        affinity=affinity.header if affinity else None,
        affinity_cookie=affinity.cookie if affinity else None,
        secret=deployment.secret,
        drain_s=spec.drain,
        holds=scale is not None and scale.min == 0,
        targets=tuple(
            [_target(each, weight[each.revision]) for each in serving]
            + [_target(each, 0) for each in drained]
        ),
    )


def _target(route: Route, weight: int) -> Target:
    host, port = parted(route.address or "")
    return Target(route=route.id, host=host, port=int(port), revision=route.revision, weight=weight)


TRAFFIC = "traffic"
"""The kind and the name of the event that tells of a change of what is published."""


class Traffic:
    """The published services, as of the last commit. They outlive the mirror, so that they stand
    while it is read anew.

    Args:
        tells: whether there are balancers to be told.
        own_hosts: see ``service_of``.
    """

    def __init__(self, *, tells: bool, own_hosts: Collection[str] = ()) -> None:
        self._tells = tells
        self._own_hosts = own_hosts
        self._services: dict[DeploymentId, TrafficService] = {}
        self._pending: dict[DeploymentId, TrafficService | None] = {}
        self._unsent = True
        self._routes: Routes | None = None
        self._ordered = 0
        self.version = 0
        """Grows with each change, also over restarts."""

    def follow(self, routes: Routes, now: float, live: Mapping[str, Deployment]) -> None:
        """Go on with a mirror that was just read."""
        self._routes = routes
        # The last wake may not have been stored: balancers were told of what it decided, or not of
        # what it was to tell.
        self._pending, self._unsent = {}, True
        services = {
            each.id: service_of(each, routes, self._own_hosts)
            for each in live.values()
            if not each.is_going
        }
        if services != self._services or not self.version:
            self._services = services
            self.version = max(self.version + 1, int(now * 1000))

    def publish(self, deployment: Deployment, work: Work) -> None:
        """Have the deployment's present service published with the commit."""
        assert self._routes is not None, "modules declare before they are run"
        if deployment.is_going:
            if self._pending.get(deployment.id, self._services.get(deployment.id)) is not None:
                self._pending[deployment.id] = None
                self._unsent = True
                work.unit.tell(TRAFFIC, TRAFFIC, "CHANGED")
            return
        service = service_of(deployment, self._routes, self._own_hosts)
        published = self._services.get(deployment.id)
        if service == self._pending.get(deployment.id, published):
            return
        self._unsent = True
        self._pending[deployment.id] = service
        work.unit.tell(TRAFFIC, TRAFFIC, "CHANGED")

    @property
    def is_to_be_told(self) -> bool:
        """Whether balancers are to be told of services that differ."""
        return self._unsent and self._tells

    def order(self, now: float) -> PublishServices:
        """The effect by which they are told of all services, as of this wake."""
        self._unsent = False
        self._ordered = max(self._ordered + 1, int(now * 1000))
        services = {**self._services, **self._pending}
        there = tuple(each for each in services.values() if each is not None)
        return PublishServices(self._ordered, there)

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
        if changed:
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
