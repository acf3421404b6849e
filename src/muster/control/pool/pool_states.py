"""The pools of a group, as the routing of its demand sees them."""

from collections.abc import Sequence

from muster.autoscaling.pool_state import PoolState
from muster.control.pool.fleet import Fleet, holding
from muster.control.pool.records import Pool
from muster.control.pool.states import PoolStatus
from muster.control.session.cluster.taken_ports import TakenPorts
from muster.core.reasons import Reason
from muster.core.reasons.of_pools import PoolDeleting, PoolPaused

LOSSES_COUNT_S = 86_400.0
"""How long the loss of a slice counts against its pool where equal pools are ranked."""


def pool_states(
    pools: Sequence[Pool], fleet: Fleet, ports: TakenPorts, now: float
) -> Sequence[PoolState]:
    """The pools as they are now, by name."""
    states = []
    for pool in sorted(pools, key=lambda pool: pool.name):
        of_pool = fleet.slices(pool.name)
        coming = sum(each.is_coming for each in of_pool)
        at_once = pool.standing.at_once
        state = PoolState(
            pool.effective,
            len(of_pool),
            why_closed(pool, now),
            None if at_once is None else max(0, at_once - coming),
            sum(at > now - LOSSES_COUNT_S for at in pool.losses),
            holding(pool, of_pool),
            ports.of_pool(pool.name, now),
        )
        states.append(state)
    return states


def why_closed(pool: Pool, now: float) -> Reason | None:
    """Why the pool makes nothing now; None if it may."""
    match pool.status:
        case PoolStatus.PAUSED:
            return PoolPaused(pool=pool.name)
        case PoolStatus.DELETING:
            return PoolDeleting(pool=pool.name)
        case PoolStatus.TRIPPED:
            return pool.reason or PoolPaused(pool=pool.name)
        case _:
            return pool.standing.closed(pool.name, pool.spec.quota_key, now)
