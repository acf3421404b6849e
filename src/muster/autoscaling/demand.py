"""Demand: the sessions that a pass could not place for want of room, in the order of the queue
(design: Autoscaling)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from muster.core.ids import SessionId
from muster.core.reasons import NEEDS_AGENT, Reason, ReasonCode
from muster.core.reasons.of_quotas import ModelQuotaInUse, QuotaInUse
from muster.scheduling.passes.class_order import ClassOrder
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import WAITS_FOR_ROOM
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.passes.start_rules import StartRules
from muster.scheduling.workload import SessionWorkload, WorkloadClass

WANTS_ROOM = (
    WAITS_FOR_ROOM
    | NEEDS_AGENT
    | {
        ReasonCode.NO_ALIVE_AGENTS,
        ReasonCode.NEEDS_ABSENT_AGENTS,
    }
)
"""Reasons of waiting sessions that more machines could cure. What waits for a quota, a dependency,
a start time or a person is no demand."""

TO_COME = SessionId("")
"""The session of an entry that stands for one to come."""
MOST_TO_COME = 10_000
"""Sessions of a class to come that are routed at a time; more follow once these have places."""
_RUN = 1_000  # sessions that are offered at a time


class DemandEntry(NamedTuple):
    """A session that found no room: a task, or a gang whose kernels start together (source: Iris).
    Its kernels are Iris's ``task_ids``; devices, constraints and resources are in its class."""

    session: SessionId
    workload: WorkloadClass


@dataclass(frozen=True, slots=True)
class WithheldDemand:
    """Sessions of one class that are no demand, because a rule forbids them to start once those
    before them in the queue have: most often a quota.

    Args:
        first: the first of them in the queue.
        sessions: how many they are.
        reasons: all that hold.
    """

    first: SessionId
    workload: WorkloadClass
    sessions: int
    reasons: tuple[Reason, ...]


class Demand:
    """The demand of one group after a pass.

    Sessions are offered in runs of one class, so that a class that cannot be served costs no more
    than one look, however many sessions it has. Those that find room are charged against quotas in
    the order of the queue, as placement will charge them.

    Attributes:
        withheld: the sessions that were left out so far because a rule forbids them to start.
        charged: by class, how many sessions count against quotas so far.

    Args:
        group: after a pass at the moment ``now``.
        more: sessions that would be handed in besides.
        to_come: by class, how many sessions will follow those that wait: later tasks of their jobs.
        elsewhere: by class, how many sessions of other groups are to find room, and count against
            the same quotas.
    """

    def __init__(
        self,
        group: GroupState,
        now: float,
        more: QueueClass | None = None,
        to_come: Mapping[WorkloadClass, int] = MappingProxyType({}),
        elsewhere: Mapping[WorkloadClass, int] = MappingProxyType({}),
    ) -> None:
        self._to_come = to_come
        self._group = group
        self._made_of = now, more, elsewhere
        self._rules = StartRules(group.policy, group.context(now))
        self._rules.charge(elsewhere)
        self._counts = self._rules.depend_on_usage or group.policy.sequencer.dynamic
        self._classes = [
            members
            for members in group.queue.classes
            if members.reasons and all(each.code in WANTS_ROOM for each in members.reasons)
        ]
        if more is not None:
            self._classes.append(more)
        self._dropped: set[QueueClass] = set()
        self.withheld: list[WithheldDemand] = []
        self.charged: dict[WorkloadClass, int] = {}

    def anew(self) -> "Demand":
        """The same demand, of which nothing was offered yet."""
        now, more, elsewhere = self._made_of
        return Demand(self._group, now, more, self._to_come, elsewhere)

    @property
    def classes(self) -> Mapping[WorkloadClass, int]:
        """How many sessions of each class there are, those to come included."""
        return {members.workload: self.sessions(members) for members in self._classes}

    def sessions(self, members: QueueClass) -> int:
        """How many sessions a class has, those to come included."""
        return len(members) + min(self._to_come.get(members.workload, 0), MOST_TO_COME)

    def runs(self) -> Iterator[tuple[QueueClass, Sequence[DemandEntry]]]:
        """Sessions of one class that follow each other in the queue. Those of a class that was
        dropped are left out, and so are those that a rule forbids to start."""
        sequencer, context = self._group.policy.sequencer, self._rules.context
        may_forbid = self._rules.depend_on_usage  # else the last pass has asked
        order = ClassOrder(self._classes, sequencer, context)
        offered = Counter[QueueClass]()
        while (cursor := order.pop()) is not None:
            members, limit = cursor.members, order.next_rank
            assert cursor.session is not None, "a class that has no more is not put back"
            if may_forbid and self._withhold(members, cursor.session.id, offered[members]):
                order.put_back(cursor, again=False)
                continue
            most = 1
            if not self._counts:
                most = _RUN
            elif not sequencer.dynamic:
                most = self._rules.allow(members.workload, min(len(members), _RUN))
            run = cursor.run(limit, most, sequencer, context)
            if may_forbid:
                offered[members] += len(run)
            entries = self._entries(members, run)
            if entries:
                yield members, entries
            has_more = cursor.session is not None
            order.put_back(cursor, again=has_more and members not in self._dropped)
            if not has_more:
                yield from self._followers(members)

    def charge(self, members: QueueClass, sessions: int) -> None:
        """Count so many sessions of a class as those that are to start."""
        if sessions and self._counts:
            workload = members.workload
            self._rules.charge({workload: sessions})
            self.charged[workload] = self.charged.get(workload, 0) + sessions

    def _entries(
        self, members: QueueClass, run: Sequence[SessionWorkload]
    ) -> Sequence[DemandEntry]:
        """The entries of sessions; those for which others leave already have their room, and their
        place in the quota."""
        displacing, workload = self._group.displacing, members.workload
        if not displacing:
            return [DemandEntry(each.id, workload) for each in run]
        entries = [DemandEntry(each.id, workload) for each in run if each.id not in displacing]
        self.charge(members, len(run) - len(entries))
        return entries

    def _followers(self, members: QueueClass) -> Iterator[tuple[QueueClass, Sequence[DemandEntry]]]:
        """Runs of the sessions of a class that are to come."""
        all_, workload = self.sessions(members), members.workload
        left = all_ - len(members)
        while left > 0 and members not in self._dropped:
            if self._rules.depend_on_usage and self._withhold(members, TO_COME, all_ - left):
                return
            run = self._rules.allow(workload, min(left, _RUN))
            yield members, [DemandEntry(TO_COME, workload)] * run
            left -= run

    def _withhold(self, members: QueueClass, first: SessionId, offered: int) -> bool:
        """Leave out the further sessions of a class if a rule forbids them to start; whether one
        does.

        Args:
            first: of them.
            offered: how many of the class came before.
        """
        workload = members.workload
        reasons = self._rules.forbid(workload)
        if reasons:
            left = self.sessions(members) - offered
            told = tuple(map(_with_ahead, reasons))
            self.withheld.append(WithheldDemand(first, workload, left, told))
        return bool(reasons)

    def drop(self, members: QueueClass) -> None:
        """Offer no more sessions of a class, none of which can be served."""
        self._dropped.add(members)


def _with_ahead(why: Reason) -> Reason:
    """A reason, with the note that it counts sessions that have not started yet."""
    if isinstance(why, QuotaInUse | ModelQuotaInUse):
        return replace(why, ahead=True)
    return why
