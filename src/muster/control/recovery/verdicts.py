"""The verdicts on the tasks of a round, and what is known of its attempts."""

from collections.abc import Collection

from muster.control.engine.work import Work
from muster.control.job.closing import Verdicts, by_budget, by_loss, close, given_up
from muster.control.job.derive import live_attempts
from muster.control.recovery.entity import Recovery
from muster.control.recovery.lifecycle import spec_of
from muster.control.recovery.rounds import Round
from muster.control.recovery.rules import Decision, after_check, first_index
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.reasons import Reason, ReasonCode
from muster.core.states import TaskState
from muster.store.records import Job

_JUDGED = frozenset(
    {
        ReasonCode.RECOVERY_HEALTHY,
        ReasonCode.RECOVERY_UNCHECKED,
        ReasonCode.RECOVERY_NO_FAULT,
    }
)
_GIVEN_UP = frozenset(
    {
        ReasonCode.RECOVERY_USED_UP,
        ReasonCode.RECOVERY_NOT_RETURNED,
        ReasonCode.RECOVERY_NOT_STARTED,
    }
)


def verdicts_on(job: Job, round_: Round, why: Reason | None) -> Verdicts:
    """The verdicts on the attempts of a round that ends for this reason; none if they begin
    again."""
    if why is None:
        return ()
    if why.code in _JUDGED:
        return by_budget(job, round_.charged)
    if why.code is ReasonCode.RECOVERY_MACHINE_GONE:
        return by_loss(job, round_.charged)
    if why.code not in _GIVEN_UP:
        return ()
    if why.code is not ReasonCode.RECOVERY_NOT_STARTED:
        return given_up(job, round_.charged, why)
    return given_up(job, not_begun(job, round_), why)


def carry_out(
    verdicts: Verdicts,
    job: Job,
    work: Work,
    lifecycle: SessionLifecycle,
    phase: str,
    why: Reason | None,
) -> None:
    """Apply verdicts, and stop attempts of tasks that are given up."""
    stopped = {task.session_id for task, each in verdicts if each.state is TaskState.FAILED}
    if job.spec.coscheduled and any(stopped):
        sessions = live_attempts(job, work.live)
    else:
        ids = filter(None, stopped)
        sessions = [work.live.sessions[id_] for id_ in ids if id_ in work.live.sessions]
    close(work, verdicts, phase)
    lifecycle.terminate(work, sessions, phase, why)


def decide_after_check(recovery: Recovery, round_: Round, waited_s: float) -> Decision | None:
    """The decision on a round once its attempts were judged."""
    how, is_last = how_first_ended(recovery.job, round_), is_last_try(recovery.job, round_)
    return after_check(round_, waited_s, how, spec_of(recovery), is_last=is_last)


def is_last_try(job: Job, round_: Round) -> bool:
    """Whether a task of the round has no retry left."""
    return any(each.state is TaskState.FAILED for _, each in by_budget(job, round_.charged))


def not_begun(job: Job, round_: Round) -> Collection[int]:
    """The indexes of the round's tasks of which no later attempt has begun."""
    return [
        each.index
        for each in round_.tasks
        if (task := job.tasks.get(each.index)) is not None
        and (task.attempt <= each.attempt or task.started_at is None)
    ]


def is_judged(job: Job, round_: Round) -> bool:
    """Whether the attempts of the round have ended and were judged: none has a session."""
    return all(
        task.session_id is None or task.attempt > each.attempt
        for each in round_.tasks
        if (task := job.tasks.get(each.index)) is not None
    )


def how_first_ended(job: Job, round_: Round) -> str:
    """How the first of the round's tasks ended."""
    task = job.tasks.get(first_index(round_))
    return task.reason.sentence() if task is not None and task.reason is not None else ""
