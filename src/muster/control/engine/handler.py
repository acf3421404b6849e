"""The handlers that an entity declares to the engine: four kinds.

Names and results are taken over (source: Sokovan). ``execute`` is not a coroutine: a handler's
wishes are effects, performed after the commit, and their outcomes come back as inputs, so nothing
in a pass waits, and passes run under virtual time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import ClassVar, Generic, TypeVar

from muster.control.engine.work import Work
from muster.core.reasons import Reason
from muster.core.results import SchedulingResult
from muster.store.entity import R, Record, Tried


@dataclass(frozen=True, slots=True)
class TransitionStatus:
    """The next status of a record; None leaves it as it is. ``followers`` is the transition of the
    records that follow it (a session's kernels), and ``unless`` declares another transition for
    some records."""

    status: StrEnum | None = None
    followers: "TransitionStatus | None" = None
    unless: "Unless | None" = None

    def of(self, record: Record) -> "TransitionStatus":
        """The transition that is declared for this record."""
        unless = self.unless
        return self if unless is None or not unless.condition(record) else unless.to.of(record)


@dataclass(frozen=True, slots=True)
class Unless:
    """The transition ``to`` of those records for which ``condition`` is true."""

    condition: Callable[[Record], bool]
    to: TransitionStatus


NO_CHANGE = TransitionStatus()
"""The verdict changes no status, and is told in history."""


@dataclass(frozen=True, slots=True)
class StatusTransitions:
    """The next statuses for each verdict; None says that the handler's targets never get the
    verdict. Where ``failure`` is declared there are no tries: each failure has its consequence at
    once, and neither ``need_retry`` nor ``give_up`` may be declared."""

    success: TransitionStatus | None = None
    failure: TransitionStatus | None = None
    need_retry: TransitionStatus | None = None
    expired: TransitionStatus | None = None
    give_up: TransitionStatus | None = None
    stale: TransitionStatus | None = None

    def __post_init__(self) -> None:
        has_tries = self.need_retry is not None or self.give_up is not None
        if self.failure is not None and has_tries:
            raise ValueError("failure: declared beside need_retry or give_up")

    def declared(self) -> Mapping[SchedulingResult, TransitionStatus]:
        """The transition for each verdict that the handler's targets may get."""
        every = {
            SchedulingResult.SUCCESS: self.success,
            SchedulingResult.FAILURE: self.failure,
            SchedulingResult.NEED_RETRY: self.need_retry,
            SchedulingResult.EXPIRED: self.expired,
            SchedulingResult.GIVE_UP: self.give_up,
            SchedulingResult.STALE: self.stale,
        }
        return {verdict: to for verdict, to in every.items() if to is not None}


@dataclass(slots=True)
class HandlerResult(Generic[R]):
    """The results for a handler's targets; a target in no list is still under way.

    ``stale`` are records about which nothing was heard for so long that their state is unknown. The
    lists may also contain records that were no targets, where one decision is about many records.
    """

    successes: list[R] = field(default_factory=list)
    failures: dict[R, Reason] = field(default_factory=dict)
    skipped: dict[R, tuple[Reason, ...]] = field(default_factory=dict)
    stale: dict[R, Reason] = field(default_factory=dict)


class Stage(IntEnum):
    """When in a pass a handler runs; within a stage the order is that of modules and of their
    handlers."""

    OBSERVE = 1  # find out which agents are alive
    EXPAND = 2  # make tasks of jobs, and sessions of tasks
    ADVANCE = 3  # move sessions and their kernels through their states
    SETTLE = 4  # count the ends of sessions for the tasks that they ran
    DERIVE = 5  # derive the states of jobs from those of their tasks
    TELL = 6  # tell channels of the ends of work


class Handler(ABC, Generic[R]):
    """A part of the engine's pass that looks at the changed records of one ``entity``: its targets
    are the records that have one of the ``statuses``."""

    name: ClassVar[str]
    stage: ClassVar[Stage] = Stage.ADVANCE
    entity: ClassVar[type]
    statuses: ClassVar[frozenset[StrEnum]]

    narrows: ClassVar[bool] = False
    """Whether a ``gather`` of the handler's own names no records but candidates."""

    def gather(self, candidates: Sequence[R], work: Work) -> Sequence[R]:
        """The records to handle; ``candidates`` are the changed ones."""
        statuses = self.statuses
        return [record for record in candidates if record.status in statuses]

    def is_due(self, targets: Sequence[R]) -> bool:
        """Whether to run in this pass, with the answer of ``gather``."""
        return bool(targets)


T = TypeVar("T", bound=Tried)


class LifecycleHandler(Handler[T]):
    """Acts on its targets; the engine judges the failures."""

    transitions: ClassVar[StatusTransitions]
    target_kernel_statuses: ClassVar[frozenset[StrEnum] | None] = None
    """Targets are those records alone of whose followers (a session's kernels) one has one of these
    statuses; None leaves followers out of account."""
    between_tries: ClassVar[bool] = False
    """Whether the handler is also run on a record before the time of its next try has come."""

    @abstractmethod
    def execute(self, targets: Sequence[T], work: Work) -> HandlerResult[T]:
        """Act on the targets. Every attempt is told in the result; nothing waits."""

    def timeout_s(self, record: T, work: Work) -> float | None:
        """How long the record may stay in its status before it is EXPIRED; None means for ever."""
        return None

    def since(self, record: T, work: Work) -> float:
        """The moment from which ``timeout_s`` counts."""
        return record.status_changed_at

    def expiry_reason(self, record: T, work: Work, timeout_s: float) -> Reason | None:
        """The reason of an expiry; None stands for PHASE_EXPIRED."""
        return None

    def succeeded(self, record: T, work: Work) -> None:
        """Called for each success once it has its new status."""


class KernelMatchType(StrEnum):
    """How many of a record's followers (a session's kernels) have to have one of some statuses."""

    ALL = "all"
    ANY = "any"
    NOT_ANY = "not_any"

    def holds(self, among: int, total: int) -> bool:
        """Whether it holds where ``among`` of ``total`` followers have one of the statuses."""
        match self:
            case KernelMatchType.ALL:
                return among == total
            case KernelMatchType.ANY:
                return among > 0
            case KernelMatchType.NOT_ANY:
                return among == 0


class PromotionHandler(Handler[R]):
    """Promotes a record by the statuses of its followers (a session's kernels), by the declared
    condition: ``match_type`` of them have one of ``check_kernel_statuses``. A record without
    followers meets none, except to its end. Where no statuses are declared, ``promotes`` decides
    alone."""

    success: ClassVar[TransitionStatus]
    check_kernel_statuses: ClassVar[frozenset[StrEnum] | None] = None
    match_type: ClassVar[KernelMatchType] = KernelMatchType.NOT_ANY

    def promotes(self, record: R) -> bool:
        """Whether the record meets what the handler asks for besides the declared condition."""
        return True

    def reason(self, record: R) -> Reason | None:
        """The reason of the promotion, if it needs one."""
        return None


class DerivationHandler(Handler[R]):
    """Derives a record's status from other facts; a pure function decides."""

    @abstractmethod
    def derive(self, record: R, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        """The status that the record should have, and the reason; None to leave it."""

    def derived(self, record: R, work: Work) -> None:
        """Called once the record has its new status."""


class FollowingHandler(Handler[R]):
    """Brings other records in line with a changed one, whose own status it leaves alone."""

    @abstractmethod
    def follow(self, record: R, work: Work) -> None: ...
