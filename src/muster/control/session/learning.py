"""What a selector that learns is told: of each session once."""

from collections import Counter
from collections.abc import Callable, Iterable

from muster.core.ids import SessionId
from muster.core.resources import Resources
from muster.scheduling.plugins import LearningSelector
from muster.store.records import Session

Asked = Callable[[str], Iterable[tuple[Resources, int]]]
"""What those have asked for that have ended in a group, by its name, and for how many kernels."""


class Learner:
    """A group's selector that wants to know what is asked for.

    A session that goes back to the queue asks for nothing new.
    """

    def __init__(self, selector: LearningSelector, asked: Iterable[tuple[Resources, int]]) -> None:
        """
        Args:
            asked: what has been asked for before, and for how many kernels.

        Raises:
            PluginFault: the selector fails.
        """
        self._selector = selector
        self._told: set[SessionId] = set()  # of those that have not ended
        for request, kernels in asked:
            selector.arrived(request, kernels)

    def came(self, session: Session) -> None:
        """The session is in the queue.

        Raises:
            PluginFault: the selector fails.
        """
        if session.id not in self._told:
            self._told.add(session.id)
            for request, kernels in Counter([each.resources for each in session.kernels]).items():
                self._selector.arrived(request, kernels)

    def ended(self, session: Session) -> None:
        self._told.discard(session.id)
