"""The lifecycle of a notice: it waits for its turn, attempts are made, and their outcomes come
in."""

from collections.abc import Iterable, Sequence

from muster.control.engine.handler import (
    NO_CHANGE,
    HandlerResult,
    LifecycleHandler,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.retries import RetryPolicy
from muster.control.engine.work import Move, Work
from muster.control.notice.effects import ANSWER_S, SendNotice
from muster.control.notice.entity import Notice
from muster.control.notice.states import NOTICE_TABLE, NoticeStatus
from muster.control.notice.turns import NoticeTurns
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_notices import NoticeUnknown
from muster.core.results import SchedulingResult

RETRIES = RetryPolicy(max_tries=6, backoff_s=10.0, longest_backoff_s=600.0)
ONCE = RetryPolicy(max_tries=1, backoff_s=0.0)
"""The tries of a trial: the person who waits for its outcome can try again."""
MAX_WAIT_S = 86_400.0
"""How old a notice may become before it is sent; an older one is of no use."""
FAIL = TransitionStatus(NoticeStatus.FAILED)
_FINAL = frozenset(
    {
        ReasonCode.NOTICE_FORBIDDEN,
        ReasonCode.NOTICE_NOT_UNDERSTOOD,
        ReasonCode.NOTICES_NOT_INSTALLED,
    }
)


def retries_of(notice: Notice) -> RetryPolicy:
    """The tries that a notice has."""
    return RETRIES if notice.subject is not None else ONCE


class NoticeLifecycle(Lifecycle[Notice]):
    """Ends a notice that has arrived or failed, and frees its turn for another."""

    entity = Notice

    def __init__(self, turns: NoticeTurns) -> None:
        self._turns = turns

    def moved(self, work: Work, record: Notice, move: Move) -> None:
        if record.status in NOTICE_TABLE.terminal:
            record.end(work.now, move.reason)
            _give_way(record, self._turns, work)

    def refuse(self, work: Work, notice: Notice, phase: str, why: Reason) -> None:
        """End a notice that never gets a turn."""
        move = Move(phase, SchedulingResult.GIVE_UP, why)
        self.move(work, [notice], {NoticeStatus.PENDING}, FAIL, move)

    def deadlines(self, record: Notice, work: Work) -> Iterable[float]:
        if record.status is NoticeStatus.SENDING and record.handed_at is not None:
            yield record.handed_at + ANSWER_S

    def retry_policy(self, record: Notice, work: Work) -> RetryPolicy:
        return retries_of(record)

    def final(self, reason: Reason) -> bool:
        return reason.code in _FINAL

    def gave_up(self, phase: str, tries: int, reason: Reason) -> Reason:
        return reason


def _give_way(notice: Notice, turns: NoticeTurns, work: Work) -> None:
    """Have handlers look at the notices whose turn it is now that this one has left."""
    turns.leave(notice)
    for waiting in turns.next():
        work.mark(waiting)


class TakeTurns(LifecycleHandler[Notice]):
    """Lets as many notices be sent as the performer takes at a time."""

    name = "TakeTurns"
    entity = Notice
    statuses = frozenset({NoticeStatus.PENDING})
    transitions = StatusTransitions(
        success=TransitionStatus(NoticeStatus.SENDING),
        expired=FAIL,
    )

    def __init__(self, turns: NoticeTurns) -> None:
        self._turns = turns

    def execute(self, targets: Sequence[Notice], work: Work) -> HandlerResult[Notice]:
        waiting = {each for each in targets if work.now < each.status_changed_at + MAX_WAIT_S}
        return HandlerResult(successes=[each for each in self._turns.next() if each in waiting])

    def timeout_s(self, record: Notice, work: Work) -> float | None:
        return MAX_WAIT_S


class SendNotices(LifecycleHandler[Notice]):
    """Has the performer try until an attempt went well or all tries are used.

    An attempt without an outcome in time counts as failed, and the notice is handed over again: so
    a channel gets a notice at least once, and perhaps twice. Each attempt waits for its turn; once
    it is over, another notice has its turn.
    """

    name = "SendNotices"
    between_tries = True  # an outcome may come late
    entity = Notice
    statuses = frozenset({NoticeStatus.SENDING})
    transitions = StatusTransitions(
        success=TransitionStatus(NoticeStatus.SENT),
        need_retry=NO_CHANGE,
        give_up=FAIL,
    )

    def __init__(self, turns: NoticeTurns) -> None:
        self._turns = turns

    def execute(self, targets: Sequence[Notice], work: Work) -> HandlerResult[Notice]:
        result: HandlerResult[Notice] = HandlerResult()
        for notice in targets:
            outcome, notice.outcome = notice.outcome, None
            if outcome is not None and outcome.reason is None:
                result.successes.append(notice)  # perhaps late: then it is not sent again
                self._turns.leave(notice)
            elif notice.handed_at is None:
                if work.may_try(notice):
                    self._turns.wait(notice)
            elif outcome is not None and outcome.reason is not None:
                result.failures[notice] = outcome.reason
            elif work.now >= notice.handed_at + ANSWER_S:
                result.failures[notice] = NoticeUnknown(waited_s=ANSWER_S)
        for notice, why in result.failures.items():
            notice.handed_at = None
            notice.reason = why
            _give_way(notice, self._turns, work)
        for notice in self._turns.next():
            if notice.status is NoticeStatus.SENDING:
                self._hand_over(notice, work)
        return result

    def _hand_over(self, notice: Notice, work: Work) -> None:
        self._turns.begin(notice)
        notice.generation += 1
        notice.handed_at = work.now
        work.unit.touch(notice)
        work.mark(notice)  # for its deadline, if it gets its turn with others' change
        work.emit(SendNotice(notice.name, notice.generation))
