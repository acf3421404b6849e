"""The past of a scaling group, for policies that decide by it."""

from collections.abc import Iterable
from typing import Protocol

from muster.core.ids import SessionId
from muster.core.resources import Resources
from muster.scheduling.accounting.fairness import UsageSpan
from muster.scheduling.workload import WorkloadClass


class GroupPast(Protocol):
    """The past of a group, which is read when a policy begins to need it."""

    def usage(self, seconds: float) -> Iterable[UsageSpan]:
        """The usage of each session that ended in the last ``seconds`` seconds."""

    def requests(self) -> Iterable[tuple[Resources, int]]:
        """The requests of sessions that have ended, each with its number of kernels."""

    def live(self) -> Iterable[tuple[SessionId, WorkloadClass]]:
        """All sessions that have not ended, even those that neither wait nor hold room."""


class NoHistory:
    """The History of a new group."""

    def usage(self, seconds: float) -> Iterable[UsageSpan]:
        return ()

    def requests(self) -> Iterable[tuple[Resources, int]]:
        return ()

    def live(self) -> Iterable[tuple[SessionId, WorkloadClass]]:
        return ()
