"""The slices of one pool that a gang needs at least, counted for each of its requests by itself."""

from collections.abc import Sequence

from muster.autoscaling.pool_state import PoolState
from muster.core.specs.placement import ClusterMode
from muster.core.specs.pool import SLICE
from muster.scheduling.workload import WorkloadClass


def is_tight(workload: WorkloadClass) -> bool:
    """Whether all kernels have to be in one slice, so that more slices do not help."""
    placement = workload.placement
    return placement.mode is ClusterMode.SINGLE_NODE or placement.together == SLICE


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
