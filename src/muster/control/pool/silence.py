"""Silent machines of a slice, and what becomes of the slice for their sake."""

import math
from dataclasses import replace

from muster.control.pool.fleet import Fleet, is_silent
from muster.control.pool.records import Pool, Slice
from muster.control.pool.slices import DEAD_S
from muster.control.pool.states import PoolStatus
from muster.core.reasons import Reason
from muster.core.reasons.of_machines import SliceSilent
from muster.core.states import AgentStatus
from muster.store.records import Agent


def silence(slice_: Slice, pool: Pool | None, fleet: Fleet, now: float) -> Reason | None:
    """The machine of a slice that is silent and decides first about the slice, and when it does;
    None where none is, or the slice is to be deleted anyway.

    Args:
        pool: of the slice.
    """
    if slice_.doomed is not None:
        return None
    silent = [each for each in fleet.agents(slice_).values() if is_silent(each)]
    if not silent:
        return None
    gone = [each for each in silent if slice_.missing and each.name in slice_.gone]
    first = min(gone or silent, key=lambda each: (_decides_at(each, fleet), each.name))
    why = SliceSilent(
        slice=slice_.id,
        machine=first.name,
        silent_s=round(now - first.seen_at),
        others=len(silent) - 1,
    )
    if pool is not None and pool.status is PoolStatus.TRIPPED:
        return replace(why, held=pool.name)
    if gone:
        return replace(why, gone=True)
    at = _decides_at(first, fleet)
    if math.isfinite(at):
        return replace(why, in_s=max(1, round(at - now)))
    return replace(why, endless=True)


def _decides_at(agent: Agent, fleet: Fleet) -> float:
    """When a silent machine that its provider lists has its slice replaced, unless it is heard
    before; infinite where its lease has no end, or none is known yet."""
    if agent.status is AgentStatus.LOST:
        return fleet.ends_at(agent.status_changed_at, DEAD_S)
    return agent.lost_at + DEAD_S if agent.lost_at > -math.inf else math.inf
