"""The answer of `muster plan`: what would happen to work if it were handed in now.

It is found in the live state by the code that also decides about real work, and changes nothing. A
spec that a submission would refuse is refused in the same words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import msgspec

from muster.autoscaling.demand import WANTS_ROOM
from muster.control.session.admission import (
    NONE_ENDED,
    Ended,
    Found,
    admit,
    admit_spec,
    check_checkpoints,
    check_name,
    check_priority,
    check_uses,
    check_workdirs,
    find_dependencies,
    with_ids,
    within_time_limits,
)
from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import job_class, session_class
from muster.control.session.explaining.explanation import LACKS_MACHINES, with_policy
from muster.control.session.explaining.placement_view import placement_view, victims_of
from muster.core import sentences
from muster.core.ids import IdKind, SessionId
from muster.core.owner import Owner, Principal
from muster.core.reasons import Reason
from muster.core.resources import GPU_WHOLE
from muster.core.specs import Dependency, JobSpec, SessionSpec
from muster.core.views.base import ReasonView
from muster.core.views.placement import AdditionView, PlannedKernelView, PlanOutcome, PlanView
from muster.core.views.work import ShareView
from muster.scheduling.explaining.explain import Explanation, explain
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.outlook import Addition
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.policy.validators import NEVER
from muster.scheduling.workload import (
    DependencyState,
    KernelPlacement,
    SessionWorkload,
    WorkloadClass,
)
from muster.store.live import Live
from muster.store.spec_columns import spec_size

MAX_TRIED = 10_000
"""Sessions of one job that are tried; later ones become candidates once these are placed."""
FIRST_TRIED, MORE_TRIED = 64, 8
"""Sessions of one job that are tried at first, and the factor by which more are tried while all of
them would start: a plan costs what would start, not what is asked for."""
MAX_SHOWN = 1_000
"""Kernels whose places are told, at most."""


def plan_job(
    live: Live,
    cluster: ClusterState,
    principal: Principal,
    spec: JobSpec,
    now: float,
    ended: Ended = NONE_ENDED,
) -> PlanView:
    """The fate of a job under ``JobRequests.submit`` and the passes after it.

    Raises:
        NotFound, InvalidSpec, Conflict: as at submission.
    """
    check_workdirs(live.group(spec.group), [spec])
    check_uses(cluster, principal.owner, spec.group, [spec], now)
    check_checkpoints(live.group(spec.group), spec)
    check_priority(live, cluster, principal, principal.owner, spec)
    spec = within_time_limits(live.group(spec.group), spec)
    if spec.name is not None:
        check_name(live, principal.owner, spec.name)
    dependencies = find_dependencies(cluster, principal.owner, spec.after, ended)
    spec = spec.model_copy(update={"after": with_ids(spec.after, dependencies)})
    sessions = 1 if spec.coscheduled else spec.tasks_to_run
    workload = job_class(principal.owner, spec)
    admit_spec(live, cluster, principal.owner, spec_size(spec))
    plan = Planner(live, cluster, principal, dependencies, now).plan(workload, sessions)
    if spec.only is None:
        return plan
    kernels = (msgspec.structs.replace(k, index=spec.only[k.index]) for k in plan.kernels)
    return msgspec.structs.replace(plan, kernels=tuple(kernels))


def plan_session(
    live: Live,
    cluster: ClusterState,
    principal: Principal,
    spec: SessionSpec,
    now: float,
    ended: Ended = NONE_ENDED,
) -> PlanView:
    """The fate of a session under ``SessionRequests.submit`` and the passes after it.

    Raises:
        NotFound, InvalidSpec, Conflict: as at submission.
    """
    check_workdirs(live.group(spec.group), spec.kernels)
    check_uses(cluster, principal.owner, spec.group, spec.kernels, now)
    check_priority(live, cluster, principal, principal.owner, spec)
    spec = within_time_limits(live.group(spec.group), spec)
    dependencies = find_dependencies(cluster, principal.owner, spec.after, ended)
    spec = spec.model_copy(update={"after": with_ids(spec.after, dependencies)})
    workload = session_class(principal.owner, spec)
    admit_spec(live, cluster, principal.owner, spec_size(spec))
    return Planner(live, cluster, principal, dependencies, now).plan(workload, 1)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The sessions that are handed in: ``count`` equals."""

    workload: WorkloadClass
    created_at: float
    count: int

    def first(self, count: int) -> Sequence[SessionWorkload]:
        """The first of them. Their ids are no session's, and sort behind those of all sessions of
        the same age."""
        return [
            SessionWorkload(
                SessionId(f"{IdKind.SESSION}-planned-{index:05}"), self.created_at, self.workload
            )
            for index in range(count)
        ]


class Planner:
    """Makes one plan: rehearses a pass over the group's queue with the planned sessions in it.

    Args:
        principal: who asks, and is told of nobody else's work.
        dependencies: the work for which the planned sessions would wait, as far as it was found.
    """

    def __init__(
        self,
        live: Live,
        cluster: ClusterState,
        principal: Principal,
        dependencies: Found,
        now: float,
    ) -> None:
        self._live = live
        self._cluster = cluster
        self._principal = principal
        self._dependencies = dict(dependencies)
        self._now = now

    def plan(self, workload: WorkloadClass, sessions: int) -> PlanView:
        """The fate of equal sessions of this class.

        Args:
            sessions: how many of them are handed in.

        Raises:
            InvalidSpec, Conflict: as at submission.
        """
        admit(self._live, self._cluster, workload, sessions)
        group = self._cluster.groups[workload.group]
        most = min(sessions, MAX_TRIED)

        def look(policy: Policy) -> PlanView:
            hooked = policy.hooks[workload.type].on_schedule(workload)
            planned = _Planned(hooked, self._now, most)
            return self._under(policy, group, planned)

        return with_policy(self._live, group, look)

    def _under(self, policy: Policy, group: GroupState, wished: "_Planned") -> PlanView:
        context, first = self._context(group), wished.first(1)[0]
        found = explain(first, group.queue, group.snapshot, policy, context)
        tried = min(FIRST_TRIED, wished.count)
        while True:
            planned = wished.first(tried)
            result = group.rehearse(planned, policy, context)
            if tried == wished.count or len(_started(result, planned)) < tried:
                break  # equals start in order: where one does not, none of the others does
            tried = min(MORE_TRIED * tried, wished.count)
        rest = next((why for each, why in result.refused.items() if first.id in each), ())
        kept = result.rooms.get(first.id)
        if found.reservation is None and kept is not None:
            found = replace(found, reservation=kept.reservation)
        if found.displaces is None:
            ids = {session.id for session in planned}
            displaced = (each for each in result.displaced if each.session in ids)
            found = replace(found, displaces=next(displaced, None))
        return self._view(found, wished, _started(result, planned), rest)

    def _context(self, group: GroupState) -> PassContext:
        """The context of a pass, in which the plan's dependencies are known too."""
        context = group.context(self._now)

        def dependency_state(owner: Owner, dependency: Dependency) -> DependencyState:
            if owner == self._principal.owner and dependency.on in self._dependencies:
                return self._dependencies[dependency.on].state
            return context.dependency_state(owner, dependency)

        return replace(context, dependency_state=dependency_state)

    def _view(
        self,
        found: Explanation,
        wished: "_Planned",
        started: Sequence[tuple[KernelPlacement, ...]],
        rest: Sequence[Reason],
    ) -> PlanView:
        """
        Args:
            started: the places of the sessions that would start.
            rest: the explanation of the first that would not.
        """
        live, may_see = self._live, self._principal.may_see
        displaces = found.displaces
        places: Iterable[KernelPlacement] = chain.from_iterable(started)
        if not started and displaces is not None:
            places = displaces.kernels
        outcome = _outcome(found)
        reasons = list(found.reasons or rest)
        adds: Sequence[Addition] = ()
        if reasons and len(started) < wished.count:
            reasons, adds = self._with_pools(wished, len(started), reasons)
        expected_at = found.reservation.expected_at if found.reservation else None
        return PlanView(
            outcome=outcome,
            verdict=sentences.plan(
                outcome, found.group, wished.count, len(started), displaces=displaces is not None
            ),
            group=found.group,
            sessions=wished.count,
            starting=len(started),
            kernels=tuple(self._kernel(*each) for each in enumerate(islice(places, MAX_SHOWN))),
            reasons=tuple(map(ReasonView.of, reasons)),
            displaces=victims_of(displaces, live, may_see) if displaces is not None else (),
            expected_at=expected_at,
            adds=tuple(map(_addition, adds)),
            placement=placement_view(found, live, may_see, self._now),
        )

    def _with_pools(
        self, wished: "_Planned", started: int, reasons: list[Reason]
    ) -> tuple[list[Reason], Sequence[Addition]]:
        """The reasons for which planned sessions would wait, and the slices that would be made for
        them."""
        workload = wished.workload
        outlook = self._cluster.groups[workload.group].outlook
        if outlook is None or any(each.code not in WANTS_ROOM for each in reasons):
            return reasons, ()
        members = QueueClass(workload)
        members.add_all(wished.first(wished.count)[started:])
        adds = outlook.additions(members, self._now)
        if adds:
            return [each for each in reasons if each.code not in LACKS_MACHINES], adds
        return [*reasons, *outlook.refusals(workload)], adds

    def _kernel(self, index: int, place: KernelPlacement) -> PlannedKernelView:
        return PlannedKernelView(
            index=index,
            agent=self._live.agents[place.agent_id].name,
            devices=tuple(
                ShareView(index=share.index, share=share.milli / GPU_WHOLE)
                for share in place.shares
            ),
        )


def _addition(added: Addition) -> AdditionView:
    return AdditionView(
        sentence=sentences.addition(added.pool, added.slices, added.machines, added.price),
        pool=added.pool,
        slices=added.slices,
        machines=added.machines,
        price=added.price,
    )


def _started(
    result: PassResult, planned: Sequence[SessionWorkload]
) -> list[tuple[KernelPlacement, ...]]:
    """The places of the sessions that would start, which are the first of ``planned``: equals start
    in order."""
    ids = {session.id for session in planned}
    return [placed.kernels for placed in result.placed if placed.session.id in ids]


def _outcome(found: Explanation) -> PlanOutcome:
    if found.starts:
        return PlanOutcome.STARTS
    if found.displaces is not None:
        return PlanOutcome.DISPLACES
    if any(each.code in NEVER for each in found.reasons):
        return PlanOutcome.CANCELLED
    return PlanOutcome.WAITS
