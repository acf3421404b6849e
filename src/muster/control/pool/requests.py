"""Operators' requests about pools and slices: functions of one wake's work that refuse before they
change anything."""

import math
from typing import Any

from muster.control.engine.handler import TransitionStatus
from muster.control.engine.work import Move, Work
from muster.control.pool.fleet import Fleet
from muster.control.pool.pools import PoolLifecycle
from muster.control.pool.records import Pool, PoolId, Slice
from muster.control.pool.slices import SliceLifecycle
from muster.control.pool.specs import keep_spec
from muster.control.pool.states import POOL_TABLE, PoolStatus
from muster.control.session.cluster.taken_ports import TakenPorts
from muster.core.errors import Conflict, InvalidSpec, NotFound, Problem
from muster.core.ids import IdKind
from muster.core.owner import Principal
from muster.core.reasons import Reason
from muster.core.reasons.of_pools import PoolChangedBy
from muster.core.reasons.of_slices import (
    SliceDeletedBy,
    SliceGivenUp,
    SliceHeldBy,
    SlicePoolDeleted,
)
from muster.core.reasons.wording import counted
from muster.core.results import SchedulingResult
from muster.core.settings import SETTING_PHASE, Difference, differences
from muster.core.specs.pool import PoolSpec
from muster.core.states import AgentStatus
from muster.store.records import Agent

PHASE = "Request"
MAX_POOLS = 1_000
_SHAPING = frozenset({"provider", "settings", "machine", "slice_size", "preemptible"})
"""Keys of which a change makes slices of the former revision outdated. Others change in place."""


class PoolRequests:
    """Requests about pools and slices."""

    def __init__(
        self, fleet: Fleet, slices: SliceLifecycle, pools: PoolLifecycle, ports: TakenPorts
    ) -> None:
        self._fleet = fleet
        self._slices = slices
        self._pools = pools
        self._ports = ports

    # Pools

    def apply(self, work: Work, principal: Principal, spec: PoolSpec) -> Pool:
        """Make a pool, or change one. What concerns its machines makes another revision, and leaves
        slices of former revisions as they are.

        Raises:
            NotFound: there is no such group.
            Conflict: it is being deleted, there are too many, or its group or provider would
                change while it has slices.
        """
        work.live.group(spec.group)
        pool = self._fleet.pool(spec.name)
        if pool is None:
            return self._add(work, principal, spec)
        if pool.status is PoolStatus.DELETING:
            raise Conflict(f"pool {spec.name} is being deleted: wait until it is gone")
        if self._fleet.slices(spec.name):
            for key, before, now in (
                ("group", pool.spec.group, spec.group),
                ("provider", pool.spec.provider, spec.provider),
            ):
                if before != now:
                    raise Conflict(
                        f"pool {spec.name} has slices of {key} {before}: delete it first, or give "
                        f"the new one another name"
                    )
        if spec == pool.spec:
            return pool
        before_keys, now_keys = pool.spec.model_dump(), spec.model_dump()
        reshaped = any(before_keys[key] != now_keys[key] for key in _SHAPING)
        relabelled = pool.spec.attributes != spec.attributes
        self._slices.changed_groups.add(pool.group)  # its demand has a pool less
        former, revision = pool.spec, (pool.name, pool.revision)
        pool.spec, pool.group = spec, spec.group
        work.unit.rewrite(pool)
        self._fleet.add_pool(pool)
        if reshaped:
            pool.revision += 1
            pool.reported = None
            if self._fleet.has_slices_of(revision):
                keep_spec(work.unit, revision, former)
        else:
            self._share(work, pool)
        self._whatever_was_wrong_may_be_mended(pool)
        if relabelled:
            self._relabel(work, pool)
        told = differences(_said(former), _said(spec))
        self._changed(work, principal, pool, "changed", told)
        return pool

    def _add(self, work: Work, principal: Principal, spec: PoolSpec) -> Pool:
        if len(work.live.of(Pool)) >= MAX_POOLS:
            raise Conflict(f"there are {MAX_POOLS} pools already")
        tag = spec.name.lower()
        for other in work.live.of(Pool).values():
            if other.name.lower() == tag:
                expected = f"expected another name: that of pool {other.name} differs by case only"
                raise InvalidSpec([Problem("name", repr(spec.name), expected)])
        pool = Pool(
            id=PoolId(work.ids.new(IdKind.POOL)),
            name=spec.name,
            group=spec.group,
            spec=spec,
            revision=1,
            status=PoolStatus.ACTIVE,
            status_changed_at=work.now,
            created_at=work.now,
        )
        work.unit.add(pool)
        self._fleet.add_pool(pool)
        self._changed(work, principal, pool, "made", differences({}, _said(spec)))
        return pool

    def _share(self, work: Work, pool: Pool) -> None:
        """Have the slices of a pool's present revision go by its spec as it is now."""
        for slice_ in self._fleet.slices(pool.name):
            if slice_.revision == pool.revision:
                slice_.spec = pool.spec
                work.unit.touch(slice_)
                work.mark(slice_)

    def _relabel(self, work: Work, pool: Pool) -> None:
        """Give the agents of a pool, and those that are to join, its present attributes."""
        for slice_ in self._fleet.slices(pool.name):
            fixed = self._fleet.attributes(slice_)
            self._fleet.admit(slice_)
            for agent in self._fleet.agents(slice_).values():
                kept = {
                    name: value
                    for name, value in agent.attributes.items()
                    if name not in agent.fixed
                }
                agent.attributes, agent.fixed = {**kept, **fixed}, fixed
                work.unit.touch(agent)
                work.mark(agent)
                self._slices.agent_changed(agent)

    def _changed(
        self,
        work: Work,
        principal: Principal,
        pool: Pool,
        what: str,
        told: tuple[Difference, ...] = (),
    ) -> None:
        work.unit.touch(pool)
        work.mark(pool)
        why = _pool_changed(principal, what, told)
        work.unit.note(pool, SETTING_PHASE, SchedulingResult.SUCCESS, why)
        self._slices.changed_groups.add(pool.group)

    def pause(self, work: Work, principal: Principal, name: str) -> Pool:
        """Have a pool make nothing more; its idle slices still go. One that stands still goes on
        doing so, and is paused once its machines are heard again.

        Raises:
            NotFound: there is no such pool.
            Conflict: it is being deleted.
        """
        pool = self._found(name)
        if pool.status is not PoolStatus.TRIPPED:
            return self._move(work, principal, name, PoolStatus.PAUSED, "paused")
        if not pool.was_paused:
            pool.was_paused = True
            self._changed(work, principal, pool, "paused")
        return pool

    def resume(self, work: Work, principal: Principal, name: str) -> Pool:
        """Have a pool make machines again; machines that are silent now are left to be judged one
        by one.

        Raises:
            NotFound: there is no such pool.
            Conflict: it is being deleted.
        """
        pool = self._move(work, principal, name, PoolStatus.ACTIVE, "resumed")
        pool.pardoned_at = work.now
        self._whatever_was_wrong_may_be_mended(pool)
        work.unit.touch(pool)
        return pool

    def _whatever_was_wrong_may_be_mended(self, pool: Pool) -> None:
        pool.standing = pool.standing.ready()
        self._ports.forget_pool(pool.name)

    def replace(self, work: Work, principal: Principal, name: str, at_a_time: int) -> Pool:
        """Have the slices of former revisions replaced, so many at a time; 0 ends that.

        Raises:
            NotFound: there is no such pool.
        """
        pool = self._found(name)
        told = differences({"replacing": pool.replacing}, {"replacing": at_a_time})
        pool.replacing = at_a_time
        what = "replaces slices of" if at_a_time else "leaves"
        self._changed(work, principal, pool, what, told)
        return pool

    def delete(self, work: Work, principal: Principal, name: str) -> Pool:
        """Delete a pool with all of its slices.

        Raises:
            NotFound: there is no such pool.
        """
        pool = self._found(name)
        if pool.status is not PoolStatus.DELETING:
            why = _pool_changed(principal, "deletes")
            to = TransitionStatus(PoolStatus.DELETING)
            self._pools.move(work, [pool], POOL_TABLE.live, to, Move(SETTING_PHASE, reason=why))
        gone = SlicePoolDeleted(by=principal.owner.user)
        for slice_ in self._fleet.slices(name):
            self._slices.doom(work, slice_, PHASE, gone)
        return pool

    def _move(self, work: Work, principal: Principal, name: str, to: PoolStatus, what: str) -> Pool:
        pool = self._found(name)
        if pool.status is PoolStatus.DELETING:
            raise Conflict(f"pool {name} is being deleted")
        if pool.status is not to:
            why = _pool_changed(principal, what)
            there = TransitionStatus(to)
            self._pools.move(work, [pool], POOL_TABLE.live, there, Move(SETTING_PHASE, reason=why))
        return pool

    def _found(self, name: str) -> Pool:
        pool = self._fleet.pool(name)
        if pool is None:
            raise NotFound(f"there is no pool {name!r}")
        return pool

    # Slices

    def hold(self, work: Work, principal: Principal, id_: str, *, held: bool) -> Slice:
        """Keep a slice from being deleted for being idle; or let it go.

        Raises:
            NotFound: there is no such slice any more.
            Conflict: it is to be deleted already.
        """
        slice_ = self._slice(work, id_)
        if held and slice_.doomed is not None:
            raise Conflict(f"slice {id_} is being deleted: {slice_.doomed.sentence()}")
        slice_.held_by = principal.owner.user if held else None
        work.unit.touch(slice_)
        work.mark(slice_)
        what = "holds" if held else "releases"
        why = SliceHeldBy(by=principal.owner.user, what=what)
        work.unit.note(slice_, PHASE, SchedulingResult.SUCCESS, why)
        self._slices.changed_groups.add(slice_.group)
        return slice_

    def delete_slice(
        self, work: Work, principal: Principal, id_: str, leave_within_s: float | None
    ) -> Slice:
        """Delete a slice.

        Args:
            leave_within_s: how long its work may go on; None is until it ends.

        Raises:
            NotFound: there is no such slice any more.
        """
        slice_ = self._slice(work, id_)
        leave_by = float("inf") if leave_within_s is None else work.now + leave_within_s
        why = SliceDeletedBy(by=principal.owner.user)
        self._slices.doom(work, slice_, PHASE, why, leave_by=leave_by)
        return slice_

    def give_up_slice(self, work: Work, principal: Principal, id_: str) -> Slice:
        """End a slice whose machines cannot be deleted: the principal vouches that they are off for
        good. The kernels of its agents have ended by then, as the leases have.

        Raises:
            NotFound: there is no such slice any more.
            Conflict: one of its agents is alive, or may still run kernels.
        """
        slice_ = self._slice(work, id_)
        for agent in self._fleet.agents(slice_).values():
            if agent.status is AgentStatus.ALIVE:
                raise Conflict(
                    f"agent {agent.name} of slice {id_} is alive: without --gone its machines are "
                    f"deleted"
                )
            held = len(work.live.allocations_on.get(agent.id, ()))
            if agent.status is AgentStatus.UNREACHABLE and held:
                raise Conflict(_may_run(work, agent, held))
        why = SliceGivenUp(by=principal.owner.user)
        self._slices.give_up(work, slice_, PHASE, why)
        return slice_

    def _slice(self, work: Work, id_: str) -> Slice:
        slice_ = work.live.of(Slice).get(id_)
        if slice_ is None:
            raise NotFound(f"there is no slice {id_} any more")
        return slice_


def _may_run(work: Work, agent: Agent, held: int) -> str:
    """The reason why a slice with this agent cannot be given up yet."""
    left_s = agent.lost_at - work.now
    when = "once it is lost"
    if math.isfinite(left_s):
        when = f"in {max(1, round(left_s))} s, when its lease has ended"
    return (
        f"agent {agent.name} may still run {counted(held, 'kernel')}: try again {when}, or vouch "
        f"for its end with `muster agents remove --lost {agent.name}`"
    )


def _pool_changed(principal: Principal, what: str, told: tuple[Difference, ...] = ()) -> Reason:
    by = principal.owner
    return PoolChangedBy(
        by=by.user, domain=by.domain, token=principal.token, what=what, changes=told or None
    )


def _said(spec: PoolSpec) -> dict[str, Any]:
    """The keys of a pool that are no defaults."""
    return spec.model_dump(mode="json", exclude={"kind", "name"}, exclude_defaults=True)
