"""The past sessions of scaling groups, for policies that ask for them."""

from collections.abc import Callable, Iterable, Iterator

from muster.control.session.cluster.workloads import workload_class
from muster.core.ids import SessionId
from muster.core.resources import Resources
from muster.scheduling.accounting.fairness import UsageSpan
from muster.scheduling.workload import WorkloadClass
from muster.store.live import Live

UsageHistory = Callable[[str, float], Iterable[UsageSpan]]
"""The usage of ended sessions, by the group's name and how many seconds to look back."""
RequestHistory = Callable[[str], Iterable[tuple[Resources, int]]]
"""The requests of ended sessions, by the group's name; each with its number of kernels."""


class GroupHistory:
    """The history of one group, from the store and the mirror (see ``scheduling.History``)."""

    def __init__(
        self, name: str, live: Live, usage: UsageHistory, requests: RequestHistory
    ) -> None:
        self._name = name
        self._live = live
        self._usage = usage
        self._requests = requests

    def usage(self, seconds: float) -> Iterable[UsageSpan]:
        return self._usage(self._name, seconds)

    def requests(self) -> Iterable[tuple[Resources, int]]:
        return self._requests(self._name)

    def live(self) -> Iterator[tuple[SessionId, WorkloadClass]]:
        for session in self._live.sessions.values():
            if session.group == self._name and session.service is None:
                yield session.id, workload_class(session)
