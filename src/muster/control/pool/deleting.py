"""From the wish for a slice's deletion until its machines are gone; and the verdict that a slice
has to go because of its machines."""

import math
from collections.abc import Sequence

from muster.control.engine.handler import (
    NO_CHANGE,
    FollowingHandler,
    HandlerResult,
    LifecycleHandler,
    StatusTransitions,
    TransitionStatus,
    Unless,
)
from muster.control.engine.work import Work
from muster.control.pool.effects import ANSWER_S, DeleteSlice, SliceDeleted, SliceMade
from muster.control.pool.fleet import MISSED_LISTS, Fleet, is_silent
from muster.control.pool.records import Pool, Slice
from muster.control.pool.slices import DEAD_S, LEAVE_S, MAY_STAY_S, SliceLifecycle
from muster.control.pool.states import PoolStatus
from muster.control.session.cluster.state import ClusterState
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_machines import (
    ProviderFailed,
    ProviderSilent,
    SliceMachineDead,
    SliceMachineGone,
    SliceTakenAway,
)
from muster.core.reasons.of_pools import PoolReplacesNoMore
from muster.core.reasons.of_sessions import Drained
from muster.core.reasons.of_slices import SliceOutdated, SlicePoolDeleted
from muster.core.results import SchedulingResult
from muster.core.states import AgentStatus
from muster.core.states.health import ILL, HealthStatus
from muster.core.states.slice import SLICE_TABLE, SliceStatus
from muster.store.entity import Record
from muster.store.records import Agent

POLL_S = 5.0
"""The time between two looks whether machines that are being deleted are gone."""
MOST_LOSSES = 20
"""Losses of slices that a pool remembers."""
_MADE = frozenset({SliceStatus.BOOTING, SliceStatus.INITIALIZING, SliceStatus.READY})
_BY_OPERATOR = frozenset(
    {ReasonCode.SLICE_DELETED_BY, ReasonCode.SLICE_POOL_DELETED, ReasonCode.SLICE_GIVEN_UP}
)


def _failed(slice_: Record) -> bool:
    assert isinstance(slice_, Slice)
    return slice_.failed


GONE = TransitionStatus(
    SliceStatus.TERMINATED, unless=Unless(_failed, TransitionStatus(SliceStatus.FAILED))
)


def is_given_up(slice_: Slice) -> bool:
    """Whether an operator vouches that the slice's machines are off for good."""
    return slice_.doomed is not None and slice_.doomed.code is ReasonCode.SLICE_GIVEN_UP


class DeleteSlices(LifecycleHandler[Slice]):
    """Empties the slices that are to be deleted and has the provider delete their machines, again
    and again until these are gone. Of one that was given up the provider is only told: the slice
    ends whatever it answers."""

    name = "DeleteSlices"
    entity = Slice
    between_tries = True
    statuses = frozenset(SLICE_TABLE.live)
    transitions = StatusTransitions(
        success=GONE,
        need_retry=NO_CHANGE,
    )

    def __init__(self, fleet: Fleet, slices: SliceLifecycle, sessions: SessionLifecycle) -> None:
        self._fleet = fleet
        self._slices = slices
        self._sessions = sessions

    def execute(self, targets: Sequence[Slice], work: Work) -> HandlerResult[Slice]:
        result: HandlerResult[Slice] = HandlerResult()
        for slice_ in targets:
            if slice_.doomed is not None:
                self._go_on(slice_, result, work)
        return result

    def _go_on(self, slice_: Slice, result: HandlerResult[Slice], work: Work) -> None:
        outcome, slice_.outcome = slice_.outcome, None
        if isinstance(outcome, SliceDeleted):
            self._slices.turns.end(slice_, work)
            if outcome.gone or is_given_up(slice_):
                result.successes.append(slice_)
                return
            if outcome.told:
                provider = slice_.spec.provider
                failed = ProviderFailed(provider=provider, told=outcome.told)
                result.failures[slice_] = self._slices.failed(work, slice_, failed)
                return
            work.try_later(slice_, work.now + POLL_S)
        elif isinstance(outcome, SliceMade):
            self._slices.turns.end(slice_, work)  # it was doomed meanwhile
        elif slice_.handed_at is not None:
            if work.now < slice_.handed_at + ANSWER_S:
                return
            self._slices.turns.end(slice_, work)
            if is_given_up(slice_):
                result.successes.append(slice_)
                return
            why = ProviderSilent(timeout_s=ANSWER_S)
            result.failures[slice_] = self._slices.failed(work, slice_, why)
            return
        if self._is_held_back(slice_, result) or not self._is_empty(slice_, work):
            return
        if work.may_try(slice_) and self._slices.turns.begin(slice_, work):
            given_up = is_given_up(slice_)
            work.emit(DeleteSlice(slice_.id, slice_.pool, slice_.generation, given_up))

    def _is_held_back(self, slice_: Slice, result: HandlerResult[Slice]) -> bool:
        """Whether the slice's pool stands still, so that only an operator's word deletes it."""
        pool = self._fleet.pool(slice_.pool)
        if pool is None or pool.status is not PoolStatus.TRIPPED:
            return False
        if slice_.doomed is not None and slice_.doomed.code in _BY_OPERATOR:
            return False
        result.skipped[slice_] = () if pool.reason is None else (pool.reason,)
        return True

    def _is_empty(self, slice_: Slice, work: Work) -> bool:
        """Whether all work has left the slice, or had its time to; what is to leave is told to."""
        kernels, leave_by = self._fleet.kernels(slice_), slice_.leave_by or 0.0
        if not kernels or work.now >= leave_by + LEAVE_S:
            return True
        if work.now >= leave_by:
            assert slice_.doomed is not None
            for agent in self._fleet.agents(slice_).values():
                why = Drained(agent=agent.name, note=slice_.doomed.sentence()[:200])
                for kernel_id, generation in list(work.live.allocations_on.get(agent.id, ())):
                    kernel = work.live.kernels.get(kernel_id)
                    if kernel is not None and kernel.generation == generation:
                        until = leave_by + MAY_STAY_S
                        self._sessions.displace(work, kernel.session, self.name, why, until)
        return not self._fleet.kernels(slice_)


class WatchSlices(FollowingHandler[Slice]):
    """Has slices go whose machines are gone, are dead, or are taken away by their provider. One
    machine decides for its slice. While the pool stands still nothing of it is replaced."""

    name = "WatchSlices"
    entity = Slice
    statuses = _MADE

    def __init__(self, fleet: Fleet, slices: SliceLifecycle) -> None:
        self._fleet = fleet
        self._slices = slices

    def follow(self, record: Slice, work: Work) -> None:
        leaving = self._fleet.leaving.pop(record.id, ())
        pool = self._fleet.pool(record.pool)
        if pool is None:
            why = SlicePoolDeleted(by="nobody")
            self._slices.doom(work, record, self.name, why)
            return
        if pool.status is PoolStatus.TRIPPED:
            return
        if leaving:
            self._taken_away(work, pool, record, leaving[0].name, leaving[0].leaves_at or work.now)
        if record.doomed is not None:
            return
        agents = self._fleet.agents(record)
        if record.missing >= MISSED_LISTS:
            for name in sorted(record.gone):
                if name not in agents or is_silent(agents[name]):
                    self._lost(work, pool, record, SliceMachineGone(machine=name))
                    return
        for name, agent in agents.items():
            lost = agent.status is AgentStatus.LOST and not _is_rebooting(agent)
            if lost and work.now >= self._fleet.ends_at(agent.status_changed_at, DEAD_S):
                silent_s = round(work.now - agent.seen_at)
                dead = SliceMachineDead(machine=name, silent_s=silent_s)
                self._lost(work, pool, record, dead)
                return

    def _taken_away(
        self, work: Work, pool: Pool, slice_: Slice, machine: str, leaves_at: float
    ) -> None:
        in_s = max(0, round(leaves_at - work.now))
        why = SliceTakenAway(machine=machine, in_s=in_s)
        if slice_.doomed is None:
            note_loss(work, pool)
        self._slices.doom(work, slice_, self.name, why)

    def _lost(self, work: Work, pool: Pool, slice_: Slice, why: Reason) -> None:
        note_loss(work, pool)
        self._slices.doom(work, slice_, self.name, why, failed=True)


def _is_rebooting(agent: Agent) -> bool:
    """Whether the machine is silent because it is being rebooted for its health: its incident has
    limits of its own."""
    return agent.ill == ILL[HealthStatus.REBOOTING]


def note_loss(work: Work, pool: Pool) -> None:
    """Note that a pool loses a slice, by which equal pools are ranked."""
    pool.losses = (*pool.losses, work.now)[-MOST_LOSSES:]
    work.unit.touch(pool)


class ReplaceSlices(FollowingHandler[Pool]):
    """Replaces slices of former revisions where an operator asked for that: some at a time, idle
    ones first, each once its work has ended and no job waits for a machine of it. It stops once
    slices of the present revision fail."""

    name = "ReplaceSlices"
    entity = Pool
    statuses = frozenset({PoolStatus.ACTIVE})

    def __init__(self, fleet: Fleet, slices: SliceLifecycle, cluster: ClusterState) -> None:
        self._fleet = fleet
        self._slices = slices
        self._cluster = cluster

    def follow(self, record: Pool, work: Work) -> None:
        if not record.replacing or record.group in self._slices.changed_groups:
            return  # what was replaced has no successor yet
        slices = self._fleet.slices(record.name)
        old = [each for each in slices if each.revision < record.revision and each.doomed is None]
        if record.standing.failures or not old:
            if record.standing.failures:
                told = record.standing.told or "no slice is ready"
                no_more = PoolReplacesNoMore(pool=record.name, told=told)
                work.unit.note(record, self.name, SchedulingResult.GIVE_UP, no_more)
            record.replacing = 0
            work.unit.touch(record)
            return
        under_way = sum(each.doomed is not None or each.is_coming for each in slices)
        holds = self._cluster.machine_holds
        may_go = [each for each in old if self._fleet.awaited(each, holds, work.now) is None]
        may_go.sort(key=lambda each: (each.idle_since is None, each.idle_since or 0.0, each.id))
        for each in may_go[: max(0, record.replacing - under_way)]:
            why = SliceOutdated(revision=each.revision, now=record.revision)
            self._slices.doom(work, each, self.name, why, leave_by=math.inf)
