"""What a scaling group has seen before, for policies that decide by it."""

from collections.abc import Iterable
from typing import Protocol

from muster.core.ids import SessionId
from muster.core.resources import Resources
from muster.scheduling.fairness import Stay
from muster.scheduling.workload import WorkloadClass


class History(Protocol):
    """What a group has seen: read when a policy begins to ask for it."""

    def usage(self, seconds: float) -> Iterable[Stay]:
        """What sessions held that ended in the last so many seconds."""

    def requests(self) -> Iterable[tuple[Resources, int]]:
        """What sessions asked for that have ended, and for how many kernels."""

    def live(self) -> Iterable[tuple[SessionId, WorkloadClass]]:
        """The sessions that have not ended, those that neither wait nor hold room included."""


class NoHistory:
    """Of a group that begins. Fills History."""

    def usage(self, seconds: float) -> Iterable[Stay]:
        return ()

    def requests(self) -> Iterable[tuple[Resources, int]]:
        return ()

    def live(self) -> Iterable[tuple[SessionId, WorkloadClass]]:
        return ()
