"""What forbids a session to start, wherever there is room (design: Placement policy).

A quota in use, a dependency not yet met and a start time ahead are waited for; what is in ``NEVER``
is refused at submission, or cancelled if it became so later (design: Skipped or failed).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar

from muster.core.owner import Owner
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.resources import format_amount
from muster.core.specs import Dependency, DependencyCondition, Level, ScalingGroup
from muster.scheduling.plugins import PassContext
from muster.scheduling.usage import Quotas, Scope, Usage, scopes
from muster.scheduling.workload import TargetState, WorkloadClass

NEVER: frozenset[ReasonCode] = frozenset(
    {
        ReasonCode.ABOVE_QUOTA,
        ReasonCode.ABOVE_LARGEST,
        ReasonCode.DEPENDENCY_FAILED,
        ReasonCode.DEPENDENCY_MISSING,
        ReasonCode.NO_GROUP_ACCESS,
    }
)
"""What time cannot cure; only somebody who changes the spec, the quota or the group can."""

_POSITION = {Level.USER: 0, Level.PROJECT: 1, Level.DOMAIN: 2}  # in what ``scopes`` answers


class _ResourceLimit:
    """What the placed sessions of one user, project or domain may hold together."""

    level: ClassVar[Level]

    def is_idle(self, context: PassContext) -> bool:
        return self.level not in context.quotas.levels

    def validate(self, what: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        scope = scopes(what.owner)[_POSITION[self.level]]
        quota = context.quotas.of(scope)
        if quota is None:
            return ()
        held = context.usage.of(scope).amounts
        reasons = []
        for resource, limit in quota.limits.amounts.items():
            requested, used = what.total.get(resource, 0), held.get(resource, 0)
            if requested > limit:
                reasons.append(_above(ReasonCode.ABOVE_QUOTA, scope, resource, requested, limit))
            elif requested and used + requested > limit:
                amounts = _in_use(used, requested, limit)
                reasons.append(_of_resource(ReasonCode.QUOTA_IN_USE, scope, resource, amounts))
        return reasons

    def allows(self, what: WorkloadClass, context: PassContext, count: int) -> int:
        """How many of ``count`` sessions of the class may be placed one after the other."""
        scope = scopes(what.owner)[_POSITION[self.level]]
        quota = context.quotas.of(scope)
        if quota is None:
            return count
        held = context.usage.of(scope).amounts
        for resource, limit in quota.limits.amounts.items():
            requested = what.total.get(resource, 0)
            if requested:
                count = min(count, (limit - held.get(resource, 0)) // requested)
        return max(count, 0)


class KeypairResourceLimit(_ResourceLimit):
    """What the sessions of one user may hold together."""

    level = Level.USER


class GroupResourceLimit(_ResourceLimit):
    """What the sessions of one project ("group" in the reference) may hold together."""

    level = Level.PROJECT


class DomainResourceLimit(_ResourceLimit):
    """What the sessions of one domain may hold together."""

    level = Level.DOMAIN


class Concurrency:
    """How many sessions of a user, a project and a domain may be placed at a time.

    A limit of 0 is no prohibition but a pause: all of them wait until an operator raises it.
    """

    def is_idle(self, context: PassContext) -> bool:
        return not context.quotas.levels

    def validate(self, what: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        reasons = []
        for scope in scopes(what.owner):
            quota = context.quotas.of(scope)
            if quota is not None and quota.sessions is not None:
                used = context.usage.of(scope).sessions
                if used >= quota.sessions:
                    amounts = _in_use(used, 1, quota.sessions)
                    reasons.append(_of_sessions(ReasonCode.QUOTA_IN_USE, scope, amounts))
        return reasons

    def allows(self, what: WorkloadClass, context: PassContext, count: int) -> int:
        """How many of ``count`` sessions of the class may be placed one after the other."""
        for scope in scopes(what.owner):
            quota = context.quotas.of(scope)
            if quota is not None and quota.sessions is not None:
                count = min(count, quota.sessions - context.usage.of(scope).sessions)
        return max(count, 0)


_MET: Mapping[DependencyCondition, frozenset[TargetState]] = {
    DependencyCondition.RUNNING: frozenset({TargetState.RUNNING, TargetState.SUCCEEDED}),
    DependencyCondition.SUCCEEDED: frozenset({TargetState.SUCCEEDED}),
    DependencyCondition.ENDED: frozenset({TargetState.SUCCEEDED, TargetState.ENDED_OTHERWISE}),
}
_CONDITION: Mapping[DependencyCondition, str] = {
    DependencyCondition.RUNNING: "is running",
    DependencyCondition.SUCCEEDED: "has succeeded",
    DependencyCondition.ENDED: "has ended",
}


def is_met(dependency: Dependency, state: TargetState) -> bool:
    """Whether work that has come so far is what the dependency waits for."""
    return state in _MET[dependency.condition]


def failed(dependency: Dependency, state: TargetState) -> Reason | None:
    """Why the dependency can never be met, if it cannot."""
    why = None if is_met(dependency, state) else _unmet(dependency, state)
    return why if why is not None and why.code in NEVER else None


class Dependencies:
    """What must have come so far before.

    ``running`` is also met by what has succeeded: a short one may start and end between two looks,
    and Slurm's ``after`` is met by it too. What ended otherwise perhaps never ran, and whoever
    needs it running will not find it: that can never be met.
    """

    def is_idle(self, context: PassContext) -> bool:
        return False

    def validate(self, what: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        if not what.after:
            return ()
        reasons = []
        for dependency in what.after:
            state = context.target(what.owner, dependency)
            if not is_met(dependency, state):
                reasons.append(_unmet(dependency, state))
        return reasons

    def allows(self, what: WorkloadClass, context: PassContext, count: int) -> int:
        """All of ``count`` sessions of the class, or none."""
        return 0 if what.after and self.validate(what, context) else count


class StartTime:
    """Nothing starts before the moment that its spec names."""

    def is_idle(self, context: PassContext) -> bool:
        return False

    def validate(self, what: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        moment = next_moment(what, context.now)
        if moment is None:
            return ()
        return (reason(ReasonCode.BEFORE_START_TIME, moment=_moment(moment)),)

    def allows(self, what: WorkloadClass, context: PassContext, count: int) -> int:
        """All of ``count`` sessions of the class, or none."""
        return count if next_moment(what, context.now) is None else 0


class GroupAccess:
    """Whose work the group takes; where that is not everybody's, it is asked in each pass, for a
    group may be closed to a project of which work waits."""

    def __init__(self, group: ScalingGroup) -> None:
        self._group = group

    def is_idle(self, context: PassContext) -> bool:
        return False

    def validate(self, what: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        refusal = group_access(what.owner, self._group)
        return () if refusal is None else (refusal,)

    def allows(self, what: WorkloadClass, context: PassContext, count: int) -> int:
        """All of ``count`` sessions of the class, or none."""
        return 0 if self.validate(what, context) else count


def next_moment(what: WorkloadClass, now: float) -> float | None:
    """When the passing of time alone will permit what it forbids now, in seconds since the epoch;
    None if it forbids nothing."""
    return what.not_before if what.not_before is not None and what.not_before > now else None


# At submission


def refusals_at_submission(
    what: WorkloadClass, quotas: Quotas, usage: Usage, sessions: int = 1
) -> list[Reason]:
    """All for which ``sessions`` sessions of the class are not even queued, by the quotas of their
    user, project and domain: more than the quota itself, more than one session may ask for, or too
    many that wait. All but the last are in ``NEVER``.
    """
    reasons = []
    for scope in scopes(what.owner):
        quota = quotas.of(scope)
        if quota is None:
            continue
        for code, limits in (
            (ReasonCode.ABOVE_QUOTA, quota.limits.amounts),
            (ReasonCode.ABOVE_LARGEST, quota.largest.amounts),
        ):
            for resource, limit in limits.items():
                requested = what.total.get(resource, 0)
                if requested > limit:
                    reasons.append(_above(code, scope, resource, requested, limit))
        pending, most = usage.of(scope).pending, quota.pending_sessions
        if most is not None and pending + sessions > most:
            amounts = _in_use(pending, sessions, most)
            reasons.append(_of_sessions(ReasonCode.TOO_MANY_PENDING, scope, amounts))
    return reasons


def group_access(owner: Owner, group: ScalingGroup) -> Reason | None:
    """Why the group takes no work of the owner's project, if it does not."""
    project = Level.PROJECT.of(owner)
    if not group.projects or project in group.projects:
        return None
    return reason(ReasonCode.NO_GROUP_ACCESS, group=group.name, project=project)


# Reasons


def _above(code: ReasonCode, scope: Scope, resource: str, requested: int, limit: int) -> Reason:
    amounts = {"requested": requested, "limit": limit, "over": requested - limit}
    return _of_resource(code, scope, resource, amounts)


def _in_use(used: int, requested: int, limit: int) -> dict[str, int]:
    return {
        "used": used,
        "requested": requested,
        "limit": limit,
        "over": used + requested - limit,
    }


def _of_resource(
    code: ReasonCode, scope: Scope, resource: str, amounts: Mapping[str, int]
) -> Reason:
    level, owner = scope
    shown = {name: format_amount(resource, amount) for name, amount in amounts.items()}
    return reason(code, resource=resource, **shown, level=str(level), owner=owner)


def _of_sessions(code: ReasonCode, scope: Scope, counts: Mapping[str, int]) -> Reason:
    level, owner = scope
    return reason(code, resource="sessions", **counts, level=str(level), owner=owner)


def _unmet(dependency: Dependency, state: TargetState) -> Reason:
    on, condition = dependency.called, _CONDITION[dependency.condition]
    match state:
        case TargetState.MISSING:
            return reason(ReasonCode.DEPENDENCY_MISSING, on=on, condition=condition)
        case TargetState.ENDED_OTHERWISE:
            return reason(ReasonCode.DEPENDENCY_FAILED, on=on, condition=condition)
        case _:
            code = ReasonCode.DEPENDENCY_NOT_MET
            return reason(code, on=on, condition=condition, state=state.value)


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # past the year 9999
        return f"{seconds:.0f} s after 1970"
