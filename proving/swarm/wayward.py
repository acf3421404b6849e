"""Plug-ins that serve as the built-in parts do for some calls, and then fail, each in its own
way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Floats, Ints
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy import guard
from muster.scheduling.policy.guard import TooLate
from muster.scheduling.policy.hooks import BatchHook
from muster.scheduling.policy.plugins import PassContext, registered
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.policy.sequencers import Fifo
from muster.scheduling.workload import SessionWorkload, WorkloadClass

T = TypeVar("T")

_MAX_LINES = 10_000
"""Lines of a plug-in's call in a run: more than sound ones need there."""


@contextmanager
def on_a_short_leash() -> Iterator[None]:
    """Have plug-ins that loop noticed soon."""
    usual, guard.MAX_LINES = guard.MAX_LINES, _MAX_LINES
    try:
        yield
    finally:
        guard.MAX_LINES = usual


class Failure(StrEnum):
    """The ways in which a plug-in may fail."""

    RAISES = "raises"
    LOOPS = "loops"
    BABBLES = "babbles"
    SLOW = "slow"  # it computes in a library, until the controller's alarm rings


class Wayward:
    """A plug-in that fails at each call after the first ``calls``.

    ``has_failed`` says that it has failed once: it must not be asked again.
    """

    def __init__(self, calls: int = 0, fails: str = Failure.RAISES) -> None:
        self._left = calls
        self._fails = Failure(fails)
        self.has_failed = False

    def _answer(self, sound: Callable[[], T], nonsense: Any) -> T:
        if self._left > 0:
            self._left -= 1
            return sound()
        self.has_failed = True
        match self._fails:
            case Failure.RAISES:
                raise ZeroDivisionError
            case Failure.SLOW:
                raise TooLate("ran for more than 5 s in one call")
            case Failure.BABBLES:
                answer: T = nonsense
                return answer
            case Failure.LOOPS:
                while True:
                    pass


class WaywardValidator(Wayward):
    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        return self._answer(lambda: (), ["not today"])


class WaywardSequencer(Wayward, Fifo):
    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        return self._answer(lambda: Fifo.key(self, session, context), (float("nan"),))


class WaywardSelector(Wayward, Concentrated):
    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        return self._answer(lambda: Concentrated.score(self, request, snapshot, candidates), "best")


class WaywardHook(Wayward, BatchHook):
    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        return self._answer(lambda: BatchHook.on_schedule(self, workload), None)

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        return self._answer(lambda: environment, ["PATH"])

    def after_end(self, session: SessionId, succeeded: bool) -> None:
        if self._fails is not Failure.BABBLES:  # nobody looks at the answer
            self._answer(lambda: None, None)


NAMES: Mapping[str, str] = {
    "validators": "wayward_validator",
    "sequencers": "wayward_sequencer",
    "selectors": "wayward_selector",
    "hooks": "wayward_hook",
}
"""The names of these plug-ins, by kind."""
_CLASSES: Mapping[str, type[Wayward]] = {
    "validators": WaywardValidator,
    "sequencers": WaywardSequencer,
    "selectors": WaywardSelector,
    "hooks": WaywardHook,
}
registered.update({(kind, name): _CLASSES[kind] for kind, name in NAMES.items()})
