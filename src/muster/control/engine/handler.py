"""What an entity declares to the engine: handlers of four kinds.

Names and results are those of reference sokovan-status-transitions. ``execute`` is not a coroutine:
a handler's effects are commands, sent after the commit, and their outcomes come back as facts, so
nothing in a pass waits (and the whole of it runs under virtual time).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Generic

from muster.control.engine.work import Work
from muster.core.reasons import Reason
from muster.core.states import KernelStatus
from muster.store.records import Session
from muster.store.unit import R


@dataclass(frozen=True, slots=True)
class TransitionStatus:
    """The entity's next status and its kernels'; None leaves them as they are."""

    status: str | None = None
    kernel: KernelStatus | None = None


@dataclass(frozen=True, slots=True)
class StatusTransitions:
    """What each verdict leads to; None changes nothing, the history row is written all the same."""

    success: TransitionStatus | None = None
    need_retry: TransitionStatus | None = None
    expired: TransitionStatus | None = None
    give_up: TransitionStatus | None = None


@dataclass(slots=True)
class HandlerResult(Generic[R]):
    """What became of a handler's targets; one that is in no list is still under way.

    Records that were no targets may be among them, where one decision is about many.
    """

    successes: list[R] = field(default_factory=list)
    failures: dict[R, Reason] = field(default_factory=dict)
    skipped: dict[R, tuple[Reason, ...]] = field(default_factory=dict)


class KernelMatchType(Enum):
    ALL = "all"
    ANY = "any"
    NOT_ANY = "not_any"


class Handler(ABC, Generic[R]):
    """Anything that looks at the changed records of one entity in a pass."""

    name: ClassVar[str]
    entity: ClassVar[type]
    targets: ClassVar[frozenset[str]]

    def gather(self, candidates: Sequence[R], work: Work) -> Sequence[R]:
        """Which records to handle; ``candidates`` are those that changed."""
        targets = self.targets
        return [record for record in candidates if record.status in targets]

    def is_due(self, targets: Sequence[R]) -> bool:
        """Whether to run in this pass, given what ``gather`` answered."""
        return bool(targets)


class LifecycleHandler(Handler[R]):
    """Acts on its targets; the engine judges the failures."""

    transitions: ClassVar[StatusTransitions]

    @abstractmethod
    def execute(self, targets: Sequence[R], work: Work) -> HandlerResult[R]:
        """Act. Whatever is attempted is said in the result; nothing waits."""

    def timeout_s(self, record: R, work: Work) -> float | None:
        """How long the record may stay in its status before it is EXPIRED; None is for ever."""
        return None

    def since(self, record: R, work: Work) -> float:
        """When the time of ``timeout_s`` began."""
        return record.status_changed_at

    def expiry_reason(self, record: R, work: Work, timeout_s: float) -> Reason | None:
        """The reason of an expiry, where it is not the plain one."""
        return None

    def succeeded(self, records: Sequence[R], work: Work) -> None:
        """Called once the successes have their new status."""


class SessionPromotionHandler(Handler[Session]):
    """Promotes sessions by the statuses of their kernels, which it leaves as they are."""

    entity = Session
    check_kernel_statuses: ClassVar[frozenset[KernelStatus]]
    match_type: ClassVar[KernelMatchType]
    success: ClassVar[str]

    def promotes(self, session: Session) -> bool:
        """Whether the kernels meet the condition; a session without kernels never does, except
        to its end (DESIGN section 4)."""
        kernels = len(session.kernels)
        found = session.tally.among(self.check_kernel_statuses)
        match self.match_type:
            case KernelMatchType.ALL:
                return 0 < kernels == found
            case KernelMatchType.ANY:
                return found > 0
            case KernelMatchType.NOT_ANY:
                if not kernels:
                    return self.success in ("TERMINATED", "CANCELLED")
                return not found

    def reason(self, session: Session) -> Reason | None:
        """Why, where the promotion needs saying."""
        return None


class DerivationHandler(Handler[R]):
    """Derives a record's status from other facts; a pure function decides."""

    @abstractmethod
    def derive(self, record: R, work: Work) -> tuple[str, Reason | None] | None:
        """The status it should have and why, or None to leave it."""

    def derived(self, record: R, work: Work) -> None:
        """Called once the record has its new status."""


class FollowingHandler(Handler[R]):
    """Brings other entities in line with a changed record; its own status is not its business."""

    @abstractmethod
    def follow(self, record: R, work: Work) -> None: ...
