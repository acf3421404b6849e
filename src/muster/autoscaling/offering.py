"""The orders in which slices in flight are offered to demand, and the work that keeps what only it
can use. What can go elsewhere should leave the machines alone that other work needs; no order does
that always, so the best of some is taken (design: Autoscaling)."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from muster.autoscaling.demand import Demand
from muster.autoscaling.matching import Matcher
from muster.autoscaling.pool_state import ComingSlice
from muster.scheduling.workload import WorkloadClass


def offers(
    coming: Sequence[ComingSlice], demand: Demand, matcher: Matcher
) -> Sequence[Sequence[ComingSlice]]:
    """Orders of slices in flight, the first one to be tried first: by the priority of their pools,
    then by how few entries of the demand they can serve; and by how few entries alone. Slices of
    one pool stay as they are."""
    number_of = {spec.name: number for number, spec in enumerate(matcher.specs)}
    in_flight = {number_of[each.pool] for each in coming}
    if len(in_flight) < 2:
        return [coming]
    served = _served(demand, matcher, in_flight)
    by_pool: dict[int, list[ComingSlice]] = {number: [] for number in in_flight}
    for each in coming:
        by_pool[number_of[each.pool]].append(each)
    priority = {number: matcher.specs[number].priority for number in in_flight}
    name = {number: matcher.specs[number].name for number in in_flight}
    by_priority = sorted(by_pool, key=lambda each: (priority[each], served[each], name[each]))
    by_use = sorted(by_pool, key=lambda each: (served[each], priority[each], name[each]))
    orders = [by_priority] if by_use == by_priority else [by_priority, by_use]
    return [[slice_ for pool in order for slice_ in by_pool[pool]] for order in orders]


def _served(demand: Demand, matcher: Matcher, pools: set[int]) -> Counter[int]:
    """By pool, how many entries of the demand its machines could serve."""
    served = Counter[int]()
    for workload, sessions in demand.classes.items():
        for pool in matcher.match(workload).pools:
            if pool in pools:
                served[pool] += sessions
    return served


def keeping_first(
    pools_of: Mapping[WorkloadClass, Set[int]], matcher: Matcher
) -> Set[WorkloadClass]:
    """The classes that keep the machines in flight to which they were routed, even from work before
    them in the queue: they can use those of one pool alone, and some class which was routed to
    another pool could use these too.

    Args:
        pools_of: by class, the pools of the slices in flight to which sessions of it were routed.
    """
    in_flight = set[int]().union(*pools_of.values())
    if len(in_flight) < 2:
        return set()
    usable = {each: in_flight.intersection(matcher.match(each).pools) for each in pools_of}
    contested = set[int]().union(*(usable[each] - its for each, its in pools_of.items()))
    return {each for each in pools_of if len(usable[each]) == 1 and usable[each] <= contested}
