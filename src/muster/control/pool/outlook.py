"""The machines that may come for the waiting sessions of a group: the last decision, as people and
placement ask about it."""

import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set

from muster.autoscaling.matching import Matcher
from muster.autoscaling.routing import RoutingDecision, UnmetDemand
from muster.control.pool.records import Slice
from muster.core.ids import SessionId
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.specs.pool import RESERVED
from muster.scheduling.passes.outlook import Addition
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.workload import WorkloadClass
from muster.store.live import Live

_KEPT_TIMES = 20


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


class GroupOutlook:
    """The last decision about a group's demand.

    Args:
        waits_for: by session, the slices on which its room is to come.
        route: routes the group's demand, and more besides, as the decision was made.
        matcher: the group's pools.
    """

    def __init__(
        self,
        live: Live,
        decision: RoutingDecision,
        waits_for: Mapping[SessionId, tuple[str, ...]],
        route: Callable[[float, QueueClass | None], RoutingDecision],
        matcher: Matcher,
        usual: Usual,
    ) -> None:
        self.decision = decision
        self.matcher = matcher
        self._route = route
        self._live = live
        self._waits_for = waits_for
        self._usual = usual
        self._unmet: Mapping[WorkloadClass, UnmetDemand] = {
            each.workload: each for each in decision.unmet
        }

    def of(self, session: SessionId, workload: WorkloadClass, now: float) -> tuple[Reason, ...]:
        """The slice for which a waiting session waits, or why no pool makes machines for it; empty
        where its wait has nothing to do with machines."""
        found = [self._live.of(Slice).get(id_) for id_ in self._waits_for.get(session, ())]
        coming = [each for each in found if each is not None and each.is_coming]
        if coming:
            last = max(coming, key=lambda each: each.created_at)
            return (self._waits(last, len(coming), now),)
        if session in self._waits_for:
            return ()  # they have come, or others are about to be routed
        unmet = self._unmet.get(workload)
        if unmet is None:
            return ()
        return tuple(why for reasons in unmet.why.reasons.values() for why in reasons)

    def slices_for(self, session: SessionId) -> tuple[str, ...]:
        """The slices on which a session's room is to come: ids, or ``pool+number`` of one that was
        not asked for yet."""
        return self._waits_for.get(session, ())

    def _waits(self, slice_: Slice, slices: int, now: float) -> Reason:
        usual_s = self._usual.of(slice_.pool)
        numbers = {} if usual_s is None else {"usual_s": round(usual_s)}
        return reason(
            ReasonCode.WAITS_FOR_SLICE,
            slice=slice_.id,
            pool=slice_.pool,
            status=slice_.status.value,
            for_s=round(now - slice_.created_at),
            others=slices - 1,
            **numbers,
        )

    def refusals(self, workload: WorkloadClass) -> tuple[Reason, ...]:
        """The reasons for which no pool could ever make machines for such a session; empty if one
        could."""
        if self.matcher.match(workload).pools:
            return ()
        return tuple(
            why for spec in self.matcher.specs for why in self.matcher.refusals(workload, spec)
        )

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
