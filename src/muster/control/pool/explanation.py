"""The answers of `muster why` about pools and slices: why a pool makes nothing, what a slice waits
for, and why it is not deleted."""

import math
from collections.abc import Callable, Iterator, Sequence

from sqlalchemy import Connection

from muster.control.agent.explanation import MOST_TOLD
from muster.control.engine.retries import wait_for_next_try
from muster.control.pool.autoscaler import RouteDemand
from muster.control.pool.fleet import Fleet
from muster.control.pool.pool_states import why_closed
from muster.control.pool.records import Pool, Slice
from muster.control.pool.shapes import misfit
from muster.control.pool.silence import silence
from muster.control.pool.slices import MAY_STAY_S, time_limit_s
from muster.control.pool.states import PoolStatus
from muster.control.pool.views import differs, refusal, stays
from muster.control.session.cluster.machine_holds import MachineHolds
from muster.core import pool_sentences as sentences
from muster.core.owner import Principal
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_demand import PoolAtMax, PoolProbed
from muster.core.reasons.of_machines import ProviderFailed
from muster.core.reasons.of_slices import SliceAwaited
from muster.core.sentences import NAMED
from muster.core.states.slice import SliceStatus
from muster.core.views.base import ReasonView
from muster.core.views.placement import WhyView
from muster.core.views.pools import PoolView, SliceView
from muster.store.records import Agent

Holders = Callable[[Agent, float | None], Sequence[Reason]]
"""Answers why work has not left an agent that it is to leave: the services that have it stay, until
a moment, or without a limit."""


def kept_until(slice_: Slice) -> float | None:
    """Until when services may keep work on a slice that is to go; None without a limit."""
    if slice_.doomed is None or slice_.leave_by == math.inf:
        return None
    return (slice_.leave_by or 0.0) + MAY_STAY_S


def explain_pool(
    pool: Pool,
    slices: Sequence[Slice],
    fleet: Fleet,
    holders: Holders,
    holds: MachineHolds,
    now: float,
) -> WhyView:
    """Whether a pool makes machines, everything that keeps it from that, and what keeps its slices
    from going that are to go or to be replaced.

    Args:
        slices: of the pool.
    """
    closed = why_closed(pool, now)
    held = dict.fromkeys(why for each in slices for why in _held_up(each, fleet, holders))
    if pool.replacing:
        old = [each for each in slices if each.revision < pool.revision]
        held |= dict.fromkeys(why for each in old for why in _awaited(each, fleet, holds, now))
    reasons = [*_of_pool(pool, slices, closed), *[*held][:MOST_TOLD]]
    makes = closed is None and pool.status is PoolStatus.ACTIVE
    return WhyView(
        subject=pool.id,
        name=pool.name,
        status=pool.status,
        verdict=sentences.pool(
            pool.name,
            len(slices),
            pool.spec.max_slices,
            coming=sum(each.is_coming for each in slices),
            leaving=sum(each.doomed is not None for each in slices),
            makes=makes and len(slices) < pool.spec.max_slices,
        ),
        details=tuple(_about_lists(pool, fleet, now)),
        reasons=tuple(map(ReasonView.of, reasons)),
    )


def _of_pool(pool: Pool, slices: Sequence[Slice], closed: Reason | None) -> Iterator[Reason]:
    spec = pool.spec
    if closed is not None:
        yield closed
    if len(slices) >= spec.max_slices:
        yield PoolAtMax(pool=pool.name, slices=len(slices), max_slices=spec.max_slices)
    if closed is None and pool.standing.at_once is not None:
        yield PoolProbed(pool=pool.name, slices=pool.standing.at_once)
    if pool.list_error:
        yield ProviderFailed(provider=spec.provider, told=pool.list_error)
    if (other := differs(pool)) is not None:
        yield other


def _about_lists(pool: Pool, fleet: Fleet, now: float) -> Iterator[str]:
    if pool.listed_at is not None:
        yield sentences.machines_listed(now - pool.listed_at)
    for id_, orphans in [*fleet.orphans.get(pool.name, {}).items()][:NAMED]:
        yield sentences.unknown_machines(orphans.machines, id_, now - orphans.since)
    if pool.replacing:
        yield sentences.replaces(pool.replacing, pool.revision)


def explain_slice(
    slice_: Slice,
    pool: Pool | None,
    fleet: Fleet,
    routing: RouteDemand,
    holders: Holders,
    holds: MachineHolds,
    now: float,
) -> WhyView:
    """The state of a slice: what it waits for, or why it stays.

    Args:
        pool: of the slice.
    """
    reasons = [*_of_slice(slice_, pool, fleet, now), *_held_up(slice_, fleet, holders)]
    if all(each.code is not ReasonCode.SLICE_AWAITED for each in reasons):
        reasons += _awaited(slice_, fleet, holds, now)
    return WhyView(
        subject=slice_.id,
        status=slice_.status,
        verdict=_verdict(slice_, fleet, routing, now),
        details=tuple(_waits_for(slice_, fleet, now)),
        reasons=tuple(map(ReasonView.of, reasons)),
    )


def _held_up(slice_: Slice, fleet: Fleet, holders: Holders) -> Sequence[Reason]:
    """Why work has not left a slice that is to go."""
    if slice_.doomed is None:
        return ()
    until = kept_until(slice_)
    found = dict.fromkeys(
        why for agent in fleet.agents(slice_).values() for why in holders(agent, until)
    )
    return [*found][:MOST_TOLD]


def _awaited(slice_: Slice, fleet: Fleet, holds: MachineHolds, now: float) -> Sequence[Reason]:
    """The job that waits for a machine of a slice, which is neither idle nor replaced meanwhile."""
    hold = fleet.awaited(slice_, holds, now)
    if hold is None or slice_.doomed is not None:
        return ()
    return (SliceAwaited(job=hold.job, in_s=round(hold.until - now)),)


def explain_ended_slice(
    connection: Connection, principal: Principal, slice_: SliceView, now: float
) -> WhyView:
    """How a slice ended."""
    lived_s = (slice_.finished_at or now) - slice_.created_at
    was_ready = slice_.ready_at is not None
    verdict = sentences.slice_ended(slice_.pool, lived_s, was_ready=was_ready, failed=slice_.failed)
    return WhyView.of_ended(slice_, verdict)


def explain_ended_pool(
    connection: Connection, principal: Principal, pool: PoolView, now: float
) -> WhyView:
    """That a pool was deleted."""
    return WhyView.of_ended(pool, sentences.pool_deleted(pool.name), name=pool.name)


def _verdict(slice_: Slice, fleet: Fleet, routing: RouteDemand, now: float) -> str:
    for_s = now - slice_.status_changed_at
    if slice_.doomed is not None:
        doomed_s = now - (slice_.doomed_at or now)
        return sentences.slice_leaving(slice_.pool, slice_.status, doomed_s)
    kernels = fleet.kernels(slice_)
    if slice_.status is SliceStatus.READY:
        return sentences.slice_ready(slice_.pool, for_s, kernels)
    return sentences.slice_coming(
        slice_.pool, slice_.status, for_s, now - slice_.created_at, routing.usual.of(slice_.pool)
    )


def _waits_for(slice_: Slice, fleet: Fleet, now: float) -> Iterator[str]:
    kernels = fleet.kernels(slice_)
    if slice_.doomed is not None:
        leave_by = slice_.leave_by or 0.0
        if kernels:
            yield sentences.kernels_leave(kernels, leave_by - now)
        elif slice_.handed_at is not None:
            yield sentences.provider_deletes(slice_.spec.provider, now - slice_.handed_at)
        return
    if slice_.status is SliceStatus.REQUESTING and slice_.handed_at is not None:
        yield sentences.provider_makes(slice_.spec.provider, now - slice_.handed_at)
    if slice_.status in (SliceStatus.BOOTING, SliceStatus.INITIALIZING):
        agents = fleet.agents(slice_)
        here = {name for name, each in agents.items() if each.boot_id and each.connected}
        yield sentences.machines_join(len(here), [n for n in slice_.names if n not in here])
    limit_s = time_limit_s(slice_)
    if limit_s is not None:
        yield sentences.given_up(fleet.ends_at(slice_.status_changed_at, limit_s) - now)


def _of_slice(slice_: Slice, pool: Pool | None, fleet: Fleet, now: float) -> Iterator[Reason]:
    if slice_.doomed is not None:
        yield slice_.doomed
        if pool is not None and pool.status is PoolStatus.TRIPPED and pool.reason is not None:
            yield pool.reason
    else:
        told = silence(slice_, pool, fleet, now), stays(slice_, pool, now)
        yield from (why for why in told if why is not None)
    if slice_.reason is not None:
        yield slice_.reason
    if (refused := refusal(slice_)) is not None:
        yield refused
    if slice_.handed_at is None:
        yield from wait_for_next_try(slice_, now)
    if slice_.status is SliceStatus.INITIALIZING:
        shape = slice_.spec.machine
        for agent in fleet.agents(slice_).values():
            wrong = misfit(agent, shape) if agent.boot_id else None
            if wrong is not None:
                yield wrong
                return
