"""The one engine. Handlers return what became of their targets; it decides what that means.

The verdicts, in the reference's order (sokovan-status-transitions, "Coordinator Processing Flow"):
SUCCESS; for failures GIVE_UP past the limit of tries, else NEED_RETRY; EXPIRED for those neither
successful nor failed that stayed too long; SKIPPED otherwise.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from muster.control.engine.handler import (
    DerivationHandler,
    FollowingHandler,
    Handler,
    HandlerResult,
    LifecycleHandler,
    SessionPromotionHandler,
    TransitionStatus,
)
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.timers import Timers
from muster.control.engine.work import Work
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.results import SchedulingResult
from muster.store.unit import Record, entity_name

log = logging.getLogger(__name__)

MAX_PASSES = 200
"""Passes of one wake; past them the rest waits for the next, so that no loop can hold the engine.
A job of many tasks uses several: each pass may bring up the next tasks."""

MAX_CHANGES = 4_000
"""Rows that a wake writes before it leaves the rest to the next: the commit of a gang of thousands
at each step of its life takes as long as many wakes of others, which get their turn in between."""

_Batch: TypeAlias = dict[type, list[Any]]
"""Records that changed, by their kind."""

_STAY = TransitionStatus()


class Coordinator:
    """Runs handlers over what changed, again and again until nothing changes (DESIGN rule 8).

    Args:
        lifecycles: one an entity.
        handlers: in the order in which a pass runs them: the order of life, so that a session can
            go from PENDING to CREATING in one pass.
    """

    def __init__(
        self, lifecycles: Sequence[Lifecycle[Any]], handlers: Sequence[Handler[Any]]
    ) -> None:
        self._lifecycles = {lifecycle.entity: lifecycle for lifecycle in lifecycles}
        self._handlers = handlers
        self._expiring: dict[tuple[type, str], list[LifecycleHandler[Any]]] = {}
        for handler in handlers:
            if isinstance(handler, LifecycleHandler):
                for status in handler.targets:
                    self._expiring.setdefault((handler.entity, status), []).append(handler)
        self.timers = Timers()
        self._rest: tuple[_Batch, Sequence[Handler[Any]]] | None = None  # of a pass that was cut

    def run(self, work: Work) -> bool:
        """Passes until nothing changes; whether that was reached within MAX_PASSES and MAX_CHANGES.

        A pass that makes too many changes goes on in the next wake with the handler that was next,
        so that each has its turn however much comes in; but not before all have seen what ended.
        """
        for record in self.timers.due(work.now):
            work.mark(record)
        seen: dict[Record, None] = {}
        enough = work.unit.size + MAX_CHANGES
        for _ in range(MAX_PASSES):
            batch, handlers = self._rest or (work.take_dirty(), self._handlers)
            begins = self._rest is None
            if begins and not batch and not any(handler.is_due(()) for handler in handlers):
                break
            self._rest = self._pass(batch, handlers, work, enough)
            if self._rest is not None:
                break
            for records in batch.values():
                seen.update(dict.fromkeys(records))
        self._set_alarms(work, seen)
        return not work.dirty and self._rest is None

    def _pass(
        self, batch: _Batch, handlers: Sequence[Handler[Any]], work: Work, enough: int
    ) -> tuple[_Batch, Sequence[Handler[Any]]] | None:
        """Run handlers over what changed until there are ``enough`` changes; what is left."""
        for position, handler in enumerate(handlers, 1):
            targets = handler.gather(batch.get(handler.entity, ()), work)
            if handler.is_due(targets):
                self._run(handler, targets, work)
                if work.unit.size > enough and not work.unit.ends_something:
                    return batch, handlers[position:]
        return None

    def _set_alarms(self, work: Work, records: dict[Record, None]) -> None:
        for record in records:
            lifecycle = self._lifecycles.get(type(record))
            if lifecycle is not None:
                self.timers.set(record, self._next_look(lifecycle, record, work))

    def _next_look(self, lifecycle: Lifecycle[Any], record: Any, work: Work) -> float | None:
        """The first moment ahead at which time alone changes something for the record."""
        moments = list(lifecycle.deadlines(record, work))
        for handler in self._expiring.get((type(record), record.status), ()):
            timeout_s = handler.timeout_s(record, work)
            if timeout_s is not None:
                moments.append(handler.since(record, work) + timeout_s)
        return min((at for at in moments if work.now < at < math.inf), default=None)

    def _run(self, handler: Handler[Any], targets: Sequence[Any], work: Work) -> None:
        if isinstance(handler, LifecycleHandler):
            self._run_lifecycle(handler, targets, work)
            return
        run_on: Callable[[Any, Any, Work], None]
        match handler:
            case SessionPromotionHandler():
                run_on = self._promote
            case DerivationHandler():
                run_on = self._derive
            case FollowingHandler():
                run_on = self._follow
            case _:
                raise TypeError(f"{handler.name} is of no kind that the engine knows")
        for record in targets:
            try:
                run_on(handler, record, work)
            except Exception:
                # One record that a handler cannot deal with must not hold up all the others.
                log.exception("handler %s failed on %s", handler.name, entity_name(record))

    def _promote(self, handler: Any, record: Any, work: Work) -> None:
        if handler.promotes(record):
            to = TransitionStatus(handler.success)
            self._move(handler, [record], to, work, why=handler.reason(record))

    def _derive(self, handler: Any, record: Any, work: Work) -> None:
        derived = handler.derive(record, work)
        if derived is not None:
            to, why = TransitionStatus(derived[0]), derived[1]
            if self._move(handler, [record], to, work, why=why):
                handler.derived(record, work)

    def _follow(self, handler: Any, record: Any, work: Work) -> None:
        handler.follow(record, work)

    def _run_lifecycle(
        self, handler: LifecycleHandler[Any], targets: Sequence[Any], work: Work
    ) -> None:
        try:
            result = handler.execute(targets, work)
        except Exception as error:
            log.exception("handler %s failed on %d targets", handler.name, len(targets))
            why = reason(ReasonCode.HANDLER_ERROR, handler=handler.name, error=repr(error)[:200])
            # Nobody's try: a defect of ours must not end anybody's work.
            result = HandlerResult(skipped=dict.fromkeys(targets, (why,)))
        if result.successes:
            moved = self._move(handler, result.successes, handler.transitions.success, work)
            handler.succeeded(moved, work)
        for record, why in result.failures.items():
            self._judge_failure(handler, record, why, work)
        done = {*result.successes, *result.failures}
        for record in dict.fromkeys((*targets, *result.skipped)):
            if record not in done and not self._judge_expiry(handler, record, work):
                reasons = result.skipped.get(record)
                if reasons:
                    work.unit.skip(record, handler.name, reasons)

    def _judge_failure(
        self, handler: LifecycleHandler[Any], record: Any, why: Reason, work: Work
    ) -> None:
        lifecycle = self._lifecycles[handler.entity]
        policy = lifecycle.retry_policy(record, work)
        record.tries += 1
        work.unit.touch(record)
        if record.tries >= policy.max_tries or lifecycle.final(why):
            told = lifecycle.gave_up(handler, record, why)
            to = handler.transitions.give_up
            self._move(handler, [record], to, work, SchedulingResult.GIVE_UP, told)
        else:
            record.retry_at = work.now + policy.delay_s(record.tries)
            to = handler.transitions.need_retry
            self._move(handler, [record], to, work, SchedulingResult.NEED_RETRY, why)

    def _judge_expiry(self, handler: LifecycleHandler[Any], record: Any, work: Work) -> bool:
        timeout_s = handler.timeout_s(record, work)
        if timeout_s is None or work.now < handler.since(record, work) + timeout_s:
            return False
        why = handler.expiry_reason(record, work, timeout_s) or reason(
            ReasonCode.PHASE_EXPIRED, phase=handler.name, timeout_s=round(timeout_s, 3)
        )
        to = handler.transitions.expired
        self._move(handler, [record], to, work, SchedulingResult.EXPIRED, why)
        return True

    def _move(
        self,
        handler: Handler[Any],
        records: Sequence[Any],
        to: TransitionStatus | None,
        work: Work,
        result: SchedulingResult = SchedulingResult.SUCCESS,
        why: Reason | None = None,
    ) -> list[Any]:
        if to is None or to == _STAY:
            if result is not SchedulingResult.SUCCESS:
                for record in records:
                    work.unit.note(record, handler.name, result, why)
            return list(records)
        return self._lifecycles[handler.entity].move(work, records, handler, to, result, why)
