"""Pools and slices as people are shown them: as they are stored, and as they are now."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Row

from muster.control.pool.autoscaler import RouteDemand
from muster.control.pool.fleet import Fleet, is_silent
from muster.control.pool.pool_states import why_closed
from muster.control.pool.records import OwnMachine, Pool, Slice
from muster.control.pool.shapes import differing
from muster.control.pool.silence import silence
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_machines import SliceMachineRefuses
from muster.core.reasons.of_slices import SliceIdle
from muster.core.states import AgentStatus
from muster.core.states.slice import SliceStatus
from muster.core.views.base import ReasonView
from muster.core.views.pools import MachineView, PoolView, SliceView
from muster.store.records import Agent

MAX_MACHINES = 100
"""Machines of a slice that are told."""
HOUR_S = 3_600.0


def stored_pool(pool: Pool) -> PoolView:
    """A pool, without what is known of one that exists only."""
    return PoolView(
        id=pool.id,
        name=pool.name,
        group=pool.group,
        provider=pool.spec.provider,
        status=pool.status,
        status_changed_at=pool.status_changed_at,
        created_at=pool.created_at,
        finished_at=pool.finished_at,
        spec=pool.spec.model_dump(mode="json"),
        revision=pool.revision,
        reason=_told(pool.reason),
        replacing=pool.replacing,
    )


def live_pool(
    pool: Pool, slices: Sequence[Slice], fleet: Fleet, routing: RouteDemand, now: float
) -> PoolView:
    """A pool that exists, with its slices."""
    orphans = fleet.orphans.get(pool.name, {}).values()
    reported = pool.reported
    return replace(
        stored_pool(pool),
        slices=by_status(slices),
        leaving=sum(each.doomed is not None for each in slices),
        outdated=sum(each.revision < pool.revision for each in slices),
        machines=sum(len(each.machines) for each in slices),
        price=sum(each.price for each in slices),
        closed=_told(why_closed(pool, now)),
        reported=None if reported is None else reported.model_dump(mode="json"),
        differs=_told(differs(pool)),
        listed_at=pool.listed_at,
        list_error=pool.list_error,
        unknown_machines=sum(each.machines for each in orphans),
        losses=len(pool.losses),
        usual_s=routing.usual.of(pool.name),
    )


def differs(pool: Pool) -> Reason | None:
    """How the machines of a pool differ from what it declares; None where they do not."""
    if pool.reported is None:
        return None
    return differing(pool.name, pool.spec.machine, pool.reported)


def slice_view(
    known: Slice | Row[Any],
    now: float,
    *,
    size: int,
    machine_price: float,
    machines: Sequence[MachineView],
    doomed: Reason | None,
    reason: Reason | None,
) -> SliceView:
    """A slice, as it is in the mirror or in SQL, without what is known of one that exists only.

    Args:
        size: how many machines it has.
        machine_price: of one, for an hour.
        machines: the first of them, or none where they are only counted.
    """
    hours = machine_hours(known, now)
    return SliceView(
        id=known.id,
        pool=known.pool,
        group=known.group,
        status=SliceStatus(known.status),
        status_changed_at=known.status_changed_at,
        revision=known.revision,
        machines=tuple(machines),
        other_machines=size - len(machines),
        doomed=_told(doomed),
        doomed_at=known.doomed_at,
        leave_by=None if known.leave_by == float("inf") else known.leave_by,
        failed=bool(known.failed),
        held_by=known.held_by,
        idle_since=known.idle_since,
        tries=known.tries,
        reason=_told(reason),
        created_at=known.created_at,
        ready_at=known.ready_at,
        finished_at=known.finished_at,
        price=size * machine_price,
        machine_hours=hours,
        cost=hours * machine_price,
    )


def refusal(slice_: Slice) -> Reason | None:
    """The words of the first machine that does not start, of a slice that is coming; None where no
    machine has said any in the last list."""
    is_coming = slice_.status in (SliceStatus.BOOTING, SliceStatus.INITIALIZING)
    if slice_.doomed is not None or not is_coming or not slice_.details:
        return None
    machine = min(slice_.details)
    told = slice_.details[machine]
    return SliceMachineRefuses(slice=slice_.id, machine=machine, told=told)


def live_slice(
    slice_: Slice, fleet: Fleet, pool: Pool | None, now: float, *, counts: bool = False
) -> SliceView:
    """A slice that exists, or just ended, with its agents.

    Args:
        pool: of the slice.
        counts: whether its machines are only counted.
    """
    agents = fleet.agents(slice_)
    machines = () if counts else slice_.machines[:MAX_MACHINES]
    view = slice_view(
        slice_,
        now,
        size=len(slice_.machines),
        machine_price=slice_.spec.price,
        machines=[machine_view(each, agents.get(each.name)) for each in machines],
        doomed=slice_.doomed,
        reason=slice_.reason or refusal(slice_),
    )
    return replace(
        view,
        outdated=pool is not None and slice_.revision < pool.revision,
        joined=sum(_has_joined(each) and not is_silent(each) for each in agents.values()),
        kernels=fleet.kernels(slice_),
        silent=_told(silence(slice_, pool, fleet, now)),
        stays=_told(stays(slice_, pool, now)),
        deletes_at=deletes_at(slice_, pool),
    )


def stays(slice_: Slice, pool: Pool | None, now: float) -> Reason | None:
    """Why a slice is not being deleted; None if it is, or if nothing was decided about it yet."""
    at = deletes_at(slice_, pool)
    if at is None or slice_.idle_since is None:
        return None if slice_.doomed is not None else slice_.stays
    return SliceIdle(
        idle_s=round(now - slice_.idle_since),
        in_s=max(0, round(at - now)),
    )


def deletes_at(slice_: Slice, pool: Pool | None) -> float | None:
    """When a slice is deleted for being idle if nothing else happens; None if it is not to be."""
    idle = slice_.stays is not None and slice_.stays.code is ReasonCode.SLICE_IDLE
    if pool is None or slice_.doomed is not None or slice_.idle_since is None or not idle:
        return None
    return slice_.idle_since + pool.spec.idle_timeout


def machine_hours(slice_: Slice | Row[Any], now: float) -> float:
    """The hours for which its machines were there, counted from the wish for them; of those that
    the provider made."""
    since_s: float = (slice_.finished_at or now) - slice_.created_at
    return int(slice_.made) * max(0.0, since_s) / HOUR_S


def by_status(slices: Iterable[Slice]) -> dict[SliceStatus, int]:
    """How many there are in each status, in the order of a slice's life."""
    counts = Counter(each.status for each in slices)
    return {status: counts[status] for status in SliceStatus if counts[status]}


def slices_by_pool(slices: Iterable[Slice]) -> Mapping[str, list[Slice]]:
    found: dict[str, list[Slice]] = {}
    for each in slices:
        found.setdefault(each.pool, []).append(each)
    return found


def machine_view(machine: OwnMachine, agent: Agent | None) -> MachineView:
    """A machine, with its agent if it has one."""
    return MachineView(
        name=machine.name,
        id=machine.id,
        address=machine.address,
        agent=None if agent is None else agent.id,
        joined=agent is not None and _has_joined(agent),
        silent_since=agent.seen_at if agent is not None and is_silent(agent) else None,
    )


def _has_joined(agent: Agent) -> bool:
    return bool(agent.boot_id) and agent.status is not AgentStatus.LOST


def _told(why: Reason | None) -> ReasonView | None:
    return None if why is None else ReasonView.of(why)
