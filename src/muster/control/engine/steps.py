"""The run of one handler: its result is judged and applied.

The verdicts on a lifecycle handler's targets are found in this order (design: The engine judges):
SUCCESS; STALE; for failures FAILURE where it is declared, else GIVE_UP past the limit of tries,
else NEED_RETRY; EXPIRED for targets that neither succeeded nor failed and have had their status for
too long; SKIPPED for all others.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, Self, cast

from muster.control.engine.declared import SomeHandler, SomeLifecycle
from muster.control.engine.defects import Defects, FailedOn, Undone
from muster.control.engine.handler import (
    NO_CHANGE,
    DerivationHandler,
    FollowingHandler,
    Handler,
    HandlerResult,
    LifecycleHandler,
    PromotionHandler,
    T,
    TransitionStatus,
)
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.work import Move, Work
from muster.core.reasons import Reason
from muster.core.reasons.of_sessions import PhaseExpired
from muster.core.results import SchedulingResult
from muster.store.entity import R, Record, Told, Tried

Batch = Mapping[type, Sequence[Record]]
"""Changed records, by their class."""


class UndeclaredVerdict(Exception):
    """A handler's target got a verdict for which its transitions declare no status."""


class HandlerStep(Protocol):
    """A handler with its entity's lifecycle, as the coordinator runs it.

    ``looks_further``: whether the handler may have work to do although no record of its entity
    changed; most handlers look at changed records alone.

    ``statuses``: those of its targets, where nothing but a status makes a record one; else None.
    """

    entity: type
    looks_further: bool
    statuses: frozenset[StrEnum] | None

    def is_due(self, work: Work) -> bool:
        """Whether the handler, which looks further, has something to do though no record
        changed."""

    def run(self, batch: Batch, work: Work) -> bool:
        """Run the handler over the records; whether it had anything to do."""

    def times(self, status: StrEnum) -> bool:
        """Whether the handler limits the time that a record may have this status."""

    def deadlines(self, record: Record, work: Work) -> Iterable[float]:
        """The moment at which the handler's time for the record is over, if it has one."""


class _Step(ABC, Generic[R]):
    def __init__(
        self, handler: Handler[R], lifecycle: Lifecycle[R] | None, defects: Defects
    ) -> None:
        self.entity = handler.entity
        self._handler = handler
        self._lifecycle = lifecycle
        self._defects = defects
        kind = type(handler)
        gathers = kind.gather is not Handler.gather and not kind.narrows
        self.looks_further = gathers or kind.is_due is not Handler.is_due
        by_status = not self.looks_further and not kind.narrows
        self.statuses = handler.statuses if by_status else None

    def is_due(self, work: Work) -> bool:
        if self._defects.rests(self._handler.name, work.now):
            return False
        try:
            return self._handler.is_due(())
        except Exception as error:  # on no record
            raise self._defects.rest(self._handler.name, error, work.now) from error

    def run(self, batch: Batch, work: Work) -> bool:
        candidates = cast(Sequence[R], batch.get(self.entity) or ())
        defects = self._defects.any(work.now)
        if defects and self._defects.rests(self._handler.name, work.now):
            return False
        if defects:
            targets = self._gather_warily(candidates, work)
        else:
            targets = self._gather(candidates, work)
        if targets is None:
            return False
        self._run(targets, work)
        return True

    def _gather(self, candidates: Sequence[R], work: Work) -> Sequence[R] | None:
        """The handler's targets; None if it is not due."""
        try:
            targets = self._targeted(self._handler.gather(candidates, work))
            return targets if self._handler.is_due(targets) else None
        except Exception as error:
            raise self._undo(None, error, work) from error

    def _targeted(self, records: Sequence[R]) -> Sequence[R]:
        """The records that are targets by the statuses of their followers, too."""
        return records

    def _gather_warily(self, candidates: Sequence[R], work: Work) -> Sequence[R] | None:
        """``_gather`` without the records on which the handler failed of late. If it failed on one
        of several records, it is run on each record by itself."""
        mine = [each for each in candidates if not self._leave_out(each, work)]
        if self._defects.is_alone(self._handler.name, work.now):
            for record in mine:
                try:
                    self._handler.is_due(self._handler.gather([record], work))
                except Exception as error:
                    raise self._undo(record, error, work) from error
        targets = self._gather(mine, work)
        if targets is None:
            return None
        known = {*mine}
        return [each for each in targets if each in known or not self._leave_out(each, work)]

    def _leave_out(self, record: R, work: Work) -> bool:
        """Whether the handler is not to be run on the record, because it failed on it of late."""
        if self._defects.leaves_out_new(self._handler.name) and work.unit.is_new(record):
            return True
        name = work.live.entities.name_of(record)
        why = self._defects.why_left_out(self._handler.name, name, work.now)
        if why is not None and record.status in self._handler.statuses:
            self._tell_why(record, why, work)
        return why is not None

    def _tell_why(self, record: R, why: Reason, work: Work) -> None:
        name, entity = self._handler.name, work.live.entities[type(record)]
        if isinstance(record, Tried):
            work.unit.skip(record, name, (why,))  # equal rows merge
        elif entity.told is not Told.NEVER and self._defects.is_to_be_told(
            name, entity.id_of(record), work.now
        ):
            work.unit.note(record, name, SchedulingResult.SKIPPED, why)

    def _undo(self, record: Record | None, error: Exception, work: Work) -> Undone:
        if record is None:
            return self._defects.undo(self._handler.name, None, error, work.now)
        entities = work.live.entities
        return self._defects.undo(
            self._handler.name,
            entities.name_of(record),
            error,
            work.now,
            is_new=work.unit.is_new(record),
            has_ended=record.status in entities[type(record)].states.terminal,
        )

    @abstractmethod
    def _run(self, targets: Sequence[R], work: Work) -> None: ...

    def times(self, status: StrEnum) -> bool:
        return False

    def deadlines(self, record: Record, work: Work) -> Iterable[float]:
        return ()

    def _move(self, record: R, to: TransitionStatus, move: Move, work: Work) -> bool:
        if self._lifecycle is None:
            raise TypeError(f"{self._handler.name} moves a record whose entity has no lifecycle")
        return self._lifecycle.move_one(work, record, self._handler.statuses, to, move)


class _Each(_Step[R]):
    """A step that looks at each record by itself."""

    def _run(self, targets: Sequence[R], work: Work) -> None:
        run_on = self._run_on
        for record in targets:
            try:
                run_on(record, work)
            except Exception as error:
                raise self._undo(record, error, work) from error

    @abstractmethod
    def _run_on(self, record: R, work: Work) -> None: ...


class _Promotion(_Each[R]):
    def __init__(
        self, handler: PromotionHandler[R], lifecycle: Lifecycle[R] | None, defects: Defects
    ) -> None:
        super().__init__(handler, lifecycle, defects)
        self._promotion = handler

    def _run_on(self, record: R, work: Work) -> None:
        if self._is_met(record, work) and self._promotion.promotes(record):
            why = Move(self._handler.name, reason=self._promotion.reason(record))
            self._move(record, self._promotion.success, why, work)

    def _is_met(self, record: R, work: Work) -> bool:
        """Whether the record's followers meet the condition that the handler declares."""
        statuses, rules = self._promotion.check_kernel_statuses, self._lifecycle
        if statuses is None or rules is None:
            return True
        among, total = rules.followers_among(record, statuses)
        if not total:
            terminal = work.live.entities[type(record)].states.terminal
            return self._promotion.success.status in terminal
        return self._promotion.match_type.holds(among, total)


class _Derivation(_Each[R]):
    def __init__(
        self, handler: DerivationHandler[R], lifecycle: Lifecycle[R] | None, defects: Defects
    ) -> None:
        super().__init__(handler, lifecycle, defects)
        self._derivation = handler

    def _run_on(self, record: R, work: Work) -> None:
        derived = self._derivation.derive(record, work)
        if derived is not None:
            to, why = derived
            if self._move(record, to, Move(self._handler.name, reason=why), work):
                self._derivation.derived(record, work)


class _Following(_Each[R]):
    def __init__(
        self, handler: FollowingHandler[R], lifecycle: Lifecycle[R] | None, defects: Defects
    ) -> None:
        super().__init__(handler, lifecycle, defects)
        self._following = handler

    def _run_on(self, record: R, work: Work) -> None:
        self._following.follow(record, work)


class _Judged(_Step[T]):
    """A step of a lifecycle handler, whose results are judged."""

    def __init__(
        self, handler: LifecycleHandler[T], lifecycle: Lifecycle[T], defects: Defects
    ) -> None:
        super().__init__(handler, lifecycle, defects)
        self._judged = handler
        self._rules = lifecycle
        self._to = handler.transitions.declared()

    def _targeted(self, records: Sequence[T]) -> Sequence[T]:
        statuses, among = self._judged.target_kernel_statuses, self._rules.followers_among
        if statuses is None:
            return records
        return [each for each in records if among(each, statuses)[0]]

    def _run(self, targets: Sequence[T], work: Work) -> None:
        if self._defects.is_alone(self._handler.name, work.now):
            for record in targets:
                self._run_some([record], work)
            if not targets:  # it is due for another reason
                self._run_some(targets, work)
        else:
            self._run_some(targets, work)

    def _run_some(self, targets: Sequence[T], work: Work) -> None:
        tried = targets
        if not self._judged.between_tries:
            tried = [record for record in targets if work.may_try(record)]
        try:
            result = self._judged.execute(tried, work)
        except Undone:
            raise
        except FailedOn as failed:
            cause = failed.__cause__
            error = cause if isinstance(cause, Exception) else failed
            raise self._undo(failed.record, error, work) from failed
        except Exception as error:
            alone = tried[0] if len(tried) == 1 else None
            raise self._undo(alone, error, work) from error
        for record in result.successes:
            try:
                if self._apply(record, SchedulingResult.SUCCESS, None, work):
                    self._judged.succeeded(record, work)
            except Exception as error:
                raise self._undo(record, error, work) from error
        done = set(result.successes)
        for record in (*result.stale, *result.failures, *targets, *result.skipped):
            if record in done:
                continue
            done.add(record)
            try:
                self._judge(record, result, work)
            except Exception as error:
                raise self._undo(record, error, work) from error

    def _judge(self, record: T, result: HandlerResult[T], work: Work) -> None:
        if record in result.stale:
            self._apply(record, SchedulingResult.STALE, result.stale[record], work)
        elif record in result.failures:
            self._judge_failure(record, result.failures[record], work)
        else:
            self._judge_rest(record, result.skipped.get(record, ()), work)

    def _judge_failure(self, record: T, why: Reason, work: Work) -> None:
        if SchedulingResult.FAILURE in self._to:
            self._apply(record, SchedulingResult.FAILURE, why, work)
            return
        granted = work.charge_try(record, self._rules.retry_policy(record, work))
        if granted and not self._rules.final(why):
            self._apply(record, SchedulingResult.NEED_RETRY, why, work)
        else:
            given_up = self._rules.gave_up(self._handler.name, record.tries, why)
            self._apply(record, SchedulingResult.GIVE_UP, given_up, work)

    def _judge_rest(self, record: T, skipped: Sequence[Reason], work: Work) -> None:
        timeout_s = self._judged.timeout_s(record, work)
        if timeout_s is not None and work.now >= self._judged.since(record, work) + timeout_s:
            why = self._judged.expiry_reason(record, work, timeout_s) or PhaseExpired(
                phase=self._handler.name, timeout_s=round(timeout_s, 3)
            )
            self._apply(record, SchedulingResult.EXPIRED, why, work)
        elif skipped:
            work.unit.skip(record, self._handler.name, tuple(skipped))

    def _apply(self, record: T, verdict: SchedulingResult, why: Reason | None, work: Work) -> bool:
        """Carry a verdict out; whether the record has the status that the verdict leads to.

        Raises:
            UndeclaredVerdict: the handler's transitions do not hold it.
        """
        to = self._to.get(verdict)
        if to is None:
            raise UndeclaredVerdict(f"{self._handler.name} does not say what {verdict} leads to")
        if to.status is None and verdict is not SchedulingResult.SUCCESS:
            work.unit.note(record, self._handler.name, verdict, why)
        if to is NO_CHANGE:
            return True
        return self._move(record, to, Move(self._handler.name, verdict, why), work)

    def times(self, status: StrEnum) -> bool:
        return status in self._handler.statuses

    def deadlines(self, record: Record, work: Work) -> Iterable[float]:
        mine = cast(T, record)
        timeout_s = self._judged.timeout_s(mine, work)
        return () if timeout_s is None else (self._judged.since(mine, work) + timeout_s,)


Deadlines = Callable[[Record, Work], Iterable[float]]


@dataclass(frozen=True, slots=True)
class PassOrder:
    """The handlers in the order in which a pass runs them, each with its entity's lifecycle.

    ``deadlines`` tell for a record of each kind when its lifecycle has it looked at again.
    """

    steps: Sequence[HandlerStep]
    deadlines: Mapping[type, Deadlines]

    @classmethod
    def of(
        cls,
        lifecycles: Iterable[SomeLifecycle],
        handlers: Iterable[SomeHandler],
        defects: Defects | None = None,
    ) -> Self:
        """
        Raises:
            TypeError: a handler is of no kind that the engine knows, or its entity has no
                lifecycle.
        """
        rules = {lifecycle.entity: lifecycle for lifecycle in lifecycles}
        ordered = in_order(handlers)
        failed = defects or Defects()
        steps = [_step_of(each, rules.get(each.entity), failed) for each in ordered]
        deadlines = {kind: lifecycle.deadlines for kind, lifecycle in rules.items()}
        return cls(steps, deadlines)


def in_order(handlers: Iterable[SomeHandler]) -> Sequence[SomeHandler]:
    """Handlers by their stage, and otherwise in the order of their modules."""
    return sorted(handlers, key=lambda handler: handler.stage)


def _step_of(handler: Handler[R], lifecycle: Lifecycle[R] | None, defects: Defects) -> HandlerStep:
    match handler:
        case LifecycleHandler():
            if lifecycle is None:
                raise TypeError(f"the entity of {handler.name} has no lifecycle")
            return _Judged(handler, lifecycle, defects)
        case PromotionHandler():
            return _Promotion(handler, lifecycle, defects)
        case DerivationHandler():
            return _Derivation(handler, lifecycle, defects)
        case FollowingHandler():
            return _Following(handler, lifecycle, defects)
        case _:
            raise TypeError(f"{handler.name} is of no kind that the engine knows")
