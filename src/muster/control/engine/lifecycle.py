"""What the engine asks of an entity, beside its handlers."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from muster.control.engine.handler import Handler, TransitionStatus
from muster.control.engine.work import Work
from muster.core.reasons import Reason, ReasonCode
from muster.core.results import SchedulingResult
from muster.store.unit import R


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a phase is tried, and the wait after its first failure; it doubles, to a limit."""

    max_tries: int
    backoff_s: float
    longest_backoff_s: float = 60.0

    def delay_s(self, tries: int) -> float:
        return min(self.backoff_s * 2.0 ** (tries - 1), self.longest_backoff_s)


class Lifecycle(ABC, Generic[R]):
    """One entity's declaration to the engine."""

    entity: ClassVar[type]

    @abstractmethod
    def move(
        self,
        work: Work,
        records: Sequence[R],
        handler: Handler[R],
        to: TransitionStatus,
        result: SchedulingResult,
        reason: Reason | None,
    ) -> list[R]:
        """Give the records (and what hangs on them) their next status; those that moved."""

    def deadlines(self, record: R, work: Work) -> Iterable[float]:
        """When the record is to be looked at again, though nothing happens to it, beside when a
        handler's timeout ends. Those that have passed do not count."""
        return ()

    def retry_policy(self, record: R, work: Work) -> RetryPolicy:
        return RetryPolicy(3, 1.0)

    def final(self, reason: Reason) -> bool:
        """Whether a failure for this reason cannot be cured by another try in place."""
        return False

    def gave_up(self, handler: Handler[R], record: Any, reason: Reason) -> Reason:
        """The reason of a GIVE_UP whose last failure was ``reason``."""
        return Reason(
            ReasonCode.PHASE_GAVE_UP,
            (("phase", handler.name), ("tries", record.tries), ("how", reason.sentence())),
        )
