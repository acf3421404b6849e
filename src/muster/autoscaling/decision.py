"""The decision about a group's demand: where each entry goes, and the slices to make (source:
Iris)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.autoscaling.demand import DemandEntry, WithheldDemand
from muster.autoscaling.modelled import Destination, PendingGroup
from muster.autoscaling.pool_state import PoolState
from muster.autoscaling.unmet import UnmetDemand
from muster.scheduling.workload import KernelPlacement, WorkloadClass


class RoutedDemand(NamedTuple):
    """An entry, and the room that is to be its own: a machine of a slice in flight is named
    ``slice/index``, of a new one ``pool+number/index``."""

    entry: DemandEntry
    destination: Destination
    kernels: tuple[KernelPlacement, ...]


@dataclass(slots=True)
class RoutingDecision:
    """The destination of all demand, and the slices to make for it, by pool (source: Iris);
    ``launches`` is Iris's ``group_to_launch``. ``withheld`` are the sessions that are no demand
    because a rule forbids them to start once those ahead have; by class, as many as ``charged``
    count against quotas. ``pending`` tells what the slices that are coming, or are to be made, have
    left; it is found out when somebody asks."""

    routed: list[RoutedDemand] = field(default_factory=list)
    unmet: list[UnmetDemand] = field(default_factory=list)
    withheld: list[WithheldDemand] = field(default_factory=list)
    launches: dict[str, int] = field(default_factory=dict)
    charged: Mapping[WorkloadClass, int] = field(default_factory=dict)
    pending: Callable[[], Sequence[PendingGroup]] = list


def cost(decision: RoutingDecision, pools: Sequence[PoolState]) -> tuple[int, int]:
    """The cost of a decision: the less it serves, and then the more machines it makes."""
    size = {pool.spec.name: pool.spec.slice_size for pool in pools}
    machines = sum(size[pool] * slices for pool, slices in decision.launches.items())
    return -len(decision.routed), machines


def may_be_better(decision: RoutingDecision) -> bool:
    """Whether another order of slices in flight may serve more, or need fewer machines."""
    return bool(decision.launches) or any(each.why.could_be_met for each in decision.unmet)
