"""The machines that may come for a group's waiting sessions, as explanations ask about them."""

from typing import Protocol

from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.scheduling.workload import WorkloadClass


class Outlook(Protocol):
    """The knowledge of whoever makes machines for a group."""

    def of(self, session: SessionId, workload: WorkloadClass, now: float) -> tuple[Reason, ...]:
        """The slice for which a waiting session waits, or why no pool makes machines for it; empty
        where its wait has nothing to do with machines."""

    def refusals(self, workload: WorkloadClass) -> tuple[Reason, ...]:
        """The reasons for which no pool could ever make machines for such a session; empty if one
        could."""
