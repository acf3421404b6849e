"""Requests of people about deployments: functions of one wake's work that refuse before they change
anything."""

from collections.abc import Collection

from muster.control.deployment.book import Routes
from muster.control.deployment.bounds import must_be_bounded
from muster.control.deployment.dependents import Dependents
from muster.control.deployment.entity import (
    NOT_BEGUN,
    Deployment,
    DeploymentId,
    stored_bytes,
)
from muster.control.deployment.lifecycle import (
    DeploymentLifecycle,
    judge_starts_anew,
    starts_left,
    tells_of_starts,
)
from muster.control.deployment.revisions import Revision, kept, with_probe
from muster.control.engine.handler import TransitionStatus
from muster.control.engine.work import Move, Work
from muster.control.session.admission import (
    NONE_ENDED,
    Ended,
    admit_spec,
    check_priority,
    check_uses,
    check_workdirs,
)
from muster.control.session.cluster.state import ClusterState
from muster.control.session.ended_specs import EndedSpecs
from muster.core.errors import Conflict, InvalidSpec, NotFound
from muster.core.ids import IdKind
from muster.core.owner import Owner, Principal
from muster.core.reasons import Reason
from muster.core.reasons.of_deployments import (
    DeploymentHandedIn,
    DeploymentScaledBy,
    RolloutBegun,
    RolloutPausedBy,
    RolloutResumedBy,
    RolloutUndoneBy,
)
from muster.core.reasons.of_sessions import Cancelled
from muster.core.results import SchedulingResult
from muster.core.serving.hosts import HostRule
from muster.core.specs.deployment import DeploymentSpec
from muster.core.states.deployment import DEPLOYMENT_TABLE, EndpointLifecycle
from muster.serving.rollout import Rollout
from muster.store.tokens import new_secret

PHASE = "Request"
MAX_DEPLOYMENTS = 10_000
"""Live deployments of a cluster."""
_E = EndpointLifecycle


class DeploymentRequests:
    """Requests about live deployments; those that are over are read from SQL.

    Args:
        cluster: the quotas of owners.
        dependents: the work on which deployments depend.
        ended_specs: pays for the specs of ended work.
        own_hosts: names of the balancers themselves, which no deployment may have.
        domain: that of the cluster's deployments, below which each may have its own name.
    """

    def __init__(
        self,
        routes: Routes,
        lifecycle: DeploymentLifecycle,
        cluster: ClusterState,
        ended_specs: EndedSpecs,
        dependents: Dependents,
        own_hosts: Collection[str] = (),
        domain: str | None = None,
    ) -> None:
        self._routes = routes
        self._cluster = cluster
        self._ended_specs = ended_specs
        self._dependents = dependents
        self._lifecycle = lifecycle
        self._own_hosts = own_hosts
        self._domain = domain

    def apply(
        self,
        work: Work,
        principal: Principal,
        spec: DeploymentSpec,
        ended: Ended = NONE_ENDED,
        *,
        new: bool = False,
    ) -> Deployment:
        """Make a deployment, or change the one of this name.

        Args:
            ended: the ended work among its dependencies.
            new: whether there must be none yet.

        Raises:
            NotFound: no such group.
            InvalidSpec: a working directory lies outside the group's workspaces; or the host is
                none that the project may use, and not that of the deployment; or its priority; or
                work on which it depends before it begins, or a deployment that it uses.
            Conflict: the name or the host is another's, or is taken (``new``); the project is
                another; or it would be more than a user may have.
        """
        check_workdirs(work.live.group(spec.group), [spec])
        known = self._routes.called(spec.name)
        if known is not None and (new or not principal.may_change(known.owner)):
            if principal.may_see(known.owner):
                raise Conflict(
                    f"there is a deployment {spec.name!r} already: choose another name, because "
                    "requests reach a deployment by it"
                )
            raise Conflict(
                f"the name {spec.name!r} is not free: choose another, because names of deployments "
                "are one for the whole cluster"
            )
        if known is not None and spec.project not in (None, known.owner.project):
            raise Conflict(
                f"deployment {spec.name!r} counts for project {known.owner.project}, which cannot "
                "be changed: take it down first, or choose another name"
            )
        owner = principal.owner if known is None else known.owner
        if known is None or spec.priority > known.spec.priority:
            check_priority(work.live, self._cluster, principal, owner, spec)
        if spec.host is not None and (known is None or spec.host != known.host):
            self._must_be_free(work, principal, owner, spec.name, spec.host)
        most = spec.replicas if spec.scale is None else spec.scale.max
        must_be_bounded(work, owner, known, most)
        if known is None or known.spec.uses != spec.uses:
            check_uses(self._cluster, owner, spec.group, [spec], work.now)
        spec, progress = self._dependents.resolved(known, owner, spec, ended)
        if known is None:
            made = self._make(work, principal, spec)
            self._dependents.wait(made, progress)
            _tell(work, made, DeploymentHandedIn(by=principal.owner.user, revision=1))
            return made
        if known.is_going:
            raise Conflict(f"deployment {spec.name!r} is being taken down: wait until it is gone")
        before, replicas = known.spec, known.replicas
        self._must_fit(work, known, spec)
        self._change(work, principal, known, spec)
        self._dependents.wait(known, progress)
        if changed := _changed(before, spec, replicas, known.replicas):
            by = principal.owner.user
            _tell(work, known, DeploymentHandedIn(by=by, revision=known.revision, changed=changed))
        return known

    def scale(self, work: Work, principal: Principal, id_: str, replicas: int) -> Deployment:
        """Wish another number of replicas.

        Raises:
            NotFound: no such live deployment of the principal's.
            Conflict: its number follows load, which would undo the wish within seconds; or it would
                be more than a user may have.
        """
        deployment = self._mine(work, principal, id_)
        if (scale := deployment.spec.scale) is not None:
            raise Conflict(
                f"the number of {deployment.name}'s replicas follows load, from {scale.min} to "
                f"{scale.max}: hand it in with another scale.min or scale.max, or without scale"
            )
        must_be_bounded(work, deployment.owner, deployment, replicas)
        deployment.spec = deployment.spec.with_replicas(replicas)
        before = deployment.replicas
        self.set_replicas(work, deployment, replicas)
        if replicas != before:
            by = principal.owner.user
            _tell(work, deployment, DeploymentScaledBy(by=by, before=before, after=replicas))
        _rewrite(work, deployment)
        return deployment

    def set_replicas(self, work: Work, deployment: Deployment, replicas: int) -> None:
        """Wish another number of replicas, from now on."""
        if replicas != deployment.replicas:
            deployment.replicas = replicas
            deployment.scaled_at = work.now
            judge_starts_anew(deployment)
            work.unit.touch(deployment)
            work.mark(deployment)

    def undo(
        self, work: Work, principal: Principal, id_: str, number: int | None = None
    ) -> Deployment:
        """Go back to a revision: the one that serves while another is rolled out or was given up,
        else the one before; or to ``number``.

        Raises:
            NotFound: no such live deployment of the principal's, or no such revision is kept.
            Conflict: there is none to go back to.
        """
        deployment = self._mine(work, principal, id_)
        if number is None:
            number = deployment.stable
            if deployment.stable == deployment.revision:
                before = [each.number for each in deployment.revisions if each.number < number]
                if not before:
                    raise Conflict(f"{deployment.name} has no revision before {number}")
                number = before[-1]
        revision = deployment.numbered(number)
        if revision is None:
            known = ", ".join(str(each.number) for each in deployment.revisions)
            raise NotFound(f"{deployment.name} has no revision {number}; kept are {known}")
        spec = deployment.spec.with_template(revision.template)
        if (probe := deployment.probe_of(number)) != spec.probe:
            spec = spec.model_copy(update={"probe": probe})
        self._must_fit(work, deployment, spec)
        was, tried = deployment.revision, deployment.rollout
        self._change(work, principal, deployment, spec, of=number)
        if (deployment.revision, deployment.rollout) != (was, tried):
            new = deployment.revision if deployment.revision > was else None
            given_up = was if tried is None and new is None and was != number else None
            by = principal.owner.user
            why = RolloutUndoneBy(by=by, of=number, revision=new, given_up=given_up)
            _tell(work, deployment, why)
        return deployment

    def pause(self, work: Work, principal: Principal, id_: str) -> Deployment:
        """Have an update stand still.

        Raises:
            NotFound: no such live deployment of the principal's.
            Conflict: nothing is rolled out.
        """
        return self._set_paused(work, principal, id_, paused=True)

    def resume(self, work: Work, principal: Principal, id_: str) -> Deployment:
        """Have a paused update go on.

        Raises:
            NotFound: no such live deployment of the principal's.
            Conflict: nothing is rolled out.
        """
        return self._set_paused(work, principal, id_, paused=False)

    def destroy(self, work: Work, principal: Principal, id_: str) -> Deployment:
        """Take a deployment down with all its routes.

        Raises:
            NotFound: no such live deployment of the principal's.
        """
        deployment = self._mine(work, principal, id_)
        why = Cancelled(by=principal.owner.user)
        to = TransitionStatus(_E.DESTROYING)
        expected = DEPLOYMENT_TABLE.live - {_E.DESTROYING}
        self._ended_specs.pay(work, deployment.owner, deployment.spec_bytes)
        self._lifecycle.move(work, [deployment], expected, to, Move(PHASE, reason=why))
        return deployment

    # -- their parts ---------------------------------------------------------------------------

    def _must_be_free(
        self, work: Work, principal: Principal, owner: Owner, name: str, host: str
    ) -> None:
        """
        Raises:
            InvalidSpec: the owner's project may not use this host. It is raised first, so that who
                may not use a name does not learn whether anybody has it.
            Conflict: it is the balancers', or another deployment has it.
        """
        project = work.live.accounts.projects.get((owner.domain, owner.project))
        rule = HostRule.of(name, self._domain, () if project is None else project.hosts)
        if not rule.allows(host):
            raise InvalidSpec([rule.refusal(host, owner.domain, owner.project)])
        if host in self._own_hosts:
            raise Conflict(f"{host} is a name of Muster's own balancers: choose another host")
        at_host = self._routes.at(host)
        if at_host is not None:
            its = "another deployment"
            if principal.may_see(at_host.owner):
                its = f"deployment {at_host.name!r}"
            raise Conflict(f"requests for {host} reach {its} already")

    def _mine(self, work: Work, principal: Principal, id_: str) -> Deployment:
        deployment = work.live.of(Deployment).get(id_)
        if deployment is None or deployment.is_going or not principal.may_change(deployment.owner):
            raise NotFound(f"there is no live deployment {id_}")
        return deployment

    def _must_fit(self, work: Work, deployment: Deployment, spec: DeploymentSpec) -> None:
        """Refuse a changed spec, which makes a new revision, where its owner has no room for it.

        Raises:
            Conflict: the specs of the owner's open work would be too large.
        """
        revision = Revision(0, "", spec.template(), work.now, "")
        spec_bytes = stored_bytes(spec, (*deployment.revisions, revision))
        more_bytes = spec_bytes - deployment.spec_bytes
        admit_spec(work.live, self._cluster, deployment.owner, more_bytes, work=0)

    def _make(self, work: Work, principal: Principal, spec: DeploymentSpec) -> Deployment:
        if len(work.live.of(Deployment)) >= MAX_DEPLOYMENTS:
            raise Conflict(f"the cluster has {MAX_DEPLOYMENTS} deployments, and takes no more")
        first = Revision(1, spec.digest(), spec.template(), work.now, principal.owner.user)
        spec_bytes = stored_bytes(spec, (first,))
        admit_spec(work.live, self._cluster, principal.owner, spec_bytes)
        self._ended_specs.pay(work, principal.owner, spec_bytes)
        deployment = Deployment(
            id=DeploymentId(work.ids.new(IdKind.DEPLOYMENT)),
            name=spec.name,
            owner=principal.owner,
            status=_E.PENDING,
            status_changed_at=work.now,
            created_at=work.now,
            spec=spec,
            revisions=(first,),
            secret=new_secret(),
            revision=1,
            stable=1,
            replicas=spec.first_replicas(),
            scaled_at=work.now,
            spec_bytes=spec_bytes,
        )
        work.unit.add(deployment)
        work.mark(deployment)
        return deployment

    def _change(
        self,
        work: Work,
        principal: Principal,
        deployment: Deployment,
        spec: DeploymentSpec,
        of: int | None = None,
    ) -> None:
        before, was = deployment.spec, deployment.revision
        probed = {each.number: deployment.probe_of(each.number) for each in deployment.revisions}
        deployment.spec = spec
        if of is None:
            self.set_replicas(work, deployment, _wished(deployment, spec))
        digest = spec.digest()
        current = deployment.numbered(deployment.revision)
        if current is None or current.digest != digest:
            self._begin_revision(work, principal, deployment, spec, digest, of)
        elif (
            of is not None
            or spec != before.model_copy(update={"replicas": spec.replicas})
            or not starts_left(deployment)  # what it runs may be mended outside the spec
        ):
            self._try_again(work, deployment)
        if deployment.revision != was:
            deployment.revisions = with_probe(deployment.revisions, was, before.probe)
        now_probed = (deployment.probe_of(number) == probe for number, probe in probed.items())
        if spec.scale != before.scale or not all(now_probed):
            deployment.probe_version += 1
        for route in self._routes.of(deployment):
            work.mark(route)
        _rewrite(work, deployment)
        work.unit.touch(deployment)
        work.mark(deployment)

    def _begin_revision(
        self,
        work: Work,
        principal: Principal,
        deployment: Deployment,
        spec: DeploymentSpec,
        digest: str,
        of: int | None,
    ) -> None:
        stable = deployment.numbered(deployment.stable)
        if stable is not None and stable.digest == digest:  # back while another is rolled out
            deployment.revision = stable.number
            deployment.rollout = deployment.reason = None
            self._try_again(work, deployment)
            return
        by, number = principal.owner.user, deployment.revisions[-1].number + 1
        revision = Revision(number, digest, spec.template(), work.now, by, of)
        needed = frozenset(route.revision for route in self._routes.of(deployment))
        needed |= {deployment.stable, number}
        deployment.revisions = kept((*deployment.revisions, revision), needed)
        deployment.revision = number
        deployment.reason = None
        if deployment.status in NOT_BEGUN:
            deployment.stable = number
            return
        self._roll_out(work, deployment)

    def _try_again(self, work: Work, deployment: Deployment) -> None:
        """Have a revision tried again of which replicas failed: under another probe, or with more
        time, they may not."""
        deployment.failed_starts, deployment.failed_at = 0, None
        if tells_of_starts(deployment.reason):
            deployment.reason = None
        if deployment.rollout is None and deployment.revision != deployment.stable:
            self._roll_out(work, deployment)

    def _roll_out(self, work: Work, deployment: Deployment) -> None:
        deployment.rollout = Rollout(deployment.revision, deployment.stable, work.now)
        deployment.reason = None
        if deployment.status is not _E.DEPLOYING:
            expected = frozenset({_E.READY, _E.SCALING})
            to = TransitionStatus(_E.DEPLOYING)
            begun = RolloutBegun(before=deployment.stable, revision=deployment.revision)
            move = Move(PHASE, reason=begun)
            self._lifecycle.move(work, [deployment], expected, to, move)

    def _set_paused(
        self, work: Work, principal: Principal, id_: str, *, paused: bool
    ) -> Deployment:
        deployment = self._mine(work, principal, id_)
        if deployment.rollout is None:
            raise Conflict(f"no update of {deployment.name} is under way")
        rollout = deployment.rollout
        changed = rollout.paused(work.now) if paused else rollout.resumed(work.now)
        if changed != rollout:
            deployment.rollout = changed
            kind = RolloutPausedBy if paused else RolloutResumedBy
            _tell(work, deployment, kind(by=principal.owner.user, revision=rollout.to_revision))
            work.unit.touch(deployment)
            work.mark(deployment)
        return deployment


def _rewrite(work: Work, deployment: Deployment) -> None:
    """Have a deployment's spec and revisions stored anew, and count their size."""
    deployment.spec_bytes = stored_bytes(deployment.spec, deployment.revisions)
    work.live.holdings.set_open(deployment.id, deployment.owner, deployment.spec_bytes)
    work.unit.rewrite(deployment)


def _tell(work: Work, deployment: Deployment, why: Reason) -> None:
    """Have the deployment's history tell what somebody did."""
    work.unit.note(deployment, PHASE, SchedulingResult.SUCCESS, why)


def _changed(before: DeploymentSpec, after: DeploymentSpec, was: int, replicas: int) -> str:
    """The keys that are different in another spec, and the numbers of replicas."""
    fields = DeploymentSpec.model_fields
    keys = [
        key for key in fields if key != "replicas" and getattr(before, key) != getattr(after, key)
    ]
    return ", ".join([*keys, *([f"replicas {was} → {replicas}"] if was != replicas else [])])


def _wished(deployment: Deployment, spec: DeploymentSpec) -> int:
    """The number of replicas that a spec wishes for a deployment; one that follows load keeps its
    number within the bounds, unless the spec names one."""
    if spec.scale is None or "replicas" in spec.model_fields_set:
        return spec.replicas
    return min(max(deployment.replicas, spec.scale.min), spec.scale.max)
