"""Deployments and their routes, as the control plane composes them."""

import socket
from collections.abc import Sequence

from muster.control.agent.probe_reports import ProbeReports
from muster.control.deployment.book import Heard, Routes
from muster.control.deployment.dependents import Dependents, GiveUpPending, TellDependents
from muster.control.deployment.disruption import ReplicaGuard
from muster.control.deployment.entity import DEPLOYMENT, ROUTE, Deployment, Route
from muster.control.deployment.handlers import (
    CheckPendingDeployment,
    CheckReplicaDeployment,
    DestroyingDeployment,
    ReconcileDeployment,
    RolloutDeployment,
    RouteChanges,
    ScalingDeployment,
)
from muster.control.deployment.health_check import HealthCheckRoute
from muster.control.deployment.lifecycle import DeploymentLifecycle, RouteLifecycle
from muster.control.deployment.load_reports import LoadTold
from muster.control.deployment.loads import Loads
from muster.control.deployment.outages import TellOutages
from muster.control.deployment.owned import OwnedDeployments
from muster.control.deployment.port_watch import WatchPorts
from muster.control.deployment.probes import ProbesByAgents, ProbesTold, WatchRoutes
from muster.control.deployment.probing.performer import RouteProber
from muster.control.deployment.publishing.performer import TrafficPublisher
from muster.control.deployment.publishing.settings import load_settings
from muster.control.deployment.requests import DeploymentRequests
from muster.control.deployment.route_handlers import (
    FollowSessions,
    ProvisioningRoute,
    RouteEviction,
    RunningRoute,
    ServiceDiscoverySync,
    TakeDownRoutes,
    TerminatingRoute,
)
from muster.control.deployment.scaling import ScaleByLoad
from muster.control.deployment.sessions import ReplicaVariables
from muster.control.deployment.sight import Sight
from muster.control.deployment.telling import DeploymentTeller
from muster.control.deployment.traffic import PublishTraffic, Traffic
from muster.control.engine.declared import Declared
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import Context, EntityModule
from muster.control.engine.work import Work
from muster.control.notice.ends import Writer
from muster.control.session.cluster.state import ClusterState
from muster.control.session.ended_specs import EndedSpecs
from muster.control.session.lifecycle import SessionLifecycle
from muster.control.session.requests import SessionRequests
from muster.core.serving.probes import ProbeResult
from muster.core.serving.traffic import LoadReport
from muster.serving.load import LoadMemory


class DeploymentModule(EntityModule):
    """Declares deployments and routes, and what is heard of them.

    Raises:
        InvalidSpec: the operators' settings of balancers are wrong.
    """

    entities = (DEPLOYMENT, ROUTE)
    after = ("notice", "recovery")

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._heard: dict[str, Heard] = {}
        self._sight = Sight()
        self.memories: dict[str, LoadMemory] = {}
        """The loads of deployments whose number follows them, by id."""
        settings = load_settings(surroundings.settings)
        has_others = settings.haproxy is not None or settings.etcd is not None
        self._loads = Loads(has_others=has_others)
        # At hand-in alone: a host that a deployment has already stays with the balancers, and the
        # proxy leaves out the name of its own machine.
        self._not_to_be_had = settings.hosts | {socket.gethostname().lower()}
        self._domain = settings.domain
        self._traffic = Traffic(tells=has_others, own_hosts=settings.hosts)
        self._publisher = TrafficPublisher(settings, self._loaded, surroundings.in_charge)
        self.performers = (RouteProber(self._probed), self._publisher)

    def _probed(self, results: Sequence[ProbeResult]) -> None:
        self.surroundings.report(ProbesTold(tuple(results)))

    def _loaded(self, report: LoadReport) -> None:
        self.surroundings.report(LoadTold(report))

    def declare(self, context: Context) -> Declared:
        parts, live = context.parts, context.store.live
        routes = Routes(live, self._heard, self._sight)
        self._loads.since = self._loads.since or repr(context.clock.now())
        self._loads.keep(live.of(Route).values())
        self._traffic.follow(routes, context.clock.now(), live.of(Deployment))
        teller = DeploymentTeller(parts[Writer])
        of_deployments = DeploymentLifecycle(routes)
        of_routes = RouteLifecycle(teller, self._loads)
        changes = RouteChanges(of_routes)
        sessions = parts[SessionLifecycle]
        cluster = parts[ClusterState]
        cluster.guard = ReplicaGuard(routes, of_routes)
        cluster.service_variables = ReplicaVariables(routes)
        dependents = Dependents(live, routes, self._loads, cluster)
        parts[ProbeReports].listen(ProbesByAgents(routes))
        requests = DeploymentRequests(
            routes,
            of_deployments,
            cluster,
            parts[EndedSpecs],
            dependents,
            self._not_to_be_had,
            self._domain,
        )
        return Declared(
            lifecycles=[of_deployments, of_routes],
            handlers=[
                TakeDownRoutes(of_routes),
                # Decisions about deployments are made once it is known how their routes are.
                RunningRoute(of_routes),
                HealthCheckRoute(routes),
                RouteEviction(routes, of_routes),
                ScaleByLoad(routes, self._loads, requests, self.memories),
                GiveUpPending(cluster, of_deployments),
                CheckPendingDeployment(cluster),
                CheckReplicaDeployment(routes, cluster),
                ReconcileDeployment(routes, cluster),
                ScalingDeployment(routes, changes, cluster),
                RolloutDeployment(routes, changes, self._loads, teller, cluster),
                ProvisioningRoute(routes, of_routes, parts[SessionRequests]),
                TerminatingRoute(sessions, self._loads),
                FollowSessions(routes),
                DestroyingDeployment(routes),
                TellDependents(dependents, cluster),
                PublishTraffic(self._traffic),
                TellOutages(routes, teller, live.of(Deployment).values()),
                ServiceDiscoverySync(self._traffic),
                WatchPorts(routes),
                WatchRoutes(routes),
            ],
            offers=[
                routes,
                requests,
                OwnedDeployments(requests, routes),
                dependents,
                self._loads,
                self._traffic,
                self._publisher,
            ],
        )

    def sweep(self, work: Work, since: float) -> None:
        """Have what is published compared with what is healthy."""
        for route in work.live.of(Route).values():
            work.mark(route)
        self._loads.keep(work.live.of(Route).values())
        for gone in self.memories.keys() - work.live.of(Deployment).keys():
            del self.memories[gone]

    def committed(self, work: Work) -> None:
        self._traffic.committed(work.now)
