"""Learning: a selector that learns is told the requests of each session once."""

from collections.abc import Iterable

from muster.core.ids import SessionId
from muster.core.resources import Resources
from muster.scheduling.policy.plugins import LearningSelector
from muster.scheduling.workload import WorkloadClass


class Learner:
    """A group's selector that learns the requests of sessions.

    The requests of a session that goes back to the queue are not told again.
    """

    def __init__(
        self, selector: LearningSelector, past: Iterable[tuple[Resources, int]] = ()
    ) -> None:
        """
        Args:
            past: the requests of sessions that have ended, each with its number of kernels.

        Raises:
            PluginFault: the selector fails.
        """
        self._selector = selector
        self._told: set[SessionId] = set()  # sessions that have not ended
        for request, kernels in past:
            selector.arrived(request, kernels)

    def arrived(self, id_: SessionId, workload: WorkloadClass) -> None:
        """Tell the selector of a session in the queue, unless that was done before.

        Raises:
            PluginFault: the selector fails.
        """
        if id_ not in self._told:
            self._told.add(id_)
            for request, indexes in workload.requests:
                self._selector.arrived(request, len(indexes))

    def ended(self, id_: SessionId) -> None:
        self._told.discard(id_)
