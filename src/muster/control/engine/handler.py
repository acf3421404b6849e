"""What an entity declares to the engine: handlers of four kinds.

Names and results are taken over (source: Sokovan). ``execute`` is not a coroutine: what a handler
wishes of the world is an effect, performed after the commit, and its outcome comes back as an
input, so nothing in a pass waits (and the whole of it runs under virtual time).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import ClassVar, Generic, TypeVar

from muster.control.engine.work import Work
from muster.core.reasons import Reason
from muster.store.entity import R, Tried


@dataclass(frozen=True, slots=True)
class TransitionStatus:
    """A record's next status, and that of those who follow it (a session's kernels); None leaves
    either as it is."""

    status: StrEnum | None = None
    followers: StrEnum | None = None


STAY = TransitionStatus()
"""The verdict changes no status; history tells of it all the same."""


@dataclass(frozen=True, slots=True)
class StatusTransitions:
    """What each verdict leads to; None says that the handler's targets never get it."""

    success: TransitionStatus | None = None
    need_retry: TransitionStatus | None = None
    expired: TransitionStatus | None = None
    give_up: TransitionStatus | None = None
    stale: TransitionStatus | None = None


@dataclass(slots=True)
class HandlerResult(Generic[R]):
    """What became of a handler's targets; one that is in no list is still under way.

    ``stale`` are those of which nothing was heard for too long to tell. Records that were no
    targets may be in each list, where one decision is about many.
    """

    successes: list[R] = field(default_factory=list)
    failures: dict[R, Reason] = field(default_factory=dict)
    skipped: dict[R, tuple[Reason, ...]] = field(default_factory=dict)
    stale: dict[R, Reason] = field(default_factory=dict)


class Stage(IntEnum):
    """When in a pass a handler runs, before or after those of other entities; within a stage the
    order is that of modules and of their handlers."""

    OBSERVE = 1  # machines: who is there
    EXPAND = 2  # what is to be run becomes records
    ADVANCE = 3  # the life of those
    SETTLE = 4  # what became of them counts for what asked for them
    DERIVE = 5  # and for the whole
    TELL = 6  # who asked to hear of it


class Handler(ABC, Generic[R]):
    """Anything that looks at the changed records of one entity in a pass."""

    name: ClassVar[str]
    stage: ClassVar[Stage] = Stage.ADVANCE
    entity: ClassVar[type]
    targets: ClassVar[frozenset[StrEnum]]

    def gather(self, candidates: Sequence[R], work: Work) -> Sequence[R]:
        """Which records to handle; ``candidates`` are those that changed."""
        targets = self.targets
        return [record for record in candidates if record.status in targets]

    def is_due(self, targets: Sequence[R]) -> bool:
        """Whether to run in this pass, given what ``gather`` answered."""
        return bool(targets)


T = TypeVar("T", bound=Tried)


class LifecycleHandler(Handler[T]):
    """Acts on its targets; the engine judges the failures."""

    transitions: ClassVar[StatusTransitions]

    @abstractmethod
    def execute(self, targets: Sequence[T], work: Work) -> HandlerResult[T]:
        """Act. Whatever is attempted is said in the result; nothing waits."""

    def timeout_s(self, record: T, work: Work) -> float | None:
        """How long the record may stay in its status before it is EXPIRED; None is for ever."""
        return None

    def since(self, record: T, work: Work) -> float:
        """When the time of ``timeout_s`` began."""
        return record.status_changed_at

    def expiry_reason(self, record: T, work: Work, timeout_s: float) -> Reason | None:
        """The reason of an expiry, where it is not the plain one."""
        return None

    def succeeded(self, records: Sequence[T], work: Work) -> None:
        """Called once the successes have their new status."""


class PromotionHandler(Handler[R]):
    """Promotes a record by the statuses of its followers, which it leaves as they are."""

    success: ClassVar[StrEnum]

    @abstractmethod
    def promotes(self, record: R) -> bool:
        """Whether the followers meet the condition."""

    def reason(self, record: R) -> Reason | None:
        """Why, where the promotion needs saying."""
        return None


class DerivationHandler(Handler[R]):
    """Derives a record's status from other facts; a pure function decides."""

    @abstractmethod
    def derive(self, record: R, work: Work) -> tuple[StrEnum, Reason | None] | None:
        """The status it should have and why, or None to leave it."""

    def derived(self, record: R, work: Work) -> None:
        """Called once the record has its new status."""


class FollowingHandler(Handler[R]):
    """Brings other entities in line with a changed record; its own status is not its business."""

    @abstractmethod
    def follow(self, record: R, work: Work) -> None: ...
