"""Admission: work that can never start is refused when it is handed in (design: Skipped or failed).
All problems are told at once, and nothing is written. Unless the group is ``fixed``, work that no
present agent could hold waits, because a suitable agent may join."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from muster.control.session.cluster.known_deployments import NO_SUCH_DEPLOYMENT
from muster.control.session.cluster.state import ClusterState
from muster.core.errors import Conflict, InvalidSpec, Problem
from muster.core.owner import Owner, Principal
from muster.core.reasons import Reason, ReasonCode
from muster.core.resources import GPU_WHOLE, format_milli
from muster.core.specs import (
    Dependency,
    DependencyCondition,
    JobSpec,
    ScalingGroup,
    SessionSpec,
)
from muster.core.specs.placement import ANYWHERE, Operator
from muster.core.specs.session import Process
from muster.core.specs.work import WorkSpec
from muster.core.text import duration
from muster.scheduling.passes.placement import never_fits
from muster.scheduling.policy.guard import PluginFault
from muster.scheduling.policy.validators import (
    access_refusal,
    refusals_at_submission,
    refusals_of_store,
    why_never_met,
)
from muster.scheduling.workload import DependencyProgress, WorkloadClass
from muster.store.live import Live

Ended = Mapping[str, tuple[str, DependencyProgress]]
"""Work that has ended, by the name or id that a person gave: the id of the work, and how it
ended."""

NONE_ENDED: Ended = {}

_RULED_OUT = frozenset({ReasonCode.NO_AGENT_MEETS, ReasonCode.NO_SUCH_AGENTS})
_TOO_LARGE = frozenset({ReasonCode.NO_AGENTS, ReasonCode.NEVER_FITS, ReasonCode.GANG_NEVER_FITS})


def admit(live: Live, cluster: ClusterState, workload: WorkloadClass, sessions: int) -> None:
    """Refuse work that can never start, or that a quota forbids.

    Args:
        sessions: how many of the class are handed in.

    Raises:
        InvalidSpec: an attribute that no agent of the group has; designated agents of which the
            group has none; more than a group that is ``fixed`` could hold.
        Conflict: a quota forbids it, or the group is not for the owner's project.
    """
    spec = live.group(workload.group)
    refusal = access_refusal(workload.owner, spec)
    if refusal is not None:
        raise Conflict(_sentences(refusal))
    problems = [
        *_unknown_attributes(cluster, workload),
        *_unknown_agents(cluster, workload),
        *_parts_of_partitions(cluster, workload),
    ]
    unheard = (not each.boot_id for each in live.agents.values() if each.group == workload.group)
    if problems and not any(unheard):  # new agents may have them
        raise InvalidSpec(problems)
    refusals = refusals_at_submission(
        workload, cluster.accounting.quotas, cluster.accounting.usage, sessions
    )
    if refusals:
        raise Conflict(_sentences(*refusals))
    if spec.fixed:
        never = _never(cluster, workload)
        if (
            never is not None
            and never.code in _RULED_OUT | _TOO_LARGE
            and (of_pools := _refusals_of_pools(cluster, workload)) is not None
        ):
            ruled_out = never.code in _RULED_OUT and workload.placement != ANYWHERE
            field = "placement" if ruled_out else "resources"
            raise InvalidSpec([Problem(field, "", _sentences(never, *of_pools))])


def admit_spec(
    live: Live, cluster: ClusterState, owner: Owner, spec_bytes: int, work: int = 1
) -> None:
    """Refuse work of an owner with too much work that has not ended, or too large specs of it.

    Args:
        spec_bytes: of the specs that would be stored more.
        work: how many jobs, sessions and deployments would be more.

    Raises:
        Conflict: it would be more than a quota or the default allows.
    """
    refusals = refusals_of_store(owner, spec_bytes, cluster.accounting.quotas, live.holdings, work)
    if refusals:
        raise Conflict(_sentences(*refusals))


def check_priority(
    live: Live,
    cluster: ClusterState,
    principal: Principal,
    owner: Owner,
    spec: WorkSpec,
    priority: int | None = None,
) -> None:
    """Refuse a priority above what the owner's work may have; administrators give any.

    Args:
        priority: another one than that of the spec.

    Raises:
        InvalidSpec: it is too high.
    """
    asked = spec.priority if priority is None else priority
    limit, whose = highest_priority(live, cluster, owner, spec.group)
    if asked > limit and not principal.is_admin:
        expected = f"expected at most {limit}, the highest of {whose}"
        raise InvalidSpec([Problem("priority", str(asked), expected + _RAISED)])


_RAISED = ". An operator can raise `max_priority`"


def highest_priority(
    live: Live, cluster: ClusterState, owner: Owner, group: str
) -> tuple[int, str]:
    """The highest priority that the owner may give work in the group, and words for whose limit it
    is."""
    limit, (level, name) = cluster.accounting.quotas.max_priority(owner)
    of_group = live.group(group).max_priority
    if of_group is not None and of_group < limit:
        return of_group, f"group {group}"
    return limit, f"{level} {name}"


W = TypeVar("W", JobSpec, SessionSpec)


def within_time_limits(group: ScalingGroup, spec: W) -> W:
    """The spec with the time limit that the group gives work without one.

    Raises:
        InvalidSpec: its time limit is longer than the group allows.
    """
    if spec.timeout is None:
        timeout = group.default_timeout or group.max_timeout
        return spec if timeout is None else spec.model_copy(update={"timeout": timeout})
    if group.max_timeout is not None and spec.timeout > group.max_timeout:
        expected = f"expected at most {duration(group.max_timeout)} in group {group.name}"
        raise InvalidSpec([Problem("timeout", duration(spec.timeout), expected)])
    return spec


def check_workdirs(group: ScalingGroup, processes: Sequence[Process]) -> None:
    """Refuse processes that the group's agents would not start.

    Raises:
        InvalidSpec: a working directory outside the group's workspaces.
    """
    for process in processes:
        if process.workdir is not None and not group.has_workspace_of(process.workdir):
            raise InvalidSpec([_outside(group, "workdir", process.workdir)])


def check_uses(
    cluster: ClusterState, owner: Owner, group: str, processes: Sequence[Process], now: float
) -> None:
    """Refuse processes whose deployments have no address for them.

    Raises:
        InvalidSpec: there is no such deployment, or the group's machines do not reach it.
    """
    problems = [
        Problem("uses", repr(name), problem)
        for name in dict.fromkeys(name for process in processes for name in process.uses)
        if (problem := cluster.deployments.problem_with(owner, name, group, now)) is not None
    ]
    if problems:
        raise InvalidSpec(problems)


def check_checkpoints(group: ScalingGroup, spec: JobSpec) -> None:
    """Refuse a job whose checkpoints would lie elsewhere than its work may.

    Raises:
        InvalidSpec: a directory of checkpoints outside the group's workspaces.
    """
    path = None if spec.recovery is None else spec.recovery.checkpoint_dir
    if path is not None and not group.has_workspace_of(path):
        raise InvalidSpec([_outside(group, "recovery.checkpoint_dir", path)])


def _outside(group: ScalingGroup, field: str, path: str) -> Problem:
    roots = ", ".join(group.workspaces) or "none"
    expected = f"expected a directory inside a workspace of group {group.name} ({roots})"
    return Problem(field, repr(path), expected)


def check_name(live: Live, owner: Owner, name: str) -> None:
    """Refuse a name that is taken.

    Raises:
        Conflict: a live job of the same owner has the name.
    """
    taken = live.job_names.get((owner, name))
    if taken is not None:
        raise Conflict(
            f"name {name!r} is taken by job {taken.id}, which is {taken.status.lower()}: choose "
            f"another, or cancel it with `muster cancel {name}`"
        )


Found = Sequence[tuple[str, DependencyProgress]]
"""The work for which dependencies wait, in their order: its id, and how far it has come."""


def find_dependencies(
    cluster: ClusterState, owner: Owner, after: Sequence[Dependency], ended: Ended
) -> Found:
    """The work for which dependencies wait.

    Raises:
        InvalidSpec: the owner has no such work, or the work ended so that the dependency can never
            be met.
    """
    problems = []
    dependencies: list[tuple[str, DependencyProgress]] = []
    for index, dependency in enumerate(after):
        found = _found(cluster, owner, dependency, ended)
        if found is None:
            expected = _nothing_of_the_kind(cluster, owner, dependency, ended)
            problems.append(Problem(f"after.{index}.on", repr(dependency.on), expected))
        elif (why := why_never_met(dependency, found[1].state)) is not None:
            problems.append(Problem(f"after.{index}", repr(dependency.on), _sentences(why)))
        else:
            dependencies.append(found)
    if problems:
        raise InvalidSpec(problems)
    return dependencies


def _found(
    cluster: ClusterState, owner: Owner, dependency: Dependency, ended: Ended
) -> tuple[str, DependencyProgress] | None:
    """The work on which a dependency is. A deployment that was taken down and handed in again has
    its name and another id, and is meant by a spec that is handed in again."""
    if not dependency.is_on_deployment:
        return cluster.dependencies.find(owner, dependency.on) or ended.get(dependency.on)
    deployments = cluster.deployments
    return deployments.find(owner, dependency.on) or deployments.find(owner, dependency.called)


def _nothing_of_the_kind(
    cluster: ClusterState, owner: Owner, dependency: Dependency, ended: Ended
) -> str:
    """The words for what a dependency should name. A job and a deployment may have one name, and
    have other conditions."""
    on = dependency.on
    if not dependency.is_on_deployment:
        if cluster.deployments.find(owner, on) is not None:
            return f"this is a deployment: expected {on}:{DependencyCondition.HEALTHY}"
        return "expected the name or id of a job or session of yours"
    if cluster.dependencies.find(owner, on) is not None or on in ended:
        others = (f"{on}:{each}" for each in DependencyCondition if each != dependency.condition)
        return f"this is no deployment: expected {' or '.join(others)}"
    return cluster.deployments.why_not(owner, dependency.called) or NO_SUCH_DEPLOYMENT


def with_ids(after: Sequence[Dependency], dependencies: Found) -> tuple[Dependency, ...]:
    """The dependencies, with ids in place of names."""
    return tuple(
        each.model_copy(update={"on": id_, "name": each.called})
        for each, (id_, _) in zip(after, dependencies, strict=True)
    )


def track_dependencies(cluster: ClusterState, dependencies: Found) -> None:
    """Have the cluster follow the progress of this work, for which new work waits."""
    for id_, progress in dict(dependencies).items():
        cluster.dependencies.follow(id_, progress)


def _unknown_attributes(cluster: ClusterState, workload: WorkloadClass) -> list[Problem]:
    """A problem for each attribute that a hard rule names and that no agent of the group has, but
    for one whose absence is asked; none where the group has no agents. Every agent would meet
    ``hostnmae!=vm``, which is a slip."""
    group, placement = cluster.groups[workload.group], workload.placement
    snapshot = group.snapshot
    needed = {
        f"placement.constraints.{index}": constraint.attribute
        for index, constraint in enumerate(placement.constraints)
        if not constraint.soft and constraint.op is not Operator.NOT_EXISTS
    }
    if placement.together is not None:
        needed["placement.together"] = placement.together
    if placement.rank_by is not None:
        needed["placement.rank_by"] = placement.rank_by
    if not needed or not len(snapshot):
        return []
    known = snapshot.attribute_names  # a look at every agent
    if group.outlook is not None:
        known = known | group.outlook.attributes
    return [
        Problem(field, repr(name), _expected(name, sorted(known), workload.group))
        for field, name in needed.items()
        if name not in known
    ]


def _unknown_agents(cluster: ClusterState, workload: WorkloadClass) -> list[Problem]:
    """A problem for designated agents of which the group has none: no pool makes machines for such
    work. None where the group has no agents yet."""
    snapshot, placement = cluster.groups[workload.group].snapshot, workload.placement
    designated = placement.agents if placement.agents_only else ()
    if not designated or not len(snapshot) or snapshot.slots_named(designated):
        return []
    known = sorted(snapshot.names)
    expected = f"group {workload.group} has no such agent"
    nearest = difflib.get_close_matches(designated[0], known, 1)
    if nearest:
        expected += f"; did you mean {nearest[0]!r}?"
    else:
        more = ", …" if len(known) > _NAMED else ""
        expected += f"; it has {', '.join(known[:_NAMED])}{more}"
    return [Problem("placement.agents", repr(", ".join(designated[:_NAMED])), expected)]


_NAMED = 5


def _parts_of_partitions(cluster: ClusterState, workload: WorkloadClass) -> list[Problem]:
    """A problem for a part of a GPU where all GPUs of the group that could give it are partitions,
    which are given whole, and no pool could make others."""
    group = cluster.groups[workload.group]
    columns = group.snapshot.columns
    if not columns.has_partitions or group.outlook is not None:
        return []
    every = np.flatnonzero(columns.present)
    problems = []
    for request, _ in workload.requests:
        if not 0 < request.gpu_milli < GPU_WHOLE or columns.usable(request, every).any():
            continue
        if columns.usable(replace(request, gpu_milli=GPU_WHOLE), every).any():
            asked = format_milli(request.gpu_milli)
            expected = "MIG devices are not shared: ask for whole ones, as gpu: 1"
            problems.append(Problem("resources.gpu", asked, expected))
    return problems


def _refusals_of_pools(cluster: ClusterState, workload: WorkloadClass) -> Sequence[Reason] | None:
    """The reasons for which the group's pools could never make the machines for such a session,
    none where it has no pools; None if they could."""
    outlook = cluster.groups[workload.group].outlook
    return () if outlook is None else outlook.refusals(workload) or None


def _never(cluster: ClusterState, workload: WorkloadClass) -> Reason | None:
    """The reason why the group could never hold such a session; None if it could."""
    group = cluster.groups[workload.group]
    try:
        return never_fits(workload, group.snapshot, group.policy)
    except PluginFault as fault:
        cluster.plugin_failed(workload.group, fault)
        return _never(cluster, workload)


def _expected(name: str, known: list[str], group: str) -> str:
    nearest = difflib.get_close_matches(name, known, 1)
    if nearest:
        return f"no agent of group {group} has this attribute; did you mean {nearest[0]!r}?"
    return f"expected an attribute that agents of group {group} have: {', '.join(known) or 'none'}"


def _sentences(*reasons: Reason) -> str:
    """The sentences of all reasons with their remedies; a remedy that several share is told
    once."""
    by_remedy: dict[str, list[str]] = {}
    for why in reasons:
        by_remedy.setdefault(why.remedy(), []).append(why.sentence())
    told = (f"{'; '.join(said)}. {remedy}".rstrip() for remedy, said in by_remedy.items())
    return " ".join(told).removesuffix(".")
