"""Preemption: the sessions that must leave to make room for work of higher priority. It is known
that they make room before any of them is touched.

A group opts in (``PreemptionSpec``). Nothing is displaced here: the answer is a proposal that is
known to make room, and in which every victim is needed.

There are no cycles. A victim's priority is strictly lower than its displacer's, so no chain of
displacements comes back to its beginning; and within a pass a victim is not in the queue, so it
displaces nobody in turn. Scheduled again, it may only displace work of a still lower priority.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.resources import Resources
from muster.core.specs import Level
from muster.core.specs.group import PreemptionSpec, VictimScope
from muster.core.specs.placement import ClusterMode
from muster.scheduling.budgets import within
from muster.scheduling.cluster.columns import Floats, Ints
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.fitting.request_totals import RequestTotals, resources
from muster.scheduling.making_room.freed_room import Departures, InOrder, Occupancy, fits, may_fit
from muster.scheduling.policy.plugins import AgentSelector, PassContext
from muster.scheduling.workload import (
    KernelPlacement,
    RunningSession,
    SessionWorkload,
    WorkloadClass,
)

_LEVELS = {
    VictimScope.USER: Level.USER,
    VictimScope.PROJECT: Level.PROJECT,
    VictimScope.DOMAIN: Level.DOMAIN,
}
_BAND = 1e9  # one step of priority costs more than any lost work
_MOST = 0.9 * _BAND
_RESTART_S = 60.0  # the cost of a new start, so that few victims are better than many
_REQUESTS = 4  # distinct requests of one session that are priced


@dataclass(frozen=True, slots=True)
class Gain:
    """The effect of a preemption on one agent.

    Args:
        asked: the amounts that the preemptor takes there.
        free: the free amounts now.
        freed: the amounts that the victims give back there.
    """

    agent_id: AgentId
    asked: Resources
    free: Resources
    freed: Resources


@dataclass(frozen=True, slots=True)
class Preemption:
    """A way to make room for a session by displacing others.

    Args:
        victims: whole sessions, every one of them needed; the cheapest first.
        kernels: where the session would start once the victims have left, by index of the kernel.
        gains: the arithmetic, for each agent of ``kernels``.
    """

    session: SessionId
    priority: int
    victims: tuple[RunningSession, ...]
    kernels: tuple[KernelPlacement, ...]
    gains: tuple[Gain, ...]


def find_victims(
    session: SessionWorkload,
    snapshot: Snapshot,
    running: Mapping[SessionId, RunningSession],
    selector: AgentSelector,
    policy: PreemptionSpec,
    context: PassContext,
    before: Iterable[Preemption] = (),
) -> Preemption | None:
    """The sessions to displace so that ``session`` fits; None if no displacement is needed, or none
    would help.

    Cheap victims are preferred. A set of victims is as expensive as the highest priority in it,
    then as the work that it loses: run time, and a minute for starting anew, × the largest part
    that a victim holds of any of the group's resources. Room is priced by the kernel: the cost of
    each agent's cheapest candidates until one kernel more fits there. Victims are added in order of
    price until the session fits. Then each victim that turns out not to be needed is spared, the
    most expensive first. The remaining set is minimal: the session does not fit if any victim of it
    stays. It is not always the cheapest of all such sets, which is NP-hard to find.

    Where the set would take more sessions of a service than its budget has left, another is looked
    for among as many of each service's sessions as may go together, those of the first set first.

    Args:
        before: those of the same pass, whose victims count to their budgets.

    Raises:
        MusterError: the selector answers nonsense.
    """
    now, budgets = context.now, context.budgets
    candidates = _candidates(running.values(), session.workload, policy, now)
    found = _cheapest(session, snapshot, candidates, selector, now)
    if found is None:
        return None
    victims = {victim.id for victim in found.victims}
    displaced = [victim.id for each in before for victim in each.victims]
    if len(within(found.victims, (), displaced, budgets)) == len(victims):
        return found
    candidates = within(candidates, victims, displaced, budgets)
    return _cheapest(session, snapshot, candidates, selector, now)


def _cheapest(
    session: SessionWorkload,
    snapshot: Snapshot,
    candidates: list[RunningSession],
    selector: AgentSelector,
    now: float,
) -> Preemption | None:
    """The sessions to displace of ``candidates``, which are in the order of their ids."""
    workload = session.workload
    if not candidates:
        return None
    costs = _costs(snapshot, candidates, now)
    order = np.argsort(costs, kind="stable")
    candidates = [candidates[index] for index in order.tolist()]  # an index is now a rank of cost
    occupancy = Occupancy(snapshot, candidates)
    keys = _departing(snapshot, workload, occupancy, costs[order])
    departures = Departures(snapshot, occupancy, keys)
    kernels = departures.earliest_fit(workload, selector)
    if kernels is None or not departures.step:
        return None
    gone = np.flatnonzero(keys <= departures.end)
    found = _spare(snapshot, workload, selector, occupancy, kernels, gone)
    if found is None:
        return None
    victims, kernels, after = found
    return Preemption(
        session.id,
        workload.priority,
        tuple(candidates[index] for index in victims),
        kernels,
        _gains(snapshot, after, workload, kernels),
    )


def _candidates(
    running: Iterable[RunningSession], workload: WorkloadClass, policy: PreemptionSpec, now: float
) -> list[RunningSession]:
    """The sessions that may be displaced, by id."""
    sessions = tuple(running)  # each read may make new objects, and identities must last
    allowed: dict[int, bool] = {}  # by the identity of a class
    found = []
    for each in sessions:
        may = allowed.get(id(each.workload))
        if may is None:
            may = allowed[id(each.workload)] = _is_below(each.workload, workload, policy)
        if may and each.started_at + policy.minimum_lease <= now:
            found.append(each)
    found.sort(key=attrgetter("id"))
    return found


def _is_below(its: WorkloadClass, workload: WorkloadClass, policy: PreemptionSpec) -> bool:
    """Whether sessions of class ``workload`` may displace sessions of class ``its``."""
    return (
        its.preemptible
        and its.priority + policy.least_difference <= workload.priority
        and _in_scope(its.owner, workload.owner, policy.scope)
    )


def _in_scope(owner: Owner, preemptor: Owner, scope: VictimScope) -> bool:
    if scope is VictimScope.GROUP:
        return True
    level = _LEVELS[scope]
    return level.of(owner) == level.of(preemptor)


# Costs


def _costs(snapshot: Snapshot, sessions: Sequence[RunningSession], now: float) -> Floats:
    """The cost of displacing each session: its priority, then the work lost."""
    columns = snapshot.columns
    capacity = dict(zip(columns.dimensions, columns.capacity.sum(axis=0).tolist(), strict=True))
    capacity["gpu"] = int(columns.device_capacity.sum())
    parts: dict[int, float] = {}  # by the identity of a class
    for each in sessions:
        if id(each.workload) not in parts:
            parts[id(each.workload)] = max(
                (
                    amount / max(capacity.get(name, 0), amount)
                    for name, amount in each.workload.total.items()
                ),
                default=0.0,
            )
    part = np.array([parts[id(each.workload)] for each in sessions], np.float64)
    ran = now - np.array([each.started_at for each in sessions], np.float64)
    lost = (ran + _RESTART_S) * part
    priorities = np.array([each.workload.priority for each in sessions], np.float64)
    costs: Floats = priorities * _BAND + np.minimum(lost, _MOST)
    return costs


def _departing(
    snapshot: Snapshot, workload: WorkloadClass, occupancy: Occupancy, costs: Floats
) -> Floats:
    """The keys that give the order in which sessions leave: the price of the room that they make
    together.

    Sessions that make no room by themselves come last: a preemptor whose kernels differ may need
    them.
    """
    single = workload.placement.mode is ClusterMode.SINGLE_NODE
    on_agents = _OnAgents(
        occupancy, costs, 1 if single else len(workload.kernels), snapshot.columns.slots
    )
    prices = np.full(on_agents.slots.size, np.inf)
    rooms = on_agents.sessions.astype(np.float64)  # sessions that make no room form one each
    for index in range(1 if single else min(len(workload.requests), _REQUESTS)):
        its_prices, its_rooms = on_agents.prices(snapshot, workload, index)
        cheaper = its_prices < prices
        prices = np.where(cheaper, its_prices, prices)
        rooms = np.where(cheaper, its_rooms, rooms)
    order = np.lexsort((rooms, prices))
    prices, rooms = prices[order], rooms[order]
    starts = (prices[1:] != prices[:-1]) | (rooms[1:] != rooms[:-1])
    ranks = np.empty(order.size)
    ranks[order] = np.concatenate(([0], np.cumsum(starts)))
    keys = np.full(len(occupancy.sessions), np.inf)
    np.minimum.at(keys, on_agents.sessions, ranks)
    return keys


class _OnAgents:
    """Sessions on the agents where they hold something, the cheapest of each agent first.

    There is an entry for each session on each of its agents; ``levels`` is its place in the agent's
    order. A gang leaves whole and makes room on all of its agents; if the preemptor has several
    kernels, each of these agents is charged a part of the gang's cost.
    """

    def __init__(self, occupancy: Occupancy, costs: Floats, kernels: int, slots: int) -> None:
        count = len(occupancy.sessions)
        pairs, entries = np.unique(
            occupancy.slots * count + occupancy.of_kernel, return_inverse=True
        )
        self.slots, self.sessions = np.divmod(pairs, count)
        self.levels = np.arange(pairs.size) - np.searchsorted(self.slots, self.slots)
        self._count = slots
        agents = np.minimum(np.bincount(self.sessions, minlength=count), kernels)[self.sessions]
        self._bands = np.floor(costs[self.sessions] / _BAND) * _BAND
        self._lost = costs[self.sessions] % _BAND / agents
        self._entries = InOrder(occupancy, self.levels[entries].astype(np.float64))

    def prices(
        self, snapshot: Snapshot, workload: WorkloadClass, index: int
    ) -> tuple[Floats, Floats]:
        """For each entry the price of the room to which it belongs, and that room's number.

        On each agent, sessions leave in the order of their cost. Each time one kernel more fits
        there (with the request of that index; for a single-node session, when it fits whole), the
        sessions that left since the previous kernel fitted make up the price of that room. A price
        is never below the previous one.
        """
        state = snapshot.copy()
        room = _room(state, workload, index)
        bands, lost, price = (np.zeros(self._count) for _ in range(3))
        made: list[tuple[Ints, Ints, Floats]] = []  # by level: entries, completed rooms, prices
        for level in range(int(self.levels.max(initial=-1)) + 1):
            state.columns.move_all(self._entries.between(level - 1, level))
            entries = np.flatnonzero(self.levels == level)
            slots = self.slots[entries]
            bands[slots] = np.maximum(bands[slots], self._bands[entries])
            lost[slots] += self._lost[entries]
            room, before = _room(state, workload, index), room
            grown = np.flatnonzero(room > before)
            price[grown] = np.maximum(price[grown], bands[grown] + np.minimum(lost[grown], _MOST))
            made.append((entries, grown, price[grown]))
            bands[grown] = lost[grown] = 0
        prices, rooms = np.full(self.slots.size, np.inf), np.zeros(self.slots.size)
        next_price, next_room = np.full(self._count, np.inf), np.zeros(self._count)
        for level, (entries, grown, price_of) in reversed(list(enumerate(made))):
            next_price[grown], next_room[grown] = price_of, level * self._count + grown
            prices[entries] = next_price[self.slots[entries]]
            rooms[entries] = next_room[self.slots[entries]]
        return prices, rooms


def _room(snapshot: Snapshot, workload: WorkloadClass, index: int) -> Ints:
    """By slot how many kernels with the request of that index find room; for a single-node session
    1 where all of its kernels seem to fit."""
    columns, placement = snapshot.columns, workload.placement
    request, kernels = workload.requests[index][0], len(workload.requests[index][1])
    slots, mask = columns.fitting(request), eligible(snapshot, workload)
    if mask is not None:
        slots = slots[mask[slots]]
    room = np.zeros(columns.slots, np.int64)
    if placement.mode is not ClusterMode.SINGLE_NODE:
        limit = placement.max_kernels_per_agent or kernels
        room[slots] = columns.copies(request, slots, min(kernels, limit))
        return room
    for each, indexes in workload.requests:
        slots = slots[columns.copies(each, slots, len(indexes)) >= len(indexes)]
    together = sum(columns.amounts(each) * len(indexes) for each, indexes in workload.requests)
    milli = sum(each.gpu_milli * len(indexes) for each, indexes in workload.requests)
    enough = (columns.free[slots] >= together).all(axis=1)
    room[slots[enough & (columns.device_free[slots].sum(axis=1) >= milli)]] = 1
    return room


# Sparing


def _spare(
    snapshot: Snapshot,
    workload: WorkloadClass,
    selector: AgentSelector,
    occupancy: Occupancy,
    kernels: tuple[KernelPlacement, ...],
    gone: Ints,
) -> tuple[list[int], tuple[KernelPlacement, ...], Snapshot] | None:
    """The sessions of ``gone`` that must go, the places of the session then, and the snapshot
    without them."""
    slots = np.array([snapshot.slot(kernel.agent_id) for kernel in kernels], np.int64)
    found, state, victims = None, snapshot, gone
    for victims in (np.intersect1d(gone, occupancy.on(slots)), gone):
        state = snapshot.copy()
        state.columns.move_all(occupancy.of(victims))
        found = fits(state, selector, workload)
        if found is not None:  # greedy placement of unlike kernels may fail in the smaller room
            break
    if found is None:
        return None
    needed: list[int] = victims.tolist()
    spared = True
    while spared:
        spared = False
        for victim in reversed(needed.copy()):
            _move(state, occupancy.sessions[victim], -1)
            without = fits(state, selector, workload) if may_fit(state, workload) else None
            if without is None:
                _move(state, occupancy.sessions[victim], +1)
            else:
                needed.remove(victim)
                # A victim may be needed no longer, where kernels differ and are placed greedily.
                found, spared = without, len(workload.requests) > 1
    return needed, found, state


def _move(snapshot: Snapshot, session: RunningSession, copies: int) -> None:
    """Give back the session's holdings, or take them again."""
    for request, kernel in zip(session.workload.kernels, session.kernels, strict=True):
        for slot in snapshot.slots_among((kernel.agent_id,)):
            snapshot.columns.move(slot, request, kernel.shares, copies)


def _gains(
    snapshot: Snapshot,
    after: Snapshot,
    workload: WorkloadClass,
    kernels: tuple[KernelPlacement, ...],
) -> tuple[Gain, ...]:
    """The gains by agent, with ``after`` the snapshot without the victims."""
    totals, now, then = RequestTotals(snapshot, workload, kernels), snapshot.columns, after.columns
    gains = []
    for entry, slot in enumerate(totals.slots.tolist()):
        devices = now.device_free[slot], then.device_free[slot]
        free, freed = devices[0].sum(), (devices[1] - devices[0]).sum()
        gains.append(
            Gain(
                snapshot.facts(slot).id,
                resources(now, totals.amounts[entry], int(totals.device_milli[entry].sum())),
                resources(now, np.maximum(now.free[slot], 0), max(0, int(free))),
                resources(now, then.free[slot] - now.free[slot], int(freed)),
            )
        )
    return tuple(gains)


def let_displace(
    workload: WorkloadClass,
    found: Preemption,
    snapshot: Snapshot,
    running: dict[SessionId, RunningSession],
) -> None:
    """``let_start`` for a session that displaces others."""
    victims = [victim.id for victim in found.victims]
    let_start(workload, found.kernels, victims, snapshot, running)


def let_start(
    workload: WorkloadClass,
    kernels: Sequence[KernelPlacement],
    leaving: Iterable[SessionId],
    snapshot: Snapshot,
    running: dict[SessionId, RunningSession],
) -> None:
    """Change a copy to the state after the victims have left and the session has started in
    ``kernels``.

    A victim that leaves for several sessions leaves once.
    """
    columns = snapshot.columns
    for victim in filter(None, [running.pop(id_, None) for id_ in leaving]):
        for request, kernel in zip(victim.workload.kernels, victim.kernels, strict=True):
            for slot in snapshot.slots_among((kernel.agent_id,)):
                columns.move(slot, request, kernel.shares, +1)
    for request, kernel in zip(workload.kernels, kernels, strict=True):
        columns.move(snapshot.slot(kernel.agent_id), request, kernel.shares, -1)
