"""ConsolidateSlices: a busy slice is emptied because its work has room elsewhere, in groups that
ask for that (design: Autoscaling)."""

import math
from collections.abc import Iterable, Sequence

from muster.autoscaling.consolidation import (
    QUIET_S,
    ConsolidationRules,
    PlacedWork,
    UsedSlice,
    consolidate,
    is_at_rest,
    slices_to_try,
)
from muster.autoscaling.slice_plan import SliceState
from muster.control.engine.handler import HandlerResult, LifecycleHandler, StatusTransitions
from muster.control.engine.work import Work
from muster.control.pool.fleet import Fleet, is_silent
from muster.control.pool.pool_states import why_closed
from muster.control.pool.records import Pool, Slice, SliceId
from muster.control.pool.slices import SliceLifecycle
from muster.control.pool.states import POOL_TABLE, PoolStatus
from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import IN_PLACE
from muster.core.reasons.of_slices import SliceConsolidated
from muster.core.reasons.wording import PRICE
from muster.core.specs import ScalingGroup
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.policy.guard import PluginFault
from muster.store.live import Live
from muster.store.records import Kernel, Session

LOOK_S = 60.0
"""The time between two looks at a group."""


class ConsolidateSlices(LifecycleHandler[Pool]):
    """Dooms a busy slice of a group now and then, whose work begins anew elsewhere."""

    name = "ConsolidateSlices"
    entity = Pool
    between_tries = True
    statuses = frozenset(POOL_TABLE.live)
    transitions = StatusTransitions()

    def __init__(
        self, live: Live, cluster: ClusterState, fleet: Fleet, slices: SliceLifecycle
    ) -> None:
        self._live = live
        self._cluster = cluster
        self._fleet = fleet
        self._slices = slices
        self._looks_at: dict[str, float] = {}
        self._emptied_at: dict[str, float] = {}
        self._tried: dict[str, dict[str, float]] = {}  # by group and slice
        self._due: list[str] = []

    # When

    def gather(self, candidates: Sequence[Pool], work: Work) -> Sequence[Pool]:
        """No pools: the groups that are to be looked at now are found by the time."""
        asking = {
            group: pools[0]
            for group, pools in self._fleet.groups().items()
            if self._live.groups[group].consolidate_after is not None
        }
        for group in self._looks_at.keys() - asking.keys():
            del self._looks_at[group], self._emptied_at[group]
            self._tried.pop(group, None)
        for group in asking.keys() - self._looks_at.keys():
            # A former controller may have emptied one just now.
            self._looks_at[group] = work.now + QUIET_S
            self._emptied_at[group] = work.now
            work.mark(asking[group])  # so that its alarm is set
        self._due = [group for group in asking if self._looks_at[group] <= work.now]
        return ()

    def is_due(self, targets: Sequence[Pool]) -> bool:
        return bool(self._due)

    def next_look(self, group: str) -> Iterable[float]:
        """When the group is to be looked at next."""
        if group in self._looks_at:
            yield self._looks_at[group]

    # What

    def execute(self, targets: Sequence[Pool], work: Work) -> HandlerResult[Pool]:
        due, self._due = self._due, []
        for group in due:
            self._looks_at[group] = work.now + LOOK_S
            work.mark(self._fleet.groups()[group][0])  # so that its alarm is set
            state = self._cluster.groups[group]
            if is_at_rest(state) and self._cluster.shapes.lowest_prefilled(group) is None:
                try:
                    self._look(group, state, work)
                except PluginFault as fault:
                    self._cluster.plugin_failed(group, fault)
        return HandlerResult()

    def _look(self, name: str, group: GroupState, work: Work) -> None:
        pools = self._fleet.groups()[name]
        every = [slice_ for pool in pools for slice_ in self._fleet.slices(pool.name)]
        if any(slice_.doomed is not None and self._fleet.is_used(slice_) for slice_ in every):
            return  # one at a time
        slices = [self._used(slice_, work.now) for slice_ in every if slice_.doomed is None]
        rules, tried = _rules(self._live.groups[name]), self._tried.get(name, {})
        may_go = slices_to_try(
            {pool.name: pool.effective for pool in pools if _may_lose(pool, work.now)},
            slices,
            rules,
            emptied_s=work.now - self._emptied_at[name],
            tried=tried,
        )
        there = {each.state.id for each in slices}
        tried = {id_: at for id_, at in tried.items() if id_ in there}
        self._tried[name] = tried | {each.state.id: work.now for each in may_go}
        found = consolidate(
            group.snapshot,
            group.policy.selector,
            {pool.name: pool.effective for pool in pools},
            slices,
            may_go,
            lambda id_: self._work_on(SliceId(id_), work.now),
            rules,
        )
        if found is not None:
            self._emptied_at[name] = work.now
            why = SliceConsolidated(
                sessions=found.sessions,
                saving=math.floor(100 * found.saving),
                price=round(found.price, 2),
                unit=PRICE,
            )
            slice_ = self._live.of(Slice)[SliceId(found.slice)]
            self._slices.doom(work, slice_, self.name, why)

    def _used(self, slice_: Slice, now: float) -> UsedSlice:
        hold = self._fleet.awaited(slice_, self._cluster.machine_holds, now)
        state = SliceState(
            slice_.id,
            slice_.pool,
            slice_.idle_since,
            busy=self._fleet.is_used(slice_),
            held_by=slice_.held_by,
            isolated=self._fleet.isolated(slice_),
            awaited="" if hold is None else hold.job,
            awaited_until=0.0 if hold is None else hold.until,
        )
        return UsedSlice(
            state,
            frozenset(agent.id for agent in self._fleet.agents(slice_).values()),
            None if slice_.ready_at is None else now - slice_.ready_at,
            now - slice_.created_at,
        )

    def _work_on(self, id_: SliceId, now: float) -> Sequence[PlacedWork] | None:
        """The work on a slice; None if a machine of it is silent or is to take no work, or holds a
        kernel that is ending."""
        slice_ = self._live.of(Slice)[id_]
        agents = self._fleet.agents(slice_)
        found: dict[Session, PlacedWork] = {}
        if len(agents) < len(slice_.machines):
            return None
        for agent in agents.values():
            if is_silent(agent) or agent.barred is not None or agent.ill:
                return None
            for kernel_id, generation in self._live.allocations_on.get(agent.id, ()):
                kernel = self._live.kernels.get(kernel_id)
                if kernel is None or kernel.generation != generation:
                    return None
                session = kernel.session
                if session.status not in IN_PLACE or session.id not in self._cluster.placed:
                    return None
                if session not in found:
                    found[session] = self._placed(session, now)
        return [*found.values()]

    def _placed(self, session: Session, now: float) -> PlacedWork:
        placed = self._cluster.groups[session.group].placed[session.id]
        again = session.queued_at > session.created_at or any(
            kernel.attempt > 1 for kernel in session.kernels
        )
        return PlacedWork(
            session.id,
            placed.workload,
            frozenset(kernel.agent_id for kernel in placed.kernels.values()),
            all(_begins_anew(kernel) for kernel in session.kernels),
            None if session.started_at is None else now - session.started_at,
            now - session.queued_at if again else None,
        )


def _rules(group: ScalingGroup) -> ConsolidationRules:
    assert group.consolidate_after is not None, "only groups that ask for it are looked at"
    return ConsolidationRules(
        group.consolidate_after, group.consolidate_saving, group.consolidate_loss
    )


def _may_lose(pool: Pool, now: float) -> bool:
    """Whether slices of a pool may be emptied: it could make another one."""
    return pool.status is PoolStatus.ACTIVE and why_closed(pool, now) is None


def _begins_anew(kernel: Kernel) -> bool:
    """Whether a job begins another attempt if this one loses its place, however far it has come."""
    job = kernel.session.job
    task = None if job is None or kernel.task_index is None else job.tasks.get(kernel.task_index)
    if job is None or task is None:
        return False
    return task.preemption_count < job.spec.max_retries_preemption
