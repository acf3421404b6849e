"""The rules among a gang's kernels, and the slices of one pool that it needs at least, counted for
each of its requests by itself.

``rank_by`` is none of these rules: it only decides which of equal kernels goes where.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from muster.autoscaling.matching import Matcher
from muster.autoscaling.pool_state import PoolState
from muster.core.reasons import Reason
from muster.core.reasons.of_demand import PoolGangTooLarge, PoolGangUnfit
from muster.core.specs.placement import ClusterMode, Constraint
from muster.core.specs.pool import SLICE
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.workload import WorkloadClass


def is_tight(workload: WorkloadClass) -> bool:
    """Whether all kernels have to be in one slice, so that more slices do not help."""
    placement = workload.placement
    return placement.mode is ClusterMode.SINGLE_NODE or placement.together == SLICE


def has_rules(workload: WorkloadClass) -> bool:
    """Whether the place of one kernel depends on that of another."""
    placement = workload.placement
    limited = placement.max_kernels_per_agent is not None
    return limited or placement.together is not None or is_tight(workload)


MAX_VALUES = 64
"""Values of agents alone that are tried one by one: each may be that of one agent."""


class Values(NamedTuple):
    """A class of gangs that have to be on machines with one value of an attribute, as one class for
    each value: those of pools, the best first, and the first ``MAX_VALUES`` that agents alone have
    and that may have room."""

    pools: Sequence[WorkloadClass]
    agents: Sequence[WorkloadClass]


def of_values(workload: WorkloadClass, agents: Snapshot, matcher: Matcher) -> Values:
    """A class of gangs that have to be on machines with one value of an attribute, by value."""
    attribute = workload.placement.together
    assert attribute is not None, "the gangs may be anywhere"
    of_pools = (matcher.specs[pool].attributes_in("") for pool in matcher.match(workload).pools)
    values = dict.fromkeys(its[attribute] for its in of_pools if attribute in its)
    number = len(values)
    (request, indexes), mask = workload.requests[0], eligible(agents, workload)
    slots = agents.columns.fitting(request)
    slots = slots if mask is None else slots[mask[slots]]
    if slots.size:
        codes, texts = agents.attribute(attribute)
        copies = agents.columns.copies(request, slots, len(indexes))
        room = np.bincount(codes[slots], copies, len(texts))
        roomy = (texts[code] for code in np.flatnonzero(room >= len(indexes)).tolist())
        values.update(
            dict.fromkeys(islice((text for text in roomy if text not in values), MAX_VALUES))
        )
    placements = (
        workload.placement.model_copy(
            update={
                "together": None,
                "constraints": (
                    *workload.placement.constraints,
                    Constraint(attribute=attribute, values=(value,)),
                ),
            }
        )
        for value in values
    )
    classes = [replace(workload, placement=each) for each in placements]
    return Values(classes[:number], classes[number:])


def kernels_by_request(workload: WorkloadClass) -> list[int]:
    """The number of kernels with each request."""
    return [len(indexes) for _, indexes in workload.requests]


def fewest_slices(missing: Sequence[int], of_slice: Sequence[int]) -> int:
    """The number of slices that so many kernels with each request need at least, of slices that
    hold ``of_slice``; of a request of which they hold none, all kernels count as one slice each."""
    return max(-(-number // (each or 1)) for number, each in zip(missing, of_slice, strict=True))


def kernels_a_slice(workload: WorkloadClass, pool: PoolState, copies: Sequence[int]) -> list[int]:
    """The number of kernels with each request that a new slice of a pool holds at most."""
    placement, machines = workload.placement, pool.spec.slice_size
    if placement.mode is ClusterMode.SINGLE_NODE:
        machines = 1
    most = placement.max_kernels_per_agent
    return [machines * (each if most is None else min(each, most)) for each in copies]


def too_few_slices(workload: WorkloadClass, pool: PoolState, left: int, placed: int) -> Reason:
    """The reason for which the slices of a pool that may be made do not hold a gang."""
    name, kernels = pool.spec.name, len(workload.kernels)
    if is_tight(workload):
        return PoolGangUnfit(pool=name, placed=placed, kernels=kernels, slices=1)
    return PoolGangTooLarge(pool=name, placed=placed, kernels=kernels, more=left)
