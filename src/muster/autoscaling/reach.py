"""The most that a group could ever hold: its own agents, and all machines that its pools may have
together. Gangs beyond that are told so when they are handed in (design: Autoscaling)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.autoscaling.gang_slices import is_tight
from muster.autoscaling.matching import Matcher
from muster.autoscaling.pool_state import Ceilings
from muster.core.reasons import Reason
from muster.core.reasons.of_demand import GangOutOfReach
from muster.core.reasons.reason import UNKNOWN
from muster.core.reasons.wording import PRICE
from muster.core.resources import Resources
from muster.core.specs.placement import ClusterMode
from muster.core.specs.pool import SLICE, PoolSpec
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.fitting.feasibility import together
from muster.scheduling.workload import WorkloadClass


class _Most(NamedTuple):
    """The kernels that the machines of pools hold at most, the number of these machines, and the
    ceiling of the group that keeps them from being more."""

    kernels: int
    machines: int
    ceiling: str | None = None
    limit: float = 0.0


def why_out_of_reach(
    workload: WorkloadClass, snapshot: Snapshot, matcher: Matcher, ceilings: Ceilings
) -> Reason | None:
    """The reason for which a group can never hold a gang, whatever its pools make; None where it
    may. It never tells so of a gang that could be held by slices as their pools make them now, but
    may be silent about one that could not: each request is looked at by itself, and parts of slices
    count.

    Args:
        snapshot: the group's agents.
        matcher: the group's pools.
    """
    if len(workload.kernels) == 1:
        return None
    match = matcher.match(workload)
    tight = is_tight(workload)
    most_each = workload.placement.max_kernels_per_agent or len(workload.kernels)
    for at, (request, indexes) in enumerate(workload.requests):
        asked = len(indexes)
        pools = [(matcher.specs[pool], min(copies[at], most_each)) for pool, copies in match]
        own = _of_agents(workload, request, snapshot, most_each)
        if tight:
            on_one = workload.placement.mode is ClusterMode.SINGLE_NODE
            held = [copies * (1 if on_one else spec.slice_size) for spec, copies in pools]
            if max([*held, *(own if on_one else ())], default=0) < asked:
                placed = max([*held, *(own if on_one else ())], default=0)
                return GangOutOfReach(
                    kernels=asked,
                    request=request.describe(),
                    group=snapshot.group,
                    placed=placed,
                    **together(workload),
                )
            continue
        of_pools, of_agents = _of_pools(pools, ceilings), sum(own)
        if of_pools.kernels + of_agents < asked:
            is_bound = of_pools.ceiling is not None
            return GangOutOfReach(
                kernels=asked,
                request=request.describe(),
                group=snapshot.group,
                placed=of_pools.kernels + of_agents,
                machines=of_pools.machines,
                own=of_agents or None,
                ceiling=of_pools.ceiling,
                limit=of_pools.limit if is_bound else UNKNOWN,
                unit=PRICE if of_pools.ceiling == "price" else UNKNOWN,
            )
    return None


def _of_agents(
    workload: WorkloadClass, request: Resources, snapshot: Snapshot, most_each: int
) -> Sequence[int]:
    """The kernels with this request that each of the group's agents holds when empty, without
    machines of pools."""
    if not len(snapshot):
        return ()
    empty = snapshot.emptied(all_accept=True)
    mask = eligible(empty, workload)
    of_slice, _ = empty.attribute(SLICE)
    usable = empty.columns.present & (of_slice < 0)
    slots = np.flatnonzero(usable if mask is None else usable & mask)
    copies = empty.columns.copies(request, slots, len(workload.kernels))
    held: list[int] = np.clip(copies, 0, most_each).tolist()
    return held


def _of_pools(pools: Sequence[tuple[PoolSpec, int]], ceilings: Ceilings) -> _Most:
    """The most that machines of these pools hold together.

    Args:
        pools: with the number of kernels that a machine of each holds.
    """
    useful = [(spec, copies) for spec, copies in pools if copies]
    most = _Most(
        sum(spec.max_slices * spec.slice_size * copies for spec, copies in useful),
        sum(spec.max_slices * spec.slice_size for spec, _ in useful),
    )
    for name, limit, price_of in (
        ("machines", ceilings.machines, lambda spec: 1.0),
        ("gpus", ceilings.gpus, lambda spec: float(spec.machine.gpus)),
        ("price", ceilings.price, lambda spec: spec.price),
    ):
        if limit is None:
            continue
        costs = [(price_of(spec), spec, copies) for spec, copies in useful]
        under = _under(name, limit, costs)
        most = min(most, under, key=lambda each: each.kernels)
    return most


def _under(name: str, limit: float, costs: Sequence[tuple[float, PoolSpec, int]]) -> _Most:
    """The most under one ceiling: machines first that hold the most for what they count toward
    it."""
    left, kernels, machines = float(limit), 0.0, 0.0
    for cost, spec, copies in sorted(
        costs, key=lambda each: -each[2] / each[0] if each[0] else -math.inf
    ):
        slices = float(spec.max_slices)
        if cost:
            alone = math.floor(limit / (cost * spec.slice_size) + 1e-9)
            slices = min(slices, alone, left / (cost * spec.slice_size))
            left -= slices * cost * spec.slice_size
        kernels += slices * spec.slice_size * copies
        machines += slices * spec.slice_size
    return _Most(math.floor(kernels + 1e-9), math.floor(machines + 1e-9), name, limit)
