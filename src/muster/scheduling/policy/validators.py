"""Validators: rules that forbid a session to start, wherever there is room (design: Placement
policy).

A session waits while its quota is in use, a dependency is not met yet or its start time has not
come. A session with a reason in ``NEVER`` is refused at submission, or cancelled when the reason
arises later (design: Skipped or failed).
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypedDict

from muster.core.owner import Owner
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_dependencies import (
    BeforeStartTime,
    DependencyFailed,
    DependencyMissing,
    DependencyNotHealthy,
    DependencyNotMet,
    DependencySucceeded,
    DependencyTakenDown,
)
from muster.core.reasons.of_queue import NoGroupAccess
from muster.core.reasons.of_quotas import (
    AboveLargest,
    AboveQuota,
    ModelQuotaInUse,
    OpenSpecsTooLarge,
    QuotaInUse,
    TooManyPending,
    TooMuchOpenWork,
)
from muster.core.resources import AmountUnit, unit_of
from muster.core.specs import Dependency, DependencyCondition, Level, ScalingGroup
from muster.core.text import utc_moment
from muster.scheduling.accounting.holdings import Holdings
from muster.scheduling.accounting.limits import Limit, largest_of_one, limits_of_one, limits_on
from muster.scheduling.accounting.usage import Quotas, Scope, Usage, scopes
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.workload import DependencyState, WorkloadClass

NEVER: frozenset[ReasonCode] = frozenset(
    {
        ReasonCode.ABOVE_QUOTA,
        ReasonCode.ABOVE_LARGEST,
        ReasonCode.DEPENDENCY_FAILED,
        ReasonCode.DEPENDENCY_SUCCEEDED,
        ReasonCode.DEPENDENCY_MISSING,
        ReasonCode.DEPENDENCY_TAKEN_DOWN,
        ReasonCode.NO_GROUP_ACCESS,
    }
)
"""Reasons that time does not cure: only a change of the spec, the quota or the group does."""

_POSITION = {Level.USER: 0, Level.PROJECT: 1, Level.DOMAIN: 2}  # in the answer of ``scopes``


class _ResourceLimit:
    """A limit on the sum of the placed sessions of one user, project or domain."""

    level: ClassVar[Level]

    def is_idle(self, context: PassContext) -> bool:
        return self.level not in context.quotas.levels

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        scope = scopes(workload.owner)[_POSITION[self.level]]
        quota = context.quotas.of(scope)
        if quota is None:
            return ()
        held, models = context.usage.of(scope), context.usage.models
        reasons = []
        for its in limits_on(quota, workload, models):
            if its.requested > its.limit and its.is_certain:
                reasons.append(_above(AboveQuota, scope, its))
                continue
            used = its.used(held, models) if its.requested else 0
            if its.requested and used + its.requested > its.limit:
                kind = QuotaInUse if its.is_certain else ModelQuotaInUse
                why = kind(
                    resource=its.resource,
                    unit=unit_of(its.resource),
                    model=its.model or None,
                    in_group=its.group or None,
                    **_in_use(scope, used, its.requested, its.limit),
                )
                reasons.append(why)
        return reasons

    def allows(self, workload: WorkloadClass, context: PassContext, count: int) -> int:
        """How many of ``count`` sessions of the class may be placed one after the other."""
        scope = scopes(workload.owner)[_POSITION[self.level]]
        quota = context.quotas.of(scope)
        if quota is None:
            return count
        held, models = context.usage.of(scope), context.usage.models
        for its in limits_on(quota, workload, models):
            if its.requested:
                count = min(count, (its.limit - its.used(held, models)) // its.requested)
        return max(count, 0)


class KeypairResourceLimit(_ResourceLimit):
    """The limit on the sum of one user's sessions."""

    level = Level.USER


class GroupResourceLimit(_ResourceLimit):
    """The limit on the sum of one project's sessions (a "group" in Sokovan)."""

    level = Level.PROJECT


class DomainResourceLimit(_ResourceLimit):
    """The limit on the sum of one domain's sessions."""

    level = Level.DOMAIN


class Concurrency:
    """The limit on the number of placed sessions of a user, a project and a domain.

    A limit of 0 is a pause: all sessions wait until an operator raises it.
    """

    def is_idle(self, context: PassContext) -> bool:
        return not context.quotas.levels

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        reasons = []
        for scope in scopes(workload.owner):
            quota = context.quotas.of(scope)
            if quota is not None and quota.sessions is not None:
                used = context.usage.of(scope).sessions
                if used >= quota.sessions:
                    amounts = _in_use(scope, used, 1, quota.sessions)
                    why = QuotaInUse(resource="sessions", unit=AmountUnit.COUNT, **amounts)
                    reasons.append(why)
        return reasons

    def allows(self, workload: WorkloadClass, context: PassContext, count: int) -> int:
        """How many of ``count`` sessions of the class may be placed one after the other."""
        for scope in scopes(workload.owner):
            quota = context.quotas.of(scope)
            if quota is not None and quota.sessions is not None:
                count = min(count, quota.sessions - context.usage.of(scope).sessions)
        return max(count, 0)


_MET: Mapping[DependencyCondition, frozenset[DependencyState]] = {
    DependencyCondition.RUNNING: frozenset({DependencyState.RUNNING, DependencyState.SUCCEEDED}),
    DependencyCondition.SUCCEEDED: frozenset({DependencyState.SUCCEEDED}),
    DependencyCondition.ENDED: frozenset(
        {DependencyState.SUCCEEDED, DependencyState.ENDED_OTHERWISE}
    ),
    DependencyCondition.FAILED: frozenset({DependencyState.ENDED_OTHERWISE}),
    DependencyCondition.HEALTHY: frozenset({DependencyState.HEALTHY}),
}
_CONDITION: Mapping[DependencyCondition, str] = {
    DependencyCondition.RUNNING: "is running",
    DependencyCondition.SUCCEEDED: "has succeeded",
    DependencyCondition.ENDED: "has ended",
    DependencyCondition.FAILED: "has failed",
    DependencyCondition.HEALTHY: "is healthy",
}


def is_met(dependency: Dependency, state: DependencyState) -> bool:
    """Whether the state of the other work meets the dependency."""
    return state in _MET[dependency.condition]


def why_never_met(dependency: Dependency, state: DependencyState) -> Reason | None:
    """The reason why the dependency can never be met; None if it is met, or may be later."""
    why = None if is_met(dependency, state) else why_unmet(dependency, state)
    return why if why is not None and why.code in NEVER else None


class Dependencies:
    """Dependencies on other work.

    Work that has succeeded also meets the condition ``running``, as with Slurm's ``after``: a short
    job may start and end between two looks. Work that ended otherwise may never have run, and will
    not run any more, so it can never meet the condition, nor can work that has succeeded meet the
    condition ``failed``. A deployment that was taken down can never
    be healthy again; one that is not healthy may be so any time.
    """

    def is_idle(self, context: PassContext) -> bool:
        return False

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        if not workload.after:
            return ()
        reasons = []
        for dependency in workload.after:
            state = context.dependency_state(workload.owner, dependency)
            if not is_met(dependency, state):
                replicas = context.replicas_of(dependency.on)
                reasons.append(why_unmet(dependency, state, replicas))
        return reasons

    def allows(self, workload: WorkloadClass, context: PassContext, count: int) -> int:
        """All of ``count`` sessions of the class, or none."""
        return 0 if workload.after and self.validate(workload, context) else count


class StartTime:
    """A session's earliest start, from its spec."""

    def is_idle(self, context: PassContext) -> bool:
        return False

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        moment = next_moment(workload, context.now)
        if moment is None:
            return ()
        return (BeforeStartTime(moment=utc_moment(moment)),)

    def allows(self, workload: WorkloadClass, context: PassContext, count: int) -> int:
        """All of ``count`` sessions of the class, or none."""
        return count if next_moment(workload, context.now) is None else 0


class Holds:
    """The hold of a job, which people set and release. Each group has this validator, whatever
    others it names."""

    def is_idle(self, context: PassContext) -> bool:
        return False

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        return () if workload.held is None else (workload.held,)

    def allows(self, workload: WorkloadClass, context: PassContext, count: int) -> int:
        """All of ``count`` sessions of the class, or none."""
        return count if workload.held is None else 0


class GroupAccess:
    """The projects whose work the group takes. Each pass asks, because a group may be closed to a
    project while that project's work waits."""

    def __init__(self, group: ScalingGroup) -> None:
        self._group = group

    def is_idle(self, context: PassContext) -> bool:
        return False

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        refusal = access_refusal(workload.owner, self._group)
        return () if refusal is None else (refusal,)

    def allows(self, workload: WorkloadClass, context: PassContext, count: int) -> int:
        """All of ``count`` sessions of the class, or none."""
        return 0 if self.validate(workload, context) else count


def next_moment(workload: WorkloadClass, now: float) -> float | None:
    """The earliest moment at which sessions of the class may start, in seconds since the epoch;
    None if they may start now."""
    return (
        workload.not_before
        if workload.not_before is not None and workload.not_before > now
        else None
    )


# At submission


def refusals_at_submission(
    workload: WorkloadClass, quotas: Quotas, usage: Usage, sessions: int = 1
) -> list[Reason]:
    """The reasons for which ``sessions`` sessions of the class are refused at once, by the quotas
    of their user, project and domain: they ask for more than the quota itself, or more than one
    session may have, or too many sessions would wait. All but the last are in ``NEVER``.
    """
    reasons = []
    for scope in scopes(workload.owner):
        quota = quotas.of(scope)
        if quota is None:
            continue
        reasons += [
            _above(kind, scope, its)
            for kind, exceeded in (
                (AboveQuota, limits_of_one(quota, workload)),
                (AboveLargest, largest_of_one(quota, workload)),
            )
            for its in exceeded
        ]
        pending, most = usage.of(scope).pending, quota.pending_sessions
        if most is not None and pending + sessions > most:
            amounts = _in_use(scope, pending, sessions, most)
            reasons.append(TooManyPending(resource="sessions", unit=AmountUnit.COUNT, **amounts))
    return reasons


def refusals_of_store(
    owner: Owner, spec_bytes: int, quotas: Quotas, holdings: Holdings, work: int = 1
) -> list[Reason]:
    """The reasons for which more work of the owner's is refused, by what its user, project and
    domain have in the database already: too much work that has not ended, or too large specs.

    Args:
        spec_bytes: of the specs that would be stored more; a change that stores no more is allowed
            whatever there is.
        work: how many jobs, sessions and deployments would be more.
    """
    reasons: list[Reason] = []
    for scope in scopes(owner):
        held, limits = holdings.of(scope), quotas.stored(scope)
        most = limits.open_work
        if work and most is not None and held.work + work > most:
            counts = _in_use(scope, held.work, work, most)
            reasons.append(TooMuchOpenWork(unit=AmountUnit.COUNT, **counts))
        most = limits.open_specs_bytes
        if spec_bytes > 0 and most is not None and held.spec_bytes + spec_bytes > most:
            sizes = _in_use(scope, held.spec_bytes, spec_bytes, most)
            reasons.append(OpenSpecsTooLarge(unit=AmountUnit.BYTES, **sizes))
    return reasons


def access_refusal(owner: Owner, group: ScalingGroup) -> Reason | None:
    """The reason why the group takes no work of the owner's project; None if it does."""
    project = Level.PROJECT.of(owner)
    if not group.projects or project in group.projects:
        return None
    return NoGroupAccess(group=group.name, project=project)


# Reasons


def _above(kind: type[AboveQuota] | type[AboveLargest], scope: Scope, its: Limit) -> Reason:
    level, owner = scope
    return kind(
        resource=its.resource,
        unit=unit_of(its.resource),
        requested=its.requested,
        limit=its.limit,
        over=its.requested - its.limit,
        model=its.model or None,
        in_group=its.group or None,
        level=str(level),
        owner=owner,
    )


class _InUse(TypedDict):
    """The numbers of a reason that a limit is exceeded by what is used together with more."""

    used: int
    requested: int
    limit: int
    over: int
    level: str
    owner: str


def _in_use(scope: Scope, used: int, requested: int, limit: int) -> _InUse:
    level, owner = scope
    return _InUse(
        used=used,
        requested=requested,
        limit=limit,
        over=used + requested - limit,
        level=str(level),
        owner=owner,
    )


def why_unmet(
    dependency: Dependency, state: DependencyState, replicas: tuple[int, int] = (0, 0)
) -> Reason:
    """The reason why the dependency is not met.

    Args:
        replicas: of the deployment on which it is, those that are healthy and those that have to
            be.
    """
    on, condition = dependency.called, _CONDITION[dependency.condition]
    if dependency.is_on_deployment:
        if state in (DependencyState.MISSING, DependencyState.ENDED_OTHERWISE):
            return DependencyTakenDown(on=on)
        healthy, wanted = replicas
        return DependencyNotHealthy(on=on, healthy=healthy, wanted=wanted)
    match state:
        case DependencyState.MISSING:
            return DependencyMissing(on=on, condition=condition)
        case DependencyState.ENDED_OTHERWISE:
            return DependencyFailed(on=on, condition=condition)
        case DependencyState.SUCCEEDED:
            return DependencySucceeded(on=on, condition=condition)
        case _:
            return DependencyNotMet(on=on, condition=condition, state=state.value)
