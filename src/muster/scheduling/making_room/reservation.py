"""Room that is kept for the first session that lacks it, so that sessions that start before it do
not delay it.

EASY backfill (source: Lifka 1995) with the precision of agents and devices: the blocked head gets
the earliest time at which known ends make room for it. A session that starts before it and will not
have left by then must not use room that the head still lacks after those ends; a session that will
have left may stand anywhere.

Where known ends never make enough room, no room is kept at first. Once the head has waited longer
than ``starvation_after``, agents are chosen for it, and their room is kept as it becomes free. No
other session is placed in kept room, and the kernels that run there end some day, so the head
starts.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from muster.core.ids import AgentId, SessionId
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster.columns import Columns, Flags, Floats, Ints, Shares
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.request_totals import RequestTotals, on_devices, resources
from muster.scheduling.making_room.freed_room import Departures, Occupancy, fits
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import (
    KernelPlacement,
    RunningSession,
    SessionWorkload,
    WorkloadClass,
)

OVERDUE_S = 1.0
"""A session that should have ended is assumed to end so much from now."""


@dataclass(frozen=True, slots=True)
class ReservedRoom:
    """The amounts that must stay free on one agent from now on; ``shares`` are on its devices."""

    agent_id: AgentId
    resources: Resources
    shares: Shares

    def is_free(self, snapshot: Snapshot) -> bool:
        columns, slot = snapshot.columns, snapshot.slot(self.agent_id)
        amounts = zip(columns.amounts(self.resources), columns.free[slot], strict=True)
        if any(asked > 0 and free < asked for asked, free in amounts):
            return False
        return all(columns.device_free[slot, each.index] >= each.milli for each in self.shares)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room kept for a session.

    Args:
        kernels: where the session would start, by index of the kernel.
        reserved: the amounts of that room that must be kept free now.
        expected_at: when the session starts at the latest if all ends are as known, in seconds
            since the epoch; None where it waits for unknown ends.
        waits_for: the sessions whose ends it counts on.
        promised: whether it is what is there of the room of a session whose other machines are
            coming; ``workload`` and ``kernels`` are those of its kernels that would stand there.
        of_class: whether it is kept for all sessions of its class alike, which it does not bind.
        binds: the classes from which it is kept; None for all others.
    """

    session: SessionId
    workload: WorkloadClass
    kernels: tuple[KernelPlacement, ...]
    reserved: tuple[ReservedRoom, ...]
    expected_at: float | None
    waits_for: tuple[SessionId, ...]
    promised: bool = False
    of_class: bool = False
    binds: frozenset[WorkloadClass] | None = None

    def admits(self, workload: WorkloadClass, runs_from: float) -> bool:
        """Whether a session of the class that runs from ``runs_from`` on will have left by
        ``expected_at``, or is one for which the room is kept, so that the reservation does not bind
        it."""
        if self.is_of(workload) or (self.binds is not None and workload not in self.binds):
            return True
        if self.expected_at is None or workload.duration_s is None:
            return False
        return runs_from + workload.duration_s <= self.expected_at

    def is_of(self, workload: WorkloadClass) -> bool:
        """Whether it is kept for all sessions of this class alike."""
        return self.of_class and workload == self.workload

    def start(self, statement: Statement) -> tuple[KernelPlacement, ...] | None:
        """Take the kept places, if all are free; otherwise take nothing and answer None.

        To be called for a session that finds no room otherwise: kernels with different requests are
        placed greedily, which may miss the kept room.
        """
        snapshot, workload = statement.snapshot, self.workload
        if not _may_hold(snapshot, workload, self.kernels, snapshot.columns.accepting):
            return None
        if not RequestTotals(snapshot, workload, self.kernels).is_free(snapshot.columns):
            return None
        for request, kernel in zip(workload.kernels, self.kernels, strict=True):
            slot = snapshot.slot(kernel.agent_id)
            statement.take(slot, request, kernel.shares)
            for key in workload.sets:
                statement.join_set(slot, key)
        return self.kernels


def reserve(
    session: SessionWorkload,
    snapshot: Snapshot,
    running: Mapping[SessionId, RunningSession],
    selector: AgentSelector,
    now: float,
    firm: bool,
    previous: Reservation | None = None,
    leaving: Collection[SessionId] = (),
) -> Reservation | None:
    """The reservation for ``session``, the first that lacks room; None if no room can be kept.

    Returning agents count as connected: only their absence keeps the session from their room, so no
    other session may get that room, and a broken connection delays no session. If several places
    are free equally early, places on connected agents are kept.

    ``expected_at`` is the earliest time at which known ends make room; it does not move back from
    pass to pass, as long as no session overruns. A firm reservation keeps its agents until the
    session starts, an agent cannot hold it any more, or the session would start elsewhere if the
    returning agents were back.

    Args:
        running: all sessions that hold a place in the group, including those that this pass has
            placed.
        now: seconds since the epoch.
        firm: whether the session has waited longer than ``starvation_after``. Then the reservation
            does not count on the ends of sessions that should have ended already.
        previous: the session's reservation of the last pass.
        leaving: sessions that were displaced for this one. The room that they make is kept, even
            where other room becomes free earlier: a session that took it would be displaced in
            turn. Displaced sessions that should have left already are treated like any session that
            overruns its limit; a firm reservation avoids their agents, because such a session may
            never end.

    Raises:
        MusterError: the selector answers nonsense.
    """
    workload, kept = session.workload, None
    columns, back = snapshot.columns, snapshot.with_returning()
    keeps_agents = False
    if previous is not None and previous.session == session.id and previous.workload == workload:
        may = _may_hold(snapshot, workload, previous.kernels, columns.accepting | columns.returning)
        kept = previous.kernels if may else None
        keeps_agents = firm and kept is not None and previous.expected_at is None
    occupancy = Occupancy(snapshot, tuple(running.values()))
    ends = np.array(
        [np.inf if each.ends_at is None else each.ends_at for each in occupancy.sessions],
        np.float64,
    )
    displaced = np.array([each.id in leaving for each in occupancy.sessions], np.bool_)
    overdue = ends <= now
    stuck = displaced & overdue
    ends[overdue] = now + OVERDUE_S
    if (displaced & ~overdue).any():
        its_ends = np.where(displaced & ~overdue, ends, np.inf)
        plan = _earliest(workload, snapshot, occupancy, its_ends, selector, None)
        if plan is not None:
            return _keep_until(max(plan.at, now), plan, session, snapshot, occupancy, its_ends)
    if firm:
        if back is not snapshot and (places := fits(back, selector, workload)) is not None:
            return _keep(places, session, snapshot, occupancy)
        ends[stuck] = np.inf
        if stuck.any() and not keeps_agents:
            kept = None  # chosen while its victims were still expected to leave
    plan = None if keeps_agents else _earliest(workload, back, occupancy, ends, selector, kept)
    if plan is not None and not (firm and plan.at <= now + OVERDUE_S):
        return _keep_until(max(plan.at, now), plan, session, snapshot, occupancy, ends)
    if not firm:
        return None
    kernels = kept or (None if plan is None else plan.kernels)
    kernels = kernels or _least_disturbing(workload, back, occupancy, ends, stuck, selector, now)
    return None if kernels is None else _keep(kernels, session, snapshot, occupancy)


def promised_room(
    session: SessionId,
    workload: WorkloadClass,
    kernels: tuple[KernelPlacement, ...],
    snapshot: Snapshot,
) -> Reservation:
    """The reservation of room for kernels of a session whose other machines are coming.

    Args:
        workload: that of the session, with these kernels only.
    """
    totals = RequestTotals(snapshot, workload, kernels)
    reserved = _reserved(snapshot, totals.slots, totals.amounts, totals.device_milli)
    return Reservation(session, workload, kernels, reserved, None, (), promised=True)


# When and where


@dataclass(frozen=True, slots=True)
class _Plan:
    """The places of a session once all sessions that end at ``at`` or before have left, and the
    free amounts then."""

    at: float
    kernels: tuple[KernelPlacement, ...]
    then: Columns


def _earliest(
    workload: WorkloadClass,
    snapshot: Snapshot,
    occupancy: Occupancy,
    ends: Floats,
    selector: AgentSelector,
    kept: tuple[KernelPlacement, ...] | None,
) -> _Plan | None:
    """The earliest plan by known ends. The ``kept`` places are preferred, unless other places are
    free earlier, or equally early while an agent of ``kept`` is away."""
    departures = Departures(snapshot, occupancy, ends)
    step, last = None, len(departures.ends)
    if kept is not None:
        totals = RequestTotals(snapshot, workload, kept)
        step = departures.first(lambda then: totals.is_free(then.columns), 0, last)
        if step is not None:
            is_away = snapshot.columns.returning[totals.slots].any()
            last = step if is_away else step - 1
    kernels = departures.earliest_fit(workload, selector, last) if last >= 0 else None
    if kernels is None and step is not None:
        departures.go(step)
        kernels = kept
    if kernels is None:
        return None
    return _Plan(departures.end, kernels, departures.snapshot.columns)


def _least_disturbing(
    workload: WorkloadClass,
    snapshot: Snapshot,
    occupancy: Occupancy,
    ends: Floats,
    stuck: Flags,
    selector: AgentSelector,
    now: float,
) -> tuple[KernelPlacement, ...] | None:
    """The places where the session would fit if some agents were emptied; None if it would fit
    nowhere. Agents that the fewest sessions of unknown end must leave are emptied first; among
    equals, agents on which these sessions have run for the shortest time together. Agents with
    ``stuck`` sessions come last: they were told to leave, and did not."""
    unknown = ~np.isfinite(ends)
    count = max(len(occupancy.sessions), 1)
    # A session counts once on each of its agents.
    pairs = np.unique(occupancy.slots * count + occupancy.of_kernel)
    slots, whose = np.divmod(pairs[unknown[pairs % count]], count)
    ran = np.array([now - each.started_at for each in occupancy.sessions], np.float64)
    sessions = np.bincount(slots, minlength=snapshot.columns.slots)
    progress = np.bincount(slots, ran[whose], snapshot.columns.slots)
    hung = np.bincount(slots, stuck[whose], snapshot.columns.slots)
    rank = np.empty(sessions.size, np.float64)
    rank[np.lexsort((progress, sessions, hung))] = np.arange(sessions.size)
    keys = np.where(unknown, np.inf, 0.0)  # all sessions of known end first, then agent by agent
    np.minimum.at(keys, whose, 1.0 + rank[slots])
    kernels = Departures(snapshot, occupancy, keys).earliest_fit(workload, selector)
    return kernels or fits(snapshot.emptied(), selector, workload)


def _may_hold(
    snapshot: Snapshot,
    workload: WorkloadClass,
    kernels: tuple[KernelPlacement, ...],
    accepting: Flags,
) -> bool:
    """Whether the agents of these places are ``accepting`` and can hold the session's kernels once
    they have room."""
    slots = snapshot.slots_among(kernel.agent_id for kernel in kernels)
    mask, columns = eligible(snapshot, workload), snapshot.columns
    together = workload.placement.together
    if len(slots) < len(kernels) or not accepting[slots].all():
        return False
    if mask is not None and not mask[slots].all():
        return False
    if together is not None:
        values = set(snapshot.attribute(together)[0][slots].tolist())
        if len(values) > 1 or -1 in values:
            return False
    totals = RequestTotals(snapshot, workload, kernels)
    return totals.is_within(columns.capacity, columns.device_capacity)


def _keep_until(
    expected_at: float,
    plan: _Plan,
    session: SessionWorkload,
    snapshot: Snapshot,
    occupancy: Occupancy,
    ends: Floats,
) -> Reservation:
    """The reservation that keeps the session's amounts, less the amounts that will have come back
    by ``expected_at``."""
    workload, columns, then = session.workload, snapshot.columns, plan.then
    device_comes = then.device_free - columns.device_free
    kernels = on_devices(snapshot, workload, plan.kernels, then, device_comes)
    totals = RequestTotals(snapshot, workload, kernels)
    slots = totals.slots
    comes = then.free[slots] - columns.free[slots]
    amounts = np.maximum(totals.amounts - comes, 0)
    milli = np.maximum(totals.device_milli - device_comes[slots], 0)
    leave = [index for index in occupancy.on(slots).tolist() if ends[index] <= plan.at]
    return Reservation(
        session.id,
        workload,
        kernels,
        _reserved(snapshot, slots, amounts, milli),
        expected_at,
        tuple(occupancy.sessions[index].id for index in leave),
    )


def _keep(
    kernels: tuple[KernelPlacement, ...],
    session: SessionWorkload,
    snapshot: Snapshot,
    occupancy: Occupancy,
) -> Reservation:
    """The reservation that keeps all of the session's amounts that are free."""
    workload, columns = session.workload, snapshot.columns
    kernels = on_devices(
        snapshot, workload, kernels, snapshot.emptied().columns, columns.device_free
    )
    totals = RequestTotals(snapshot, workload, kernels)
    slots = totals.slots
    amounts = np.minimum(totals.amounts, np.maximum(columns.free[slots], 0))
    milli = np.minimum(totals.device_milli, np.maximum(columns.device_free[slots], 0))
    return Reservation(
        session.id,
        workload,
        kernels,
        _reserved(snapshot, slots, amounts, milli),
        None,
        tuple(occupancy.sessions[index].id for index in occupancy.on(slots).tolist()),
    )


def _reserved(
    snapshot: Snapshot, slots: Ints, amounts: Ints, device_milli: Ints
) -> tuple[ReservedRoom, ...]:
    reserved = []
    for entry in np.flatnonzero(amounts.any(axis=1) | device_milli.any(axis=1)).tolist():
        milli = enumerate(device_milli[entry].tolist())
        shares = tuple(DeviceShare(index, amount) for index, amount in milli if amount)
        its = resources(snapshot.columns, amounts[entry], sum(share.milli for share in shares))
        reserved.append(ReservedRoom(snapshot.facts(int(slots[entry])).id, its, shares))
    return tuple(reserved)
