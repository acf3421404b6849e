"""Deployments on which other work depends, or which it uses; and those that depend on others."""

from collections.abc import Collection, Iterable, Mapping
from urllib.parse import quote, urlsplit

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import (
    NOT_BEGUN,
    Deployment,
    DeploymentId,
    Route,
    waits_for,
)
from muster.control.deployment.lifecycle import DeploymentLifecycle
from muster.control.deployment.loads import Loads
from muster.control.engine.handler import FollowingHandler, Stage, TransitionStatus
from muster.control.engine.work import Move, Work
from muster.control.session.admission import Ended, find_dependencies, with_ids
from muster.control.session.cluster.known_deployments import (
    NO_SUCH_DEPLOYMENT,
    KnownDeployments,
)
from muster.control.session.cluster.state import ClusterState
from muster.core.errors import InvalidSpec, Problem
from muster.core.host_port import is_loopback
from muster.core.ids import IdKind
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.specs import Dependency, DependencyCondition
from muster.core.specs.deployment import DeploymentSpec
from muster.core.states.deployment import DEPLOYMENT_TABLE, EndpointLifecycle, RouteStatus
from muster.scheduling.policy.validators import NEVER, is_met, why_unmet
from muster.scheduling.workload import DependencyProgress, DependencyState
from muster.store.entity import Record
from muster.store.live import Live


class Dependents(KnownDeployments):
    """Tells how healthy deployments are, and where they are reached, to the work that depends on
    them; and follows the work on which deployments that have not begun depend."""

    def __init__(self, live: Live, routes: Routes, loads: Loads, cluster: ClusterState) -> None:
        self._live = live
        self._routes = routes
        self._loads = loads
        self._cluster = cluster
        self._waits_for: dict[DeploymentId, frozenset[str]] = {}
        cluster.know(self)
        tracker = cluster.dependencies
        for deployment in live.of(Deployment).values():
            progress = {id_: tracker.progress_now(id_) for id_ in waits_for(deployment)}
            self.wait(deployment, progress)

    # -- others that depend on deployments -----------------------------------------------------

    def find(self, owner: Owner, ref: str) -> tuple[str, DependencyProgress] | None:
        found = self._named(ref)
        if found is None or _why_not(found, owner) is not None:
            return None
        return found.id, self.progress(found.id)

    def why_not(self, owner: Owner, ref: str) -> str | None:
        return _why_not(self._named(ref), owner)

    def _named(self, ref: str) -> Deployment | None:
        deployments: Mapping[str, Deployment] = self._live.of(Deployment)
        is_id = IdKind.DEPLOYMENT.begins(ref)
        return deployments.get(ref) if is_id else self._routes.called(ref)

    def progress(self, id_: str) -> DependencyProgress:
        deployments: Mapping[str, Deployment] = self._live.of(Deployment)
        deployment = deployments.get(id_)
        if deployment is None:
            return DependencyProgress(DependencyState.ENDED_OTHERWISE, 0.0)
        if deployment.is_going:
            since = deployment.status_changed_at
            return DependencyProgress(DependencyState.ENDED_OTHERWISE, since)
        healthy = _healthy(self._routes.of(deployment))
        wanted = _wanted(deployment)
        if wanted and len(healthy) >= wanted:
            since = sorted(_healthy_since(each) for each in healthy)[wanted - 1]
            return DependencyProgress(DependencyState.HEALTHY, since)
        if not wanted and deployment.spec.scale is not None and deployment.status not in NOT_BEGUN:
            return DependencyProgress(DependencyState.HEALTHY, deployment.created_at)
        return DependencyProgress(DependencyState.NOT_HEALTHY, deployment.created_at)

    def replicas(self, id_: str) -> tuple[int, int]:
        deployments: Mapping[str, Deployment] = self._live.of(Deployment)
        deployment = deployments.get(id_)
        if deployment is None:
            return 0, 0
        return len(_healthy(self._routes.of(deployment))), _wanted(deployment)

    # -- others that use deployments -----------------------------------------------------------

    def problem_with(self, owner: Owner, name: str, group: str, now: float) -> str | None:
        why_not = _why_not(self._routes.called(name), owner)
        if why_not is not None:
            return why_not
        urls = self._loads.urls(now)
        if not urls:
            return (
                "it has no address: no proxy reports to the controller. `muster up` starts one "
                "beside it, and `muster proxy` one beside `muster controller`"
            )
        hosts = [each.host for each in self._live.agents.values() if each.group == group]
        if hosts and all(_nearest(urls, host) is None for host in hosts):
            return (
                "it has no address that machines of the group reach: the proxy listens on "
                "loopback alone. `muster proxy --host` has it listen on another address"
            )
        return None

    def url(self, name: str, host: str, now: float) -> str | None:
        proxy = _nearest(self._loads.urls(now), host)
        return None if proxy is None else f"{proxy}/{quote(name, safe='')}"

    # -- deployments that depend on others -----------------------------------------------------

    def resolved(
        self, known: Deployment | None, owner: Owner, spec: DeploymentSpec, ended: Ended
    ) -> tuple[DeploymentSpec, Mapping[str, DependencyProgress]]:
        """The spec with the ids of the work on which it depends, and how far that has come. One
        that has begun depends on nothing any more, so what its spec names need not be there.

        Raises:
            InvalidSpec: there is no such work, or the dependency can never be met.
        """
        own = (None if known is None else known.id, spec.name)
        for index, each in enumerate(spec.after):
            if each.is_on_deployment and (each.on in own or each.called in own):
                expected = "a deployment does not wait for itself: leave it out"
                raise InvalidSpec([Problem(f"after.{index}.on", repr(each.called), expected)])
        if known is not None and known.status not in NOT_BEGUN:
            if [*map(_said, known.spec.after)] == [*map(_said, spec.after)]:
                spec = spec.model_copy(update={"after": known.spec.after})
            return spec, {}
        found = find_dependencies(self._cluster, owner, spec.after, ended)
        if found:
            spec = spec.model_copy(update={"after": with_ids(spec.after, found)})
        for index, each in enumerate(spec.after):
            if known is not None and self._waits_on(each.on, known.id):
                expected = "this one waits for the deployment already: leave one of the two out"
                raise InvalidSpec([Problem(f"after.{index}.on", repr(each.called), expected)])
        return spec, dict(found)

    def _waits_on(self, id_: str, wanted: DeploymentId) -> bool:
        """Whether a deployment waits for another one, or for one that does."""
        looked_at, left = set[str](), [id_]
        while left:
            of = self._waits_for.get(DeploymentId(left.pop()), frozenset())
            if wanted in of:
                return True
            left += of - looked_at
            looked_at |= of
        return False

    def wait(self, deployment: Deployment, progress: Mapping[str, DependencyProgress]) -> None:
        """Have the work followed on which a deployment depends, while it has not begun.

        Args:
            progress: of that work, by id.
        """
        tracker, wanted = self._cluster.dependencies, frozenset(progress)
        for id_ in wanted:
            tracker.follow(id_, progress[id_])
        self.wait_no_more(deployment)
        if wanted:
            self._waits_for[deployment.id] = wanted

    def wait_no_more(self, deployment: Deployment) -> None:
        """Follow no work any more for the sake of a deployment."""
        before = self._waits_for.pop(deployment.id, frozenset())
        self._cluster.dependencies.follow_no_more(before)

    def waiting_for(self, news: Collection[str]) -> Iterable[Record]:
        deployments = self._live.of(Deployment)
        return [
            deployment
            for id_, wanted in self._waits_for.items()
            if not wanted.isdisjoint(news) and (deployment := deployments.get(id_)) is not None
        ]


class GiveUpPending(FollowingHandler[Deployment]):
    """Takes a deployment down that waits for what can never be, as a job that does ends."""

    name = "GiveUpPending"
    entity = Deployment
    statuses = NOT_BEGUN

    def __init__(self, cluster: ClusterState, lifecycle: DeploymentLifecycle) -> None:
        self._cluster = cluster
        self._lifecycle = lifecycle

    def follow(self, record: Deployment, work: Work) -> None:
        for why in why_not_begun(record, self._cluster):
            if why.code in NEVER:
                to = TransitionStatus(EndpointLifecycle.DESTROYING)
                move = Move(self.name, reason=why)
                self._lifecycle.move(work, [record], NOT_BEGUN, to, move)
                return


class TellDependents(FollowingHandler[Deployment]):
    """Tells the work that depends on a deployment of its changes; and has one that has begun depend
    on nothing any more."""

    name = "TellDependents"
    stage = Stage.DERIVE
    entity = Deployment
    statuses = frozenset(DEPLOYMENT_TABLE.live) | DEPLOYMENT_TABLE.terminal

    def __init__(self, dependents: Dependents, cluster: ClusterState) -> None:
        self._dependents = dependents
        self._cluster = cluster

    def follow(self, record: Deployment, work: Work) -> None:
        if record.status not in NOT_BEGUN:
            self._dependents.wait_no_more(record)
        self._cluster.deployment_changed(record.id)


def _said(dependency: Dependency) -> tuple[str, DependencyCondition]:
    """A dependency as it was written."""
    return dependency.called, dependency.condition


def why_not_begun(deployment: Deployment, cluster: ClusterState) -> list[Reason]:
    """Why a deployment that has not begun does not begin yet."""
    reasons = []
    for each in deployment.spec.after:
        state = cluster.dependencies.state(deployment.owner, each)
        if not is_met(each, state):
            reasons.append(why_unmet(each, state, cluster.deployments.replicas(each.on)))
    return reasons


def _why_not(deployment: Deployment | None, owner: Owner) -> str | None:
    """Why work of the owner's neither uses a deployment nor waits for it; None if it may."""
    if deployment is None:
        return NO_SUCH_DEPLOYMENT
    if not takes_requests(deployment, owner):
        return "this deployment takes no requests of yours: its owner can open it by its `access`"
    if deployment.is_going:
        return "this deployment is being taken down: hand it in again once it is gone"
    return None


def takes_requests(deployment: Deployment, owner: Owner) -> bool:
    """Whether a deployment takes requests of the owner's: it is the user's own, or public, or its
    ``access`` names the user or the project."""
    its, access = deployment.owner, deployment.spec.access
    if access.public:
        return True
    if its.domain != owner.domain:
        return False
    return its.user == owner.user or owner.user in access.users or owner.project in access.projects


def _wanted(deployment: Deployment) -> int:
    """How many replicas have to be healthy: as many as are wished, or of a number that follows load
    the least; a deployment that serves with none by holding requests needs none."""
    scale = deployment.spec.scale
    return deployment.replicas if scale is None else scale.min


def _healthy(routes: Iterable[Route]) -> list[Route]:
    return [route for route in routes if route.status is RouteStatus.HEALTHY]


def _healthy_since(route: Route) -> float:
    return route.healthy_since or route.status_changed_at


def _nearest(urls: Iterable[str], host: str) -> str | None:
    """The proxy for programs on the machine that is reached at ``host``: one on loopback is for
    those alone that are reached by loopback themselves."""
    here = is_loopback(host)
    urls = [*urls]
    on_loopback = [url for url in urls if is_loopback(urlsplit(url).hostname or "")]
    elsewhere = [url for url in urls if url not in on_loopback]
    if here and on_loopback:
        return on_loopback[0]
    return elsewhere[0] if elsewhere else None
