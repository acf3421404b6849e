"""Sessions that leave for others, found again after the mirror was read."""

from collections.abc import Iterable, Mapping

from muster.control.session.cluster.workloads import IN_PLACE
from muster.core.ids import SessionId
from muster.core.reasons.of_sessions import Preempted, PreemptedForGood
from muster.scheduling.passes.group_state import GroupState
from muster.store.records import Session

Preemption = Preempted | PreemptedForGood
"""The reasons of sessions that leave for another one, whose priority they name."""


def follow_displaced(groups: Iterable[GroupState], placed: Mapping[SessionId, Session]) -> None:
    """Note again for which sessions others are leaving. The stored reason names the priority of the
    displacing session and not its id. So every waiting session of that priority counts as
    displacing until the victims are gone."""
    for state in groups:
        leaving: dict[int, set[SessionId]] = {}
        for id_ in state.placed:
            session = placed[id_]
            why = session.reason
            if isinstance(why, Preemption) and session.status not in IN_PLACE:
                leaving.setdefault(why.priority, set()).add(id_)
        for waiting in state.queue if leaving else ():
            if waiting.workload.priority in leaving:
                state.displacing[waiting.id] = set(leaving[waiting.workload.priority])
