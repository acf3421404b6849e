"""RouteDemand: what waits for room is routed to machines, and slices are wished for or away
(source: Iris) (design: Autoscaling)."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.demand import Demand
from muster.autoscaling.matching import Matcher
from muster.autoscaling.pool_state import CeilingBudget, Ceilings, PoolState
from muster.autoscaling.routing import route_demand
from muster.autoscaling.slice_plan import SlicePlan, plan_slices
from muster.control.engine.handler import HandlerResult, LifecycleHandler, StatusTransitions
from muster.control.engine.work import Work
from muster.control.pool.coming_room import first_of_pools, for_demand, kept_room, waits_for
from muster.control.pool.entries import BOUND, DecisionLog
from muster.control.pool.fleet import Fleet
from muster.control.pool.followers import followers
from muster.control.pool.outlook import GroupOutlook
from muster.control.pool.pool_states import pool_states
from muster.control.pool.records import Pool, Slice
from muster.control.pool.slice_states import SliceStates
from muster.control.pool.slices import SliceLifecycle
from muster.control.pool.states import POOL_TABLE, PoolStatus
from muster.control.pool.stored_decisions import DecisionKeeper, forget_decision
from muster.control.session.cluster.state import ClusterState
from muster.core.ids import SessionId
from muster.core.reasons.of_slices import SliceForBuffer, SliceForMin
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.policy.guard import PluginFault
from muster.scheduling.workload import WorkloadClass
from muster.store.live import Live

log = logging.getLogger(__name__)

ROUTE_S = 0.25
"""The time between two routings of a small group's demand, at least."""
ROUTE_S_A_SLICE = 1e-4
"""By so much the time between two routings grows with each slice of the group: to look at one takes
some 7 us, so this is at most a tenth of the controller's time."""
MOST_MADE = 200
"""Slices of a group that one wake wishes for; further ones follow."""
MOST_TOLD = 20
"""Pools and slices that a line of the log names."""
MOST_DELETED = 100
"""Slices of a group that one wake dooms; further ones follow."""


@dataclass(slots=True)
class _Seen:
    """The state that the last routing of a group saw.

    Args:
        passes: of placement.
        at: when it was.
        pace_s: the time until the next, at least.
        looks_at: when time alone changes its decision.
        again: whether it is to be repeated as soon as ROUTE_S is over.
        promised_since: since when room is promised to each session.
        matcher: of its pools; the next routing uses it again if it is good for them still.
        told_unmet: whether it left demand unmet, as it was logged.
        charged: by class, how many sessions that are to find room count against quotas.
        logged: the lines about it that were logged.
        keeper: has its decisions stored.
        served: until when the slices of each session are sure to come; 0 if they are not.
    """

    passes: int = -1
    at: float = float("-inf")
    pace_s: float = ROUTE_S
    looks_at: float | None = None
    again: bool = False
    promised_since: Mapping[SessionId, float] = field(default_factory=dict)
    matcher: Matcher | None = None
    told_unmet: bool = False
    charged: Mapping[WorkloadClass, int] = field(default_factory=dict)
    served: Mapping[SessionId, float] = field(default_factory=dict)
    logged: DecisionLog = field(default_factory=DecisionLog)
    keeper: DecisionKeeper = field(default_factory=DecisionKeeper)


class RouteDemand(LifecycleHandler[Pool]):
    """Routes the demand of each group that has pools, after a pass in which something changed."""

    name = "RouteDemand"
    entity = Pool
    between_tries = True
    statuses = frozenset(POOL_TABLE.live)
    transitions = StatusTransitions()

    def __init__(
        self, live: Live, cluster: ClusterState, fleet: Fleet, slices: SliceLifecycle
    ) -> None:
        self._live = live
        self._cluster = cluster
        self._fleet = fleet
        self._slices = slices
        self._slice_states = SliceStates(live, cluster, fleet)
        self._seen: dict[str, _Seen] = {}
        self._due: list[str] = []
        self.usual = slices.usual
        for each in live.of(Slice).values():
            self.usual.saw(each)

    # When

    def gather(self, candidates: Sequence[Pool], work: Work) -> Sequence[Pool]:
        """No pools: the groups whose demand is routed now are found by what changed in them."""
        self._due = []
        by_group = self._fleet.groups()
        for group in self._seen.keys() - by_group.keys():
            self._forget(group, work)
        for group, pools in by_group.items():
            seen, state = self._seen.setdefault(group, _Seen()), self._cluster.groups[group]
            news = (
                seen.passes != state.passes
                or group in self._slices.changed_groups
                or (seen.looks_at is not None and seen.looks_at <= work.now)
            )
            if not news or state.due:
                continue
            if work.now >= seen.at + seen.pace_s:
                self._due.append(group)
            elif not seen.again:
                seen.again = True
                work.mark(pools[0])  # so that its alarm is set
        return ()

    def _forget(self, name: str, work: Work) -> None:
        """Forget a group whose last pool is gone."""
        del self._seen[name]
        forget_decision(work.unit, name)
        group = self._cluster.groups[name]
        group.outlook = None
        group.due = group.queue.promises.keep({}) or group.due

    def is_due(self, targets: Sequence[Pool]) -> bool:
        return bool(self._due)

    def next_look(self, group: str) -> Iterable[float]:
        """When the group is to be looked at next, if nothing changes before."""
        seen = self._seen.get(group)
        if seen is not None and seen.again:
            yield seen.at + seen.pace_s
        elif seen is not None and seen.looks_at is not None:
            yield seen.looks_at

    # What

    def execute(self, targets: Sequence[Pool], work: Work) -> HandlerResult[Pool]:
        due, self._due = self._due, []
        for group in due:
            self._slices.changed_groups.discard(group)
            self._look(group, work)
        return HandlerResult()

    def _look(self, name: str, work: Work) -> None:
        group, seen = self._cluster.groups[name], self._seen[name]
        seen.passes, seen.at, seen.again = group.passes, work.now, False
        pools = self._fleet.groups()[name]
        slices = [each for pool in pools for each in self._fleet.slices(pool.name)]
        seen.pace_s = ROUTE_S + len(slices) * ROUTE_S_A_SLICE
        states = pool_states(pools, self._fleet, self._cluster.ports, work.now)
        by_name = {pool.name: pool for pool in pools}
        counted = [each for each in slices if each.doomed is None and each.pool in by_name]
        route = self._router(group, states, counted, seen)
        decision = route(work.now, None)
        self._note_charged(name, decision.charged, work)
        plan = self._plan(name, states, counted, decision, work)
        for id_, why in list(plan.delete.items())[:MOST_DELETED]:
            slice_ = self._live.of(Slice)[id_]
            if not _stands_still(by_name[slice_.pool]):
                self._slices.doom(work, slice_, self.name, why)
        made = self._make(plan, decision, work)
        assert seen.matcher is not None, "the router has made one"
        pool_of: dict[str, str] = {each.id: each.pool for each in slices}
        kept = kept_room(decision, seen.matcher, made, pool_of, seen.promised_since, work.now)
        seen.promised_since = kept.since
        if group.queue.promises.keep(kept.promised, kept.alone, kept.elsewhere):
            group.due = True
        group.outlook = GroupOutlook(
            self._live,
            group,
            decision,
            waits_for(decision, made),
            route,
            seen.matcher,
            self._ceilings(name),
            self.usual,
            self._fleet.pool,
            work.now,
        )
        pool_of |= _pools_of_made(made)
        is_new = seen.logged.note(name, group.outlook, pool_of)
        stores_at = seen.keeper.note(name, group.outlook, pool_of, work, new=is_new)
        served = self._served(group, decision, work.now)
        if served != seen.served:
            seen.served, group.due = served, True
        moments = [
            stores_at,
            plan.looks_at,
            *served.values(),
            *(pool.standing.closed_until for pool in pools),
        ]
        moments += [self._cluster.ports.pool_asked_at(pool.name, work.now) for pool in pools]
        seen.looks_at = min((at for at in moments if at and at > work.now), default=None)
        if len(plan.delete) > MOST_DELETED or sum(plan.launch.values()) > MOST_MADE:
            seen.again = True
        self._tell(name, seen, decision, plan)
        for pool in pools:
            if pool.replacing:
                work.mark(pool)
        if seen.again or seen.looks_at is not None:
            work.mark(pools[0])  # so that its alarm is set

    def _served(
        self, group: GroupState, decision: RoutingDecision, now: float
    ) -> Mapping[SessionId, float]:
        """The sessions that displace nobody because their slices are sure to come, each with the
        moment until which that holds; none where work is displaced before slices are made."""
        preemption, outlook = group.policy.preemption, group.outlook
        if preemption is None or preemption.before_scaling or not isinstance(outlook, GroupOutlook):
            return {}
        sessions = dict.fromkeys(each.entry.session for each in decision.routed)
        sessions |= dict.fromkeys(each.first for each in decision.unmet)
        return {each: outlook.sure_until(outlook.slices_for(each)) for each in sessions}

    def _router(
        self,
        group: GroupState,
        states: Sequence[PoolState],
        slices: Sequence[Slice],
        seen: _Seen,
    ) -> Callable[[float, QueueClass | None], RoutingDecision]:
        """A function that routes the group's demand at a moment, and that of more sessions."""
        name = group.snapshot.group
        kernels = self._live.groups[name].kernels_per_agent
        selector, ceilings = group.policy.selector, self._ceilings(name)
        matcher = seen.matcher
        if matcher is None or not matcher.is_for(states, kernels, selector):
            matcher = seen.matcher = Matcher(name, states, kernels, selector)
        coming = [self._fleet.coming(each) for each in slices if each.is_coming]

        def route(now: float, more: QueueClass | None) -> RoutingDecision:
            to_come = followers(self._live, self._cluster, name)
            demand = Demand(group, now, more, to_come, self._charged_elsewhere(name))
            if not demand.classes:
                return RoutingDecision()
            try:
                return route_demand(
                    demand,
                    group.snapshot,
                    selector,
                    states,
                    coming,
                    kernels=kernels,
                    ceilings=ceilings,
                    matcher=matcher,
                )
            except PluginFault as fault:
                self._cluster.plugin_failed(name, fault)
                return RoutingDecision()

        return route

    def _charged_elsewhere(self, name: str) -> Mapping[WorkloadClass, int]:
        """By class, how many sessions of other groups are to find room: quotas are those of
        owners, whatever the group."""
        charged: dict[WorkloadClass, int] = {}
        for other, seen in self._seen.items():
            if other != name and self._cluster.accounting.quotas.levels:
                charged |= seen.charged
        return charged

    def _note_charged(self, name: str, charged: Mapping[WorkloadClass, int], work: Work) -> None:
        """Note how many sessions of a group count against quotas. Groups with sessions that their
        quotas keep from being demand are looked at again if that has changed."""
        before, self._seen[name].charged = self._seen[name].charged, charged
        if charged == before:
            return
        for other, pools in self._fleet.groups().items():
            outlook = self._cluster.groups[other].outlook
            if other != name and isinstance(outlook, GroupOutlook) and outlook.decision.withheld:
                self._slices.changed_groups.add(other)
                self._seen[other].again = True
                work.mark(pools[0])

    def _ceilings(self, name: str) -> Ceilings:
        spec = self._live.groups[name]
        return Ceilings(spec.max_machines, spec.max_gpus, spec.max_price)

    # Slices

    def _plan(
        self,
        name: str,
        states: Sequence[PoolState],
        slices: Sequence[Slice],
        decision: RoutingDecision,
        work: Work,
    ) -> SlicePlan:
        promised = self._slice_states.promised(decision)
        found = [self._slice_states.of(each, promised.get(each.id, 0), work) for each in slices]
        budget = CeilingBudget(name, self._ceilings(name), states)
        plan = plan_slices(states, found, decision.launches, budget, work.now)
        for each in slices:
            each.stays = plan.stays.get(each.id)
        return plan

    def _make(
        self, plan: SlicePlan, decision: RoutingDecision, work: Work
    ) -> Mapping[str, list[Slice]]:
        """Wish for the slices of the plan; the answer has those of each pool, in the order in which
        the decision numbers them."""
        firsts = first_of_pools(decision)
        made: dict[str, list[Slice]] = {}
        left = MOST_MADE
        for name, count in plan.launch.items():
            pool = self._fleet.pool(name)
            assert pool is not None, "the plan is about pools that exist"
            demanded = decision.launches.get(name, 0)
            for number in range(min(count, left)):
                if number < demanded:
                    why = for_demand(firsts.get(name))
                elif pool.spec.min_slices:
                    why = SliceForMin(pool=name, min_slices=pool.spec.min_slices)
                else:
                    why = SliceForBuffer(
                        pool=name,
                        buffer_slices=pool.spec.buffer_slices,
                    )
                made.setdefault(name, []).append(self._slices.make(work, pool, why))
            left -= min(count, left)
        return made

    # For people

    def _tell(self, name: str, seen: _Seen, decision: RoutingDecision, plan: SlicePlan) -> None:
        """Log a decision in one line, if it makes or deletes slices, or begins or ceases to leave
        demand unmet."""
        unmet = sum(each.sessions for each in decision.unmet)
        if plan.launch or plan.delete or bool(unmet) != seen.told_unmet:
            made = [f"{pool}:{count}" for pool, count in plan.launch.items()]
            line = f"autoscaler group={name} make=%s delete=%s routed=%d unmet=%d"
            log.info(
                line,  # each group is bounded by itself
                _some(made),
                _some(list(plan.delete)),
                len(decision.routed),
                unmet,
                extra=BOUND,
            )
        seen.told_unmet = bool(unmet)


def _some(words: Sequence[str]) -> str:
    """The first words of a log line's list, and how many more there are."""
    more = [f"and {len(words) - MOST_TOLD} more"] if len(words) > MOST_TOLD else []
    return ",".join([*words[:MOST_TOLD], *more]) or "-"


def _pools_of_made(made: Mapping[str, list[Slice]]) -> dict[str, str]:
    """The pool of each slice that was just wished for."""
    return {each.id: pool for pool, slices in made.items() for each in slices}


def _stands_still(pool: Pool) -> bool:
    return pool.status is PoolStatus.TRIPPED
