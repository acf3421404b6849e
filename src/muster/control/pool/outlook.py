"""The machines that may come for the waiting sessions of a group: the last decision, as people and
placement ask about it."""

import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.matching import Matcher
from muster.autoscaling.pool_state import Ceilings
from muster.autoscaling.reach import why_out_of_reach
from muster.autoscaling.unmet import UnmetDemand
from muster.control.pool.records import Pool, Slice
from muster.control.pool.states import PoolStatus
from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.core.reasons.of_demand import WaitsForSlice
from muster.core.reasons.of_machines import SliceTriedAgain
from muster.core.reasons.of_pools import PoolFailedBefore
from muster.core.specs.pool import POOL, RESERVED
from muster.core.states.slice import SliceStatus
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.outlook import Addition
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.workload import WorkloadClass
from muster.store.live import Live

_KEPT_TIMES = 20
LATE = 1.25
"""A slice is late once it has taken so many times as long as the slowest of the last ones."""
_MOST_POOLS = 20
"""Pools whose reasons are told about a session, those first that have the machines."""


class Usual:
    """How long slices of each pool took of late from the wish until they were READY."""

    def __init__(self) -> None:
        self._took: dict[str, deque[float]] = {}

    def saw(self, slice_: Slice) -> None:
        if slice_.ready_at is not None:
            took = self._took.setdefault(slice_.pool, deque(maxlen=_KEPT_TIMES))
            took.append(slice_.ready_at - slice_.created_at)

    def of(self, pool: str) -> float | None:
        """The median, in seconds; None until one was READY."""
        took = self._took.get(pool)
        return statistics.median(took) if took else None

    def longest(self, pool: str) -> float | None:
        """The longest of these times, in seconds; None until one was READY."""
        return max(self._took.get(pool, ()), default=None)


class GroupOutlook:
    """The last decision about a group's demand.

    Args:
        group: the state of the group.
        waits_for: by session, the slices on which its room is to come.
        route: routes the group's demand, and more besides, as the decision was made.
        matcher, ceilings: the group's pools, and the most that they may have together.
        pool: the pool of a name, if it exists.
        decided_at: when the decision was made.
    """

    def __init__(
        self,
        live: Live,
        group: GroupState,
        decision: RoutingDecision,
        waits_for: Mapping[SessionId, tuple[str, ...]],
        route: Callable[[float, QueueClass | None], RoutingDecision],
        matcher: Matcher,
        ceilings: Ceilings,
        usual: Usual,
        pool: Callable[[str], Pool | None],
        decided_at: float,
    ) -> None:
        self.decision = decision
        self.decided_at = decided_at
        self.matcher = matcher
        self._group = group
        self._ceilings = ceilings
        self._pool = pool
        self._route = route
        self._live = live
        self._waits_for = waits_for
        self._usual = usual
        self._has_room = {routed.entry.session for routed in decision.routed}
        self._unmet: Mapping[WorkloadClass, UnmetDemand] = {
            each.workload: each for each in decision.unmet
        }
        self._withheld: Mapping[WorkloadClass, tuple[Reason, ...]] = {
            each.workload: each.reasons for each in decision.withheld
        }

    def of(self, session: SessionId, workload: WorkloadClass, now: float) -> tuple[Reason, ...]:
        """The slice for which a waiting session waits, with what keeps its provider from making it,
        or why no pool makes machines for it; empty where its wait has nothing to do with
        machines."""
        found = [self._live.of(Slice).get(id_) for id_ in self._waits_for.get(session, ())]
        coming = [each for each in found if each is not None and each.is_coming]
        if coming:
            last = max(coming, key=lambda each: (each.tries, each.created_at))
            return (self._waits(last, len(coming), now), *self._troubles(last, now))
        if session in self._waits_for:
            return ()  # they have come, or others are about to be routed
        unmet = self._unmet.get(workload)
        if unmet is None:
            return ()
        if (never := self.out_of_reach(workload)) is not None:
            return (never,)
        return tuple(why for reasons in unmet.why.some(_MOST_POOLS).values() for why in reasons)

    def is_served(self, session: SessionId, workload: WorkloadClass, now: float) -> bool:
        """Whether a waiting session gets machines that are sure to come within their usual time, or
        the next routing finds that out."""
        on = self._waits_for.get(session)
        if on is not None:
            return now < self.sure_until(on)
        if session in self._has_room or workload in self._unmet or workload in self._withheld:
            return False
        pools = (self.matcher.specs[number].name for number in self.matcher.match(workload).pools)
        return any(self._is_reliable(pool, now) for pool in pools)

    def sure_until(self, slices: Sequence[str]) -> float:
        """The moment until which these slices are sure to come: no call about them has failed, and
        none has taken much longer than the slowest of the last slices of its pool. 0 if they are
        not."""
        until = math.inf
        for id_ in slices:
            slice_ = self._live.of(Slice).get(id_)
            if slice_ is None or not slice_.is_coming or slice_.tries:
                return 0.0
            longest_s = self._usual.longest(slice_.pool)
            if longest_s is None or not self._is_reliable(slice_.pool, slice_.created_at):
                return 0.0
            until = min(until, slice_.created_at + LATE * longest_s)
        return until

    def _is_reliable(self, name: str, now: float) -> bool:
        """Whether a pool makes slices, has made one of late, and none failed since."""
        pool = self._pool(name)
        return (
            pool is not None
            and pool.status is PoolStatus.ACTIVE
            and not pool.standing.failures
            and pool.standing.closed_until <= now
            and self._usual.longest(name) is not None
        )

    def withheld(self, session: SessionId, workload: WorkloadClass) -> tuple[Reason, ...]:
        """The rules that forbid a waiting session to start once those ahead of it have, so that no
        machine is made for it; empty where there are none."""
        if session in self._has_room or session in self._group.displacing:
            return ()
        return self._withheld.get(workload, ())

    def slices_for(self, session: SessionId) -> tuple[str, ...]:
        """The slices on which a session's room is to come: ids, or ``pool+number`` of one that was
        not asked for yet."""
        return self._waits_for.get(session, ())

    def _waits(self, slice_: Slice, slices: int, now: float) -> Reason:
        usual_s = self._usual.of(slice_.pool)
        return WaitsForSlice(
            slice=slice_.id,
            pool=slice_.pool,
            status=slice_.status.value,
            for_s=round(now - slice_.created_at),
            others=slices - 1,
            usual_s=None if usual_s is None else round(usual_s),
        )

    def _troubles(self, slice_: Slice, now: float) -> Iterator[Reason]:
        """The failures of a slice that is coming, or of those of its pool before it."""
        if slice_.tries and slice_.reason is not None and slice_.status is SliceStatus.REQUESTING:
            in_s = None
            if slice_.handed_at is None:
                in_s = round(max(slice_.retry_at - now, 1.0))
            yield SliceTriedAgain(
                slice=slice_.id,
                tries=slice_.tries,
                how=slice_.reason.sentence(),
                in_s=in_s,
            )
            return
        pool = self._pool(slice_.pool)
        if pool is not None and pool.standing.failures:
            told = pool.standing.told or None
            yield PoolFailedBefore(pool=pool.name, failures=pool.standing.failures, told=told)

    def out_of_reach(self, workload: WorkloadClass) -> Reason | None:
        """The reason for which the group can never hold a gang, whatever its pools make; None where
        it may."""
        snapshot = self._group.snapshot
        return why_out_of_reach(workload, snapshot, self.matcher, self._ceilings)

    def refusals(self, workload: WorkloadClass) -> tuple[Reason, ...]:
        """The reasons for which the pools could never make the machines for such a session; empty
        if they could."""
        if self.matcher.match(workload).pools:
            never = self.out_of_reach(workload)
            return () if never is None else (never,)
        return tuple(
            why for spec in self.matcher.specs for why in self.matcher.refusals(workload, spec)
        )

    def may_make_others(self, workload: WorkloadClass) -> bool:
        """Whether pools may have machines for a session beside those that cannot run it, as they
        have said."""
        if self.refusals(workload):
            return False
        snapshot = self._group.snapshot
        column, names = snapshot.attribute(POOL)
        slots = [*snapshot.slots_among(workload.unfit_agents)]
        unfit = Counter(names[column[slot]] for slot in slots if column[slot] >= 0)
        matching = (self.matcher.specs[pool] for pool in self.matcher.match(workload).pools)
        return any(unfit[spec.name] < spec.max_slices * spec.slice_size for spec in matching)

    @property
    def attributes(self) -> Set[str]:
        """The names of the attributes that machines of the pools have."""
        own = (spec.attributes for spec in self.matcher.specs)
        return {*RESERVED, *(name for each in own for name in each)}

    def additions(self, more: QueueClass, now: float) -> Sequence[Addition]:
        """The slices that would be made for sessions that are handed in now and find no room."""
        before, after = self.decision.launches, self._route(now, more).launches
        specs = {spec.name: spec for spec in self.matcher.specs}
        found = []
        for name, slices in after.items():
            added, spec = slices - before.get(name, 0), specs[name]
            if added > 0:
                machines = added * spec.slice_size
                found.append(Addition(name, added, machines, machines * spec.price))
        return found
