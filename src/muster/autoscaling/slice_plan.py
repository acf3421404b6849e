"""The slices that are made and deleted, and why each of the others stays (design: Autoscaling).

Slices are made for demand, for ``min_slices`` and for ``buffer_slices``; an idle slice is deleted
after ``idle_timeout`` unless one of these wants it. Both follow from the same sums, so that nothing
is made and deleted in turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.autoscaling.pool_state import CeilingBudget, PoolState
from muster.core.reasons import Reason
from muster.core.reasons.of_slices import (
    SliceAtMin,
    SliceAwaited,
    SliceBusy,
    SliceHeld,
    SliceIdle,
    SliceIdleTooLong,
    SliceInBuffer,
    SliceIsolated,
    SlicePromised,
)


@dataclass(frozen=True, slots=True)
class SliceState:
    """A slice that is not to be deleted.

    Args:
        idle_since: since when nobody used it nor was promised room on it, in seconds since the
            epoch; None if somebody does.
        busy: whether sessions hold room on its machines.
        promised: how many waiting sessions are to find their room on it.
        held_by: the operator who holds it.
        isolated: the name of a machine of it that waits for an operator; empty if none does.
        awaited: the id of a job that waits for a machine of it; empty if none does.
        awaited_until: how long that job waits at most, in seconds since the epoch.
    """

    id: str
    pool: str
    idle_since: float | None
    busy: bool = False
    promised: int = 0
    held_by: str | None = None
    isolated: str = ""
    awaited: str = ""
    awaited_until: float = 0.0

    @property
    def is_kept(self) -> bool:
        """Whether it is for an operator to say what becomes of it."""
        return self.held_by is not None or bool(self.isolated)


@dataclass(slots=True)
class SlicePlan:
    """The changes to be made.

    Args:
        delete: slices to be deleted, with why, the longest idle first.
        stays: why each other slice stays.
        launch: how many slices of each pool are to be made.
        looks_at: when the plan changes next if nothing else does, in seconds since the epoch.
    """

    delete: dict[str, Reason] = field(default_factory=dict)
    stays: dict[str, Reason] = field(default_factory=dict)
    launch: dict[str, int] = field(default_factory=dict)
    looks_at: float | None = None


def plan_slices(
    pools: Sequence[PoolState],
    slices: Iterable[SliceState],
    launches: Mapping[str, int],
    budget: CeilingBudget,
    now: float,
) -> SlicePlan:
    """Decide about all slices of a group.

    Args:
        slices: of these pools, without those that are to be deleted already.
        launches: slices to be made for demand, by pool, which the pools and ``budget`` allow.
        budget: of the group's ceilings.
    """
    plan = SlicePlan()
    of_pool: dict[str, list[SliceState]] = {pool.spec.name: [] for pool in pools}
    for each in slices:
        of_pool[each.pool].append(each)
    for pool in pools:
        name = pool.spec.name
        _delete(plan, pool, of_pool[name], launches.get(name, 0), now)
        budget.add(pool.spec, launches.get(name, 0))
    for pool in pools:
        name = pool.spec.name
        for_demand = launches.get(name, 0)
        more = _missing(pool, of_pool[name], plan, for_demand)
        allowed = budget.allows(pool.spec)
        more = max(0, min(more, pool.headroom - for_demand, more if allowed is None else allowed))
        budget.add(pool.spec, more)
        if for_demand + more:
            plan.launch[name] = for_demand + more
    return plan


def _delete(
    plan: SlicePlan, pool: PoolState, slices: Sequence[SliceState], launches: int, now: float
) -> None:
    spec = pool.spec
    idle = [each for each in slices if each.idle_since is not None]
    left, idle_left = len(slices) + launches, len(idle)
    for each in slices:
        if each.idle_since is None:
            plan.stays[each.id] = (
                SliceBusy() if each.busy else SlicePromised(sessions=each.promised)
            )
    for each in sorted(idle, key=lambda each: (each.idle_since, each.id)):
        assert each.idle_since is not None
        idle_s = now - each.idle_since
        why: Reason
        if each.held_by is not None:
            why = SliceHeld(by=each.held_by, slice=each.id)
        elif each.awaited:
            plan.looks_at = min(each.awaited_until, plan.looks_at or each.awaited_until)
            in_s = round(each.awaited_until - now)
            why = SliceAwaited(job=each.awaited, in_s=in_s)
        elif each.isolated:
            why = SliceIsolated(agent=each.isolated, slice=each.id)
        elif left <= spec.min_slices:
            why = SliceAtMin(pool=spec.name, slices=left, min_slices=spec.min_slices)
        elif idle_left <= spec.buffer_slices:
            why = SliceInBuffer(pool=spec.name, buffer_slices=spec.buffer_slices)
        elif idle_s < spec.idle_timeout:
            ends_at = each.idle_since + spec.idle_timeout
            plan.looks_at = min(ends_at, plan.looks_at or ends_at)
            why = SliceIdle(idle_s=round(idle_s), in_s=round(ends_at - now))
        else:
            plan.delete[each.id] = SliceIdleTooLong(idle_s=round(idle_s))
            left, idle_left = left - 1, idle_left - 1
            continue
        plan.stays[each.id] = why


def _missing(pool: PoolState, slices: Sequence[SliceState], plan: SlicePlan, launches: int) -> int:
    """The slices that ``min_slices`` and ``buffer_slices`` want besides those for demand."""
    stay = [each for each in slices if each.id not in plan.delete]
    idle = sum(each.idle_since is not None for each in stay)
    for_min = pool.spec.min_slices - len(stay) - launches
    return max(0, for_min, pool.spec.buffer_slices - idle)
