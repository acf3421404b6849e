"""Finding room for kernels inside a statement. No other module chooses agents.

A session is placed from here, whole or not at all (design: Gang barrier). ``filling`` is the inner
loop for kernels with equal requests; ``feasibility`` asks about capacity and not about free room.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from muster.core.ids import AgentId
from muster.core.resources import GPU_WHOLE, Resources
from muster.core.specs.placement import ClusterMode, PlacementSpec, as_number
from muster.scheduling.cluster.columns import Columns, Flags, Ints, Shares
from muster.scheduling.cluster.constraints import eligible, tiers
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.filling import Filling, devices_of, scores
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import KernelPlacement, WorkloadClass

_Requests: TypeAlias = Sequence[tuple[Resources, tuple[int, ...]]]

_MOST_TRIES = 1000  # unlike agents of a tier on which a single-node session is tried
_MOST_COPIES = 2**31  # more than fit on an agent, and small enough to be added up
_ROUNDED = 1 - 1e-9  # sums of this part of an amount may be all of it
_MOST_COUNTED = 4  # agents, or values, for which the kernels that find room are counted


@dataclass(frozen=True, slots=True)
class Fit:
    """How many of a session's kernels found room where they were tried, and their places if all
    did."""

    placed: int
    kernels: tuple[KernelPlacement, ...] | None = None


def fill(
    statement: Statement, selector: AgentSelector, workload: WorkloadClass, count: int
) -> list[KernelPlacement]:
    """Take room for up to ``count`` single-kernel sessions of a class, the best place first: the
    same places that ``fit_session`` would give them one by one.

    The answer has fewer places when there is no more room.

    Raises:
        MusterError: the selector raises or answers nonsense; nothing was taken.
    """
    mark = statement.mark()
    found: list[KernelPlacement] = []
    try:
        # The first of these places stays the first until it is full.
        for within in _places_to_try(statement, selector, workload):
            filling = Filling(statement, selector, workload, within)
            found += filling.fill(workload.kernels[0], count - len(found))
            if len(found) == count:
                break
    except BaseException:
        statement.rollback(mark)
        raise
    return found


def fit_session(statement: Statement, selector: AgentSelector, workload: WorkloadClass) -> Fit:
    """Take room for all kernels of a session together, or for none.

    The answer is exact when all kernels ask for the same; otherwise kernels are placed greedily, in
    more than one order.

    Raises:
        MusterError: the selector raises or answers nonsense; nothing was taken.
    """
    mark = statement.mark()
    best = 0
    try:
        for within in _places_to_try(statement, selector, workload):
            for requests in _orders(statement.snapshot, workload):
                filling = Filling(statement, selector, workload, within)
                kernels = _fill_all(filling, workload, requests)
                if None not in kernels:
                    found = [kernel for kernel in kernels if kernel is not None]
                    if workload.placement.rank_by is not None:
                        found = ranked(statement.snapshot, workload, found)
                    return Fit(len(found), tuple(found))
                best = max(best, len(kernels) - kernels.count(None))
                statement.rollback(mark)
    except BaseException:
        statement.rollback(mark)
        raise
    return Fit(best)


def most_placed(
    statement: Statement, selector: AgentSelector, workload: WorkloadClass, fit: Fit
) -> int:
    """How many kernels of a session find room together, for people. Where all kernels must be on
    one agent, or share a value, the agent or value with room for the most kernels counts.

    Args:
        fit: the answer of ``fit_session``.

    Raises:
        MusterError: the selector raises or answers nonsense; nothing was taken.
    """
    alone = workload.placement.mode is ClusterMode.SINGLE_NODE
    if fit.kernels is not None or not (alone or workload.placement.together):
        return fit.placed
    mark, most = statement.mark(), fit.placed
    for within, bound in _roomiest(statement.snapshot, workload):
        if bound <= most:
            break
        if len(workload.requests) == 1:
            return bound
        for requests in _orders(statement.snapshot, workload):
            try:
                kernels = _fill_all(
                    Filling(statement, selector, workload, within), workload, requests
                )
            finally:
                statement.rollback(mark)
            most = max(most, len(kernels) - kernels.count(None))
    return most


def _roomiest(snapshot: Snapshot, workload: WorkloadClass) -> Iterator[tuple[Flags, int]]:
    """The masks of the places that may hold all of the session's kernels (single agents, or the
    agents of a value) and have room for most of them, each with the number of kernels, counted for
    each request by itself."""
    columns, placement, mask = snapshot.columns, workload.placement, eligible(snapshot, workload)
    alone, limit = placement.mode is ClusterMode.SINGLE_NODE, placement.max_kernels_per_agent
    place_of = gang_places(snapshot, placement)
    room = np.zeros(place_of.max(initial=0) + 1, np.int64)
    for request, indexes in workload.requests:
        slots = columns.fitting(request)
        slots = slots if mask is None else slots[mask[slots]]
        copies = columns.copies(request, slots, min(limit or len(indexes), len(indexes)))
        its = np.bincount(place_of[slots], copies, room.size).astype(np.int64)
        room += np.minimum(its, len(indexes))
    if alone and limit is not None:
        room = np.minimum(room, limit)
    for place in np.argsort(-room, kind="stable")[:_MOST_COUNTED].tolist():
        yield place_of == place, int(room[place])


def gang_places(snapshot: Snapshot, placement: PlacementSpec) -> Ints:
    """By slot a number for the place that has to hold all kernels of a session: the agents of a
    value where they share one, and each agent by itself elsewhere. -1 for an agent without a
    value."""
    if placement.mode is not ClusterMode.SINGLE_NODE and placement.together is not None:
        return snapshot.attribute(placement.together)[0]
    return np.arange(snapshot.columns.slots)


def devices_at(
    snapshot: Snapshot, selector: AgentSelector, request: Resources, agent_id: AgentId
) -> Shares | None:
    """The devices that one kernel with ``request`` would get on this agent now; None if it has no
    room.

    Raises:
        NotFound: the group has no such agent.
        MusterError: the selector raises or answers nonsense.
    """
    slot, columns = snapshot.slot(agent_id), snapshot.columns
    need = columns.need(request)
    if need is None or not columns.has_room(slot, need):
        return None
    return devices_of(selector, request, snapshot, slot) if need.milli else ()


def _fill_all(
    filling: Filling, workload: WorkloadClass, requests: _Requests
) -> list[KernelPlacement | None]:
    """Places by kernel's index; None where a kernel finds no room."""
    kernels: list[KernelPlacement | None] = [None] * len(workload.kernels)
    for request, indexes in requests:
        for index, kernel in zip(indexes, filling.fill(request, len(indexes)), strict=False):
            kernels[index] = kernel
    return kernels


def _places_to_try(
    statement: Statement, selector: AgentSelector, workload: WorkloadClass
) -> Iterator[Flags | None]:
    """The masks of slots in which all kernels are to be tried, the best choice first; None stands
    for all slots."""
    placement, snapshot = workload.placement, statement.snapshot
    within: Iterable[Flags | None] = (None,)
    if placement.together is not None:
        within = _values(snapshot, workload, placement.together)
    for mask in within:
        if placement.mode is not ClusterMode.SINGLE_NODE or len(workload.kernels) == 1:
            yield mask
            continue
        for slot in _single_slots(snapshot, selector, workload, mask):
            alone = np.zeros(snapshot.columns.slots, np.bool_)
            alone[slot] = True
            yield alone


def _single_slots(
    snapshot: Snapshot, selector: AgentSelector, workload: WorkloadClass, within: Flags | None
) -> Iterator[int]:
    """Slots in which all kernels together may find room, the best slot for the most demanding
    kernel first."""
    columns, limit = snapshot.columns, workload.placement.max_kernels_per_agent
    if limit is not None and limit < len(workload.kernels):
        return
    first = workload.requests[0][0]
    slots = columns.fitting(first)
    for request, indexes in workload.requests:
        slots = slots[columns.copies(request, slots, len(indexes)) >= len(indexes)]
    together = sum(
        columns.amounts(request) * len(indexes) for request, indexes in workload.requests
    )
    milli = sum(request.gpu_milli * len(indexes) for request, indexes in workload.requests)
    enough = (columns.free[slots] >= together).all(axis=1)
    slots = slots[enough & (columns.device_free[slots].sum(axis=1) >= milli)]
    for tier in tiers(snapshot, workload):
        mask = tier.mask if within is None or tier.mask is None else tier.mask & within
        mask = within if mask is None else mask
        mine = slots if mask is None else slots[mask[slots]]
        if mine.size:
            best = mine[np.argsort(-scores(selector, first, snapshot, mine), kind="stable")]
            yield int(best[0])
            yield from _unlike(columns, best)[1:_MOST_TRIES].tolist()


def _unlike(columns: Columns, slots: Ints) -> Ints:
    """The first slot of each group of ``slots`` whose devices have equal models and equal free
    milli: kernels that do not fit on the devices of one slot do not fit on those of the other slots
    of its group."""
    kinds = columns.device_model[slots] * (GPU_WHOLE + 1) + columns.device_free[slots]
    _, first = np.unique(np.sort(kinds, axis=1), axis=0, return_index=True)
    return slots[np.sort(first)]


def _values(snapshot: Snapshot, workload: WorkloadClass, attribute: str) -> Iterator[Flags]:
    """The agents of each value of ``attribute`` with room for each request by itself, and for all
    of them as far as sums tell, the value with the least room first."""
    codes, values = snapshot.attribute(attribute)
    mask, limit = eligible(snapshot, workload), workload.placement.max_kernels_per_agent
    assert mask is not None, "agents without the attribute are not in it"
    least = np.full(len(values), np.iinfo(np.int64).max)  # how often the scarcest request fits
    for request, indexes in workload.requests:
        slots = snapshot.columns.fitting(request)
        slots = slots[mask[slots]]
        copies = snapshot.columns.copies(request, slots, limit or _MOST_COPIES)
        room = np.bincount(codes[slots], copies, len(values)).astype(np.int64)
        least = np.minimum(least, room // len(indexes))
    if len(workload.requests) > 1:  # a value may belong to each agent: few are worth a try
        least[~_enough(snapshot.columns, workload, codes, np.flatnonzero(mask), len(values))] = 0
    for value in np.argsort(least, kind="stable").tolist():
        if least[value] > 0:
            yield codes == value


def _enough(
    columns: Columns, workload: WorkloadClass, codes: Ints, slots: Ints, values: int
) -> Flags:
    """Whether the agents of each value have, added up, what all kernels need; of each agent counts
    what kernels can take there.

    Args:
        codes: of values, by slot.
        slots: of the agents that count.
        values: their number.
    """
    limit, milli = workload.placement.max_kernels_per_agent, columns.device_free[slots]
    free = np.maximum(columns.free[slots], 0)  # less on one agent takes nothing from the others
    free = np.column_stack((free, np.maximum(milli, 0).sum(axis=1))).astype(np.float64)
    used, needed = np.zeros_like(free), np.zeros(free.shape[1])
    for request, indexes in workload.requests:
        each = np.append(columns.amounts(request), request.gpu_milli).astype(np.float64)
        copies = columns.copies(request, slots, min(limit or len(indexes), len(indexes)))
        used += np.maximum(copies, 0)[:, np.newaxis] * each
        needed += each * len(indexes)
    used = np.minimum(used, free)
    enough = np.ones(values, np.bool_)
    for its, least in zip(used.T, (needed * _ROUNDED).tolist(), strict=True):
        enough &= np.bincount(codes[slots], its, values) >= least
    return enough


def _orders(snapshot: Snapshot, workload: WorkloadClass) -> Iterator[_Requests]:
    """The orders in which to place a session's requests: the most demanding first, by more than one
    measure, so that a request that is hard to place does not find its room broken up."""
    yield workload.requests
    if len(workload.requests) > 1:
        columns = snapshot.columns
        largest = np.maximum(columns.capacity.max(axis=0, initial=1), 1)
        devices = max(int(columns.device_count.max(initial=0)), 1) * GPU_WHOLE

        def share(item: tuple[Resources, tuple[int, ...]]) -> float:
            """The largest part of the largest agent that the request needs."""
            part = float((columns.amounts(item[0]) / largest).max())
            return max(part, item[0].gpu_milli / devices)

        again = tuple(sorted(workload.requests, key=share, reverse=True))
        yield again if again != workload.requests else workload.requests[::-1]


def ranked(
    snapshot: Snapshot, workload: WorkloadClass, kernels: list[KernelPlacement]
) -> list[KernelPlacement]:
    """The same places in an order that follows the attribute of ``rank_by``, then the agent's name.
    Values compare as numbers if all are numbers; agents without the attribute come last. Only
    kernels with equal requests change places."""
    attribute = workload.placement.rank_by
    facts = {kernel.agent_id: snapshot.facts(snapshot.slot(kernel.agent_id)) for kernel in kernels}
    texts = {id_: agent.attributes.get(attribute or "") for id_, agent in facts.items()}
    numbers = {id_: as_number(text) for id_, text in texts.items() if text is not None}
    numeric = None not in numbers.values()

    def key(kernel: KernelPlacement) -> tuple[bool, float, str, str]:
        id_ = kernel.agent_id
        text, name = texts[id_], facts[id_].name
        if text is None:
            return True, 0.0, "", name
        return False, (numbers[id_] or 0.0) if numeric else 0.0, "" if numeric else text, name

    ordered = list(kernels)
    for _, indexes in workload.requests:
        mine = sorted((kernels[index] for index in indexes), key=key)
        for index, kernel in zip(indexes, mine, strict=True):
            ordered[index] = kernel
    return ordered
