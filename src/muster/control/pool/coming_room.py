"""The room that a decision about demand promises on slices: on which slice each session is to run,
and whose room is kept until it does."""

from collections.abc import Mapping
from typing import NamedTuple

from muster.autoscaling.decision import RoutedDemand, RoutingDecision
from muster.autoscaling.demand import TO_COME
from muster.autoscaling.matching import Matcher
from muster.autoscaling.modelled import Destination
from muster.autoscaling.offering import keeping_first
from muster.control.pool.records import Slice
from muster.core.ids import AgentId, SessionId
from muster.core.reasons import Reason
from muster.core.reasons.of_slices import SliceForDemand
from muster.scheduling.making_room.promises import Promised
from muster.scheduling.workload import KernelPlacement, WorkloadClass

PROMISE_S = 1_800.0
"""How long room is kept for work whose machines are coming."""
MOST_ALONE = 1_000
"""Sessions of one kernel for which room is kept at a time."""

Made = Mapping[str, list[Slice]]
"""The slices that were just wished for, by pool, in the order in which the decision numbers
them."""


class KeptRoom(NamedTuple):
    """Room that is kept for sessions whose machines are coming.

    Args:
        since: since when room is kept for each.
        promised: the room.
        alone: the sessions of one kernel whose room is kept from those before them, too.
        elsewhere: the classes from which it is kept so: those that several pools can serve, and
            to which no room is kept so.
    """

    since: Mapping[SessionId, float]
    promised: Promised
    alone: list[SessionId]
    elsewhere: frozenset[WorkloadClass]


def kept_room(
    decision: RoutingDecision,
    matcher: Matcher,
    made: Made,
    pool_of: Mapping[str, str],
    before: Mapping[SessionId, float],
    now: float,
) -> KeptRoom:
    """The room of gangs whose other machines are coming, and of sessions that can use one pool
    alone to which work before them could go too; each for PROMISE_S at most.

    Args:
        pool_of: the pool of each slice that exists.
        before: since when room was kept for each session.
    """
    pools = _pools_of(decision, matcher, pool_of)
    first = keeping_first(pools, matcher)
    since: dict[SessionId, float] = {}
    promised: dict[SessionId, tuple[WorkloadClass, tuple[KernelPlacement, ...]]] = {}
    alone: list[SessionId] = []
    for routed in decision.routed:
        (session, workload), is_alone = routed.entry, len(routed.kernels) == 1
        if routed.destination is Destination.FREE or session == TO_COME:
            continue
        if is_alone and (workload not in first or len(alone) == MOST_ALONE):
            continue
        since[session] = before.get(session, now)
        if now < since[session] + PROMISE_S:
            promised[session] = (workload, _named(routed, made))
            if is_alone:
                alone.append(session)
    elsewhere = frozenset(
        each for each in pools if each not in first and len(matcher.match(each).pools) > 1
    )
    return KeptRoom(since, promised, alone, elsewhere)


def _pools_of(
    decision: RoutingDecision, matcher: Matcher, pool_of: Mapping[str, str]
) -> Mapping[WorkloadClass, set[int]]:
    """By class, the numbers of the pools of slices in flight to which it was routed."""
    number_of = {spec.name: number for number, spec in enumerate(matcher.specs)}
    found: dict[WorkloadClass, set[int]] = {}
    for routed in decision.routed:
        if routed.destination is Destination.FREE:
            continue
        pools = found.setdefault(routed.entry.workload, set())
        for kernel in routed.kernels:
            slice_ = kernel.agent_id.rpartition("/")[0]
            pool = pool_of.get(slice_) or slice_.rpartition("+")[0]
            if pool in number_of:
                pools.add(number_of[pool])
    return found


def first_of_pools(decision: RoutingDecision) -> Mapping[str, WorkloadClass]:
    """By pool, the class of the first sessions for which a new slice is made."""
    firsts: dict[str, WorkloadClass] = {}
    for routed in decision.routed:
        if routed.destination is Destination.LAUNCH:
            for kernel in routed.kernels:
                pool, plus, _ = kernel.agent_id.rpartition("/")[0].rpartition("+")
                if plus:
                    firsts.setdefault(pool, routed.entry.workload)
    return firsts


def for_demand(first: WorkloadClass | None) -> Reason:
    """The reason for which a slice is made. Everybody may read it, so it tells what the first work
    asks for that needs the slice, never whose work that is."""
    if first is None:
        return SliceForDemand(asks="room")
    kernels = len(first.kernels)
    asks = first.kernels[0].describe()
    return SliceForDemand(asks=asks, kernels=kernels if kernels > 1 else None)


def _named(routed: RoutedDemand, made: Made) -> tuple[KernelPlacement, ...]:
    """The places of an entry, with the ids of slices that were just wished for."""
    return tuple(
        KernelPlacement(_made_id(kernel.agent_id, made), kernel.shares) for kernel in routed.kernels
    )


def _made_id(id_: AgentId, made: Made) -> AgentId:
    slice_, slash, index = id_.rpartition("/")
    pool, plus, number = slice_.rpartition("+")
    if not slash or not plus:
        return id_
    of_pool = made.get(pool, [])
    at = int(number) - 1
    return AgentId(f"{of_pool[at].id}/{index}") if at < len(of_pool) else id_


def waits_for(decision: RoutingDecision, made: Made) -> Mapping[SessionId, tuple[str, ...]]:
    """By session, the slices on which its room is to come."""
    found: dict[SessionId, tuple[str, ...]] = {}
    for routed in decision.routed:
        if routed.destination is not Destination.FREE and routed.entry.session != TO_COME:
            names = (_made_id(kernel.agent_id, made) for kernel in routed.kernels)
            on = (name.rpartition("/")[0] for name in names)
            found[routed.entry.session] = tuple(dict.fromkeys(filter(None, on)))
    return found
