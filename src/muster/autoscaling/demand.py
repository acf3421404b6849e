"""Demand: the sessions that a pass could not place for want of room, in the order of the queue
(design: Autoscaling)."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from muster.core.ids import SessionId
from muster.core.reasons import NEEDS_AGENT, ReasonCode
from muster.scheduling.passes.class_order import ClassOrder
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import WAITS_FOR_ROOM
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.workload import WorkloadClass

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


class Demand:
    """The demand of one group after a pass.

    Sessions are offered in runs of one class, so that a class that cannot be served costs no more
    than one look, however many sessions it has.

    Args:
        group: after a pass at the moment ``now``.
        more: sessions that would be handed in besides.
        to_come: by class, how many sessions will follow those that wait: later tasks of their jobs.
    """

    def __init__(
        self,
        group: GroupState,
        now: float,
        more: QueueClass | None = None,
        to_come: Mapping[WorkloadClass, int] = MappingProxyType({}),
    ) -> None:
        self._to_come = to_come
        self._group = group
        self._now = now
        self._classes = [
            members
            for members in group.queue.classes
            if members.reasons and all(each.code in WANTS_ROOM for each in members.reasons)
        ]
        if more is not None:
            self._classes.append(more)
        self._dropped: set[QueueClass] = set()

    @property
    def classes(self) -> Mapping[WorkloadClass, int]:
        """How many sessions of each class there are, those to come included."""
        return {members.workload: self.sessions(members) for members in self._classes}

    def sessions(self, members: QueueClass) -> int:
        """How many sessions a class has, those to come included."""
        return len(members) + min(self._to_come.get(members.workload, 0), MOST_TO_COME)

    def runs(self) -> Iterator[tuple[QueueClass, Sequence[DemandEntry]]]:
        """Sessions of one class that follow each other in the queue; those of a class that was
        dropped are left out."""
        sequencer = self._group.policy.sequencer
        context = self._group.context(self._now)
        order = ClassOrder(self._classes, sequencer, context)
        while (cursor := order.pop()) is not None:
            run = cursor.run(order.next_rank, _RUN, sequencer, context)
            members = cursor.members
            entries = [
                DemandEntry(each.id, members.workload)
                for each in run
                if each.id not in self._group.displacing  # others leave for it already
            ]
            if entries:
                yield members, entries
            again = cursor.session is not None and members not in self._dropped
            order.put_back(cursor, again=again)
            if cursor.session is None:
                yield from self._followers(members)

    def _followers(self, members: QueueClass) -> Iterator[tuple[QueueClass, Sequence[DemandEntry]]]:
        """Runs of the sessions of a class that are to come."""
        left = self.sessions(members) - len(members)
        while left > 0 and members not in self._dropped:
            run = min(left, _RUN)
            yield members, [DemandEntry(TO_COME, members.workload)] * run
            left -= run

    def drop(self, members: QueueClass) -> None:
        """Offer no more sessions of a class, none of which can be served."""
        self._dropped.add(members)
