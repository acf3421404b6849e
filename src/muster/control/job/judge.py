"""Verdicts on ended attempts, and the derivation of a job's state. Pure functions.

The rules: (design: Budgets), (design: Verdicts on gangs), (design: Job derivation).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.core.reasons import DISPLACED, Reason, ReasonCode
from muster.core.reasons.of_sessions import LeaderEnded
from muster.core.states import JobState, KernelStatus, TaskState
from muster.core.states.task import ACTIVE
from muster.scheduling.policy.validators import NEVER

_MACHINE = frozenset({KernelStatus.ERROR})
_STOPPED_BY_US = frozenset(
    {
        ReasonCode.CANCELLED,
        ReasonCode.TASK_STOPPED,
        ReasonCode.TIMEOUT,
        ReasonCode.JOB_ENDED,
        ReasonCode.JOB_FAILED,
        ReasonCode.PREEMPTED_FOR_GOOD,
    }
)
_TAKEN_AWAY = DISPLACED | {ReasonCode.RECOVERY_STOPS_ALL}
"""Reasons of sessions that end through no fault of theirs, to begin again."""
_NO_PLACE = NEVER | {ReasonCode.SCHEDULING_TIMEOUT, ReasonCode.NO_AGENT_ABLE}
_OWN_ENDS = frozenset(
    {
        ReasonCode.EXITED,
        ReasonCode.SIGNALED,
        ReasonCode.OUT_OF_MEMORY,
        ReasonCode.DISK_LIMIT,
        ReasonCode.COMMAND_NOT_FOUND,
        ReasonCode.COMMAND_NOT_EXECUTABLE,
    }
)


CANNOT_TELL_S = 5.0
"""Of two ends this close nobody can say which came first: clocks are known to a second or so, and
the death of a supervisor is known only from when the next supervisor found it. The machine is
charged before the task."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The end of one kernel, as far as the verdict on its task depends on it.

    ``ended_at`` is by the controller's clock, so that ends on several machines can be compared.
    ``kernel_reason`` says how the kernel ended, ``session_reason`` why its session did. ``let_go``
    says that the barrier of its gang had been opened.
    """

    status: KernelStatus
    exit_code: int | None
    ended_at: float | None
    started: bool
    kernel_reason: Reason | None
    session_reason: Reason | None
    let_go: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """A task's counters and limits; a retry is granted while counter ≤ limit.
    ``max_retries_timeout`` is None where a time limit ends a task for good."""

    failure_count: int
    preemption_count: int
    max_retries_failure: int
    max_retries_preemption: int
    timeout_count: int = 0
    max_retries_timeout: int | None = None


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """The consequence of an attempt's end for its task: the task's next state and counters.

    ``state`` is PENDING where the task is tried again; ``attempt_state`` is the state in which the
    attempt ended. ``is_sibling`` says that the task ended for good only because another task of its
    gang did. ``timed_out`` says that the attempt is charged to the budget of time limits.
    """

    state: TaskState
    failure_count: int
    preemption_count: int
    attempt_state: TaskState
    reason: Reason | None
    is_sibling: bool = False
    timed_out: bool = False


def attempt_state(attempt: Attempt) -> TaskState:
    """The state in which an attempt ended: SUCCEEDED, FAILED, KILLED, WORKER_FAILED, UNSCHEDULABLE;
    or PENDING if it never began, so that no budget is charged."""
    if attempt.status is KernelStatus.TERMINATED and attempt.exit_code == 0:
        code = attempt.kernel_reason.code if attempt.kernel_reason else ReasonCode.EXITED
        if code is ReasonCode.EXITED:
            return TaskState.SUCCEEDED
    session_code = attempt.session_reason.code if attempt.session_reason else None
    if session_code in _NO_PLACE:
        return TaskState.UNSCHEDULABLE
    if session_code is ReasonCode.RESCHEDULE_LIMIT:
        return TaskState.FAILED
    if session_code is ReasonCode.PHASE_GAVE_UP and attempt.status is KernelStatus.CANCELLED:
        return TaskState.FAILED
    if session_code in _STOPPED_BY_US:
        if session_code is ReasonCode.TIMEOUT and _ended_by_itself(attempt):
            return TaskState.FAILED  # it had ended before its time was over; the report came later
        return TaskState.KILLED
    if attempt.status in _MACHINE or session_code in _TAKEN_AWAY:
        return TaskState.WORKER_FAILED if attempt.started else TaskState.PENDING
    if attempt.status is KernelStatus.CANCELLED:
        return TaskState.PENDING
    if not attempt.started and attempt.exit_code is None:
        # The gang had been let go, and this kernel could not be started; or nothing of it ran.
        return TaskState.WORKER_FAILED if attempt.let_go else TaskState.PENDING
    return TaskState.FAILED


def _ended_by_itself(attempt: Attempt) -> bool:
    """Whether nobody stopped the kernel."""
    return attempt.kernel_reason is not None and attempt.kernel_reason.code in _OWN_ENDS


def judge(attempt: Attempt, budget: Budget) -> TaskVerdict:
    """The verdict on the task of a single attempt, by the task's budgets."""
    ended = attempt_state(attempt)
    why = attempt.kernel_reason or attempt.session_reason
    session_code = attempt.session_reason.code if attempt.session_reason else None
    if ended in (TaskState.KILLED, TaskState.UNSCHEDULABLE) or session_code in (
        ReasonCode.RESCHEDULE_LIMIT,
        *_TAKEN_AWAY,
    ):
        why = attempt.session_reason
    failures, preemptions = budget.failure_count, budget.preemption_count
    state = ended
    if ended is TaskState.FAILED:
        failures += 1
        if failures <= budget.max_retries_failure:
            state = TaskState.PENDING
    elif session_code is ReasonCode.RECOVERY_STOPS_ALL and ended is TaskState.WORKER_FAILED:
        state = TaskState.PENDING  # another task of the job failed: this one is charged nothing
    elif ended is TaskState.WORKER_FAILED:
        preemptions += 1
        if preemptions <= budget.max_retries_preemption:
            state = TaskState.PENDING
    timed_out = ended is TaskState.KILLED and session_code is ReasonCode.TIMEOUT
    timed_out = timed_out and budget.max_retries_timeout is not None
    if timed_out and budget.timeout_count < (budget.max_retries_timeout or 0):
        state = TaskState.PENDING
    return TaskVerdict(state, failures, preemptions, ended, why, timed_out=timed_out)


def judge_gang(
    attempts: Sequence[Attempt], budgets: Sequence[Budget], leader: int | None = None
) -> list[TaskVerdict]:
    """The verdicts on the tasks of one coscheduled attempt.

    Where a ``leader`` of them succeeded, all of them have. If all succeeded, or were stopped by
    Muster, each task is judged for itself; but where they are tried again after their time limit,
    those that had succeeded are too. Otherwise the gang goes on or ends as one (design: Verdicts on
    gangs). The tasks that ``_culprits`` names are charged; a peer that failed because they broke
    its connection is not. With budget left all tasks are requeued; otherwise the charged tasks end,
    and the others are WORKER_FAILED.
    """
    states = [attempt_state(attempt) for attempt in attempts]
    alone = [judge(a, b) for a, b in zip(attempts, budgets, strict=True)]
    stopped = {TaskState.KILLED, TaskState.UNSCHEDULABLE}
    if leader is not None and states[leader] is TaskState.SUCCEEDED:
        return [_succeeded(*each, leader) for each in zip(alone, budgets, strict=True)]
    if all(state is TaskState.SUCCEEDED for state in states) or stopped & set(states):
        return _whole(_tried_again_after_timeout(alone), budgets)
    culprits = _culprits(attempts, states)
    finished = any(alone[index].state is not TaskState.PENDING for index in culprits)
    return _whole(
        [
            _gang_verdict(alone[index], index in culprits, finished, budgets[index])
            for index in range(len(attempts))
        ],
        budgets,
    )


def _succeeded(alone: TaskVerdict, budget: Budget, leader: int) -> TaskVerdict:
    """The verdict on a task of a gang whose leader succeeded."""
    if alone.state is TaskState.SUCCEEDED:
        return alone
    return TaskVerdict(
        TaskState.SUCCEEDED,
        budget.failure_count,
        budget.preemption_count,
        TaskState.SUCCEEDED,
        LeaderEnded(index=leader),
    )


def _tried_again_after_timeout(verdicts: list[TaskVerdict]) -> list[TaskVerdict]:
    """The verdicts on a gang, all of whose tasks are tried again if one is after its time limit and
    none has ended but by success."""
    states = {verdict.state for verdict in verdicts}
    timed_out = any(verdict.timed_out for verdict in verdicts)
    if not timed_out or not states <= {TaskState.PENDING, TaskState.SUCCEEDED}:
        return verdicts
    return [replace(verdict, state=TaskState.PENDING) for verdict in verdicts]


def _whole(verdicts: list[TaskVerdict], budgets: Sequence[Budget]) -> list[TaskVerdict]:
    """The verdicts on a gang: it is tried again whole or not at all (design: Gang barrier).

    Once a task of the gang has ended for good, no other task is tried again, even with budget left:
    each ends in the state of its attempt, or as WORKER_FAILED if its attempt never began.
    """
    if all(verdict.state is TaskState.PENDING for verdict in verdicts):
        return verdicts
    return [
        _ended_with_gang(verdict, budget) if verdict.state is TaskState.PENDING else verdict
        for verdict, budget in zip(verdicts, budgets, strict=True)
    ]


def _ended_with_gang(verdict: TaskVerdict, budget: Budget) -> TaskVerdict:
    """The verdict on a task that is not tried again, though it has budget left."""
    began = verdict.attempt_state is not TaskState.PENDING
    state = verdict.attempt_state if began else TaskState.WORKER_FAILED
    if state is not TaskState.WORKER_FAILED:
        return replace(verdict, state=state)
    spent = exhausted(verdict.preemption_count, budget.max_retries_preemption)
    return replace(verdict, state=state, preemption_count=spent, is_sibling=not began)


def exhausted(preemptions: int, limit: int) -> int:
    """The preemption count of a task that is WORKER_FAILED for good. Where it ended with its gang,
    its budget reads as exhausted all the same: it is not tried again (source: Iris)."""
    return max(preemptions, limit + 1)


def _culprits(attempts: Sequence[Attempt], states: Sequence[TaskState]) -> set[int]:
    """The indexes of the attempts that are charged (design: Verdicts on gangs): the first that went
    wrong; or all that were lost, if one of them was lost no later than CANNOT_TELL_S after the
    first. A kernel that never began, because it could not or was stopped before, is charged only
    if no other can be."""
    unbegun = {i for i, each in enumerate(attempts) if not each.started}
    lost = {i for i, state in enumerate(states) if state is TaskState.WORKER_FAILED}
    failed = {
        i
        for i, state in enumerate(states)
        if state is TaskState.FAILED and not _was_stopped(attempts[i])
    }
    lost = (lost - unbegun) if (lost | failed) - unbegun else lost
    if not lost | failed:
        return set()
    first = min(lost | failed, key=lambda i: (_ended_at(attempts[i]), i))
    told_apart_from = _ended_at(attempts[first]) + CANNOT_TELL_S
    if any(_ended_at(attempts[i]) <= told_apart_from for i in lost):
        return lost
    return {first}


def _ended_at(attempt: Attempt) -> float:
    """The time of the end; an end without a time counts as the latest."""
    return math.inf if attempt.ended_at is None else attempt.ended_at


def _was_stopped(attempt: Attempt) -> bool:
    return attempt.kernel_reason is not None and attempt.kernel_reason.code in (
        ReasonCode.STOPPED,
        ReasonCode.NEVER_STARTED,
        *DISPLACED,
    )


def _gang_verdict(alone: TaskVerdict, culprit: bool, finished: bool, budget: Budget) -> TaskVerdict:
    if culprit or (finished and alone.attempt_state is TaskState.SUCCEEDED):
        return alone
    preemptions = budget.preemption_count
    if finished:
        preemptions = exhausted(preemptions, budget.max_retries_preemption)
    return TaskVerdict(
        TaskState.WORKER_FAILED if finished else TaskState.PENDING,
        budget.failure_count,
        preemptions,
        TaskState.WORKER_FAILED,
        alone.reason,
        is_sibling=finished,
    )


def derive_job(
    current: JobState,
    total: int,
    counts: Mapping[TaskState, int],
    max_task_failures: int,
    *,
    keep_going: bool = False,
    stopped: int = 0,
    enough: int | None = None,
) -> JobState:
    """A job's state from its tasks' (design: Job derivation).

    PENDING means that no task has started: a job that runs does not go back to it while its only
    task waits to be tried again. A job of which no task succeeded has failed, however many
    failures it tolerates.

    Args:
        counts: task rows by state; tasks without rows are PENDING.
        keep_going: whether the job ends only once all of its tasks have.
        stopped: how many of the KILLED tasks people stopped one by one: the others go on.
        enough: how many tasks have to succeed for the job to succeed at once; None for all.
    """
    if current not in (JobState.PENDING, JobState.RUNNING):
        return current
    count = counts.get
    if enough is not None and count(TaskState.SUCCEEDED, 0) >= enough:
        return JobState.SUCCEEDED
    ended = sum(count(state, 0) for state in _ENDED)
    if keep_going and ended < total:
        return _unfinished(current, counts)
    if count(TaskState.SUCCEEDED, 0) == total:
        return JobState.SUCCEEDED
    if count(TaskState.FAILED, 0) > max_task_failures:
        return JobState.FAILED
    if count(TaskState.UNSCHEDULABLE, 0):
        return JobState.UNSCHEDULABLE
    if count(TaskState.KILLED, 0) > stopped:
        return JobState.KILLED
    if ended == total:
        well = count(TaskState.SUCCEEDED, 0) and not count(TaskState.WORKER_FAILED, 0)
        return JobState.SUCCEEDED if well else JobState.FAILED
    return _unfinished(current, counts)


def _unfinished(current: JobState, counts: Mapping[TaskState, int]) -> JobState:
    active = any(counts.get(state, 0) for state in ACTIVE)
    return JobState.RUNNING if active else current


_ENDED = (
    TaskState.SUCCEEDED,
    TaskState.FAILED,
    TaskState.KILLED,
    TaskState.WORKER_FAILED,
    TaskState.UNSCHEDULABLE,
)
