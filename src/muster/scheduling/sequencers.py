"""Orders in which a queue is tried (sokovan-scheduler, "Sequencers")."""

from collections.abc import Sequence
from operator import attrgetter

from muster.scheduling.plugins import PassContext
from muster.scheduling.workload import SessionWorkload

_AGE = attrgetter("submitted_at", "id")
_PRIORITY = attrgetter("priority")


class Fifo:
    """First in, first out within a priority; higher priority first, then age, then identifier."""

    def sequence(
        self, sessions: Sequence[SessionWorkload], context: PassContext
    ) -> list[SessionWorkload]:
        order = sorted(sessions, key=_AGE)
        order.sort(key=_PRIORITY, reverse=True)  # stable, so that age stays in order
        return order
