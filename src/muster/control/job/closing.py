"""The end of verdicts that were kept open (see ``held``): the task's own budget decides, or the
machines were lost or given up. Pure functions, and ``close``, which applies the
verdicts."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from muster.control.engine.work import Move, Work
from muster.control.job.derive import state_of
from muster.control.job.judge import TaskVerdict, exhausted
from muster.control.job.settle import note_first_loss, put_off_after_failure
from muster.core.reasons import Reason, ReasonCode
from muster.core.results import SchedulingResult
from muster.core.states import JobState, TaskState
from muster.store.records import Job, Task

Verdicts = Sequence[tuple[Task, TaskVerdict]]


def by_budget(job: Job, charged: Collection[int]) -> Verdicts:
    """The verdicts where no machine was at fault: each charged task has failed once more. With
    budget left it is tried again, and with it its whole gang."""
    tasks = _held(job, charged)
    spent = {
        task: task.failure_count + 1 > job.spec.max_retries_failure
        for task in tasks
        if task.index in charged
    }
    ends = any(spent.values()) if job.spec.coscheduled else False
    verdicts = []
    for task in tasks:
        if task not in spent:
            verdicts.append((task, _sibling(task, ends)))
            continue
        state = TaskState.FAILED if spent[task] or ends else TaskState.PENDING
        verdicts.append((task, _verdict(task, state, task.failure_count + 1, task.reason)))
    return verdicts


def by_loss(job: Job, charged: Collection[int]) -> Verdicts:
    """The verdicts where a machine was lost before it could be checked: each charged task has lost
    its machine. With budget left it is tried again, and with it its whole gang."""
    tasks = _held(job, charged)
    limit = job.spec.max_retries_preemption
    spent = {task: task.preemption_count + 1 > limit for task in tasks if task.index in charged}
    ends = any(spent.values()) if job.spec.coscheduled else False
    verdicts = []
    for task in tasks:
        if task not in spent:
            verdicts.append((task, _sibling(task, ends)))
            continue
        state = TaskState.WORKER_FAILED if spent[task] or ends else TaskState.PENDING
        lost = _verdict(task, state, task.failure_count, task.reason)
        verdicts.append((task, replace(lost, preemption_count=task.preemption_count + 1)))
    return verdicts


def given_up(job: Job, charged: Collection[int], why: Reason) -> Verdicts:
    """The verdicts where the machines are given up: each charged task has failed for ``why``; of a
    gang in which none is charged, the first."""
    tasks = _held(job, charged)
    blamed = charged or {task.index for task in tasks[:1]}
    return [
        (task, _verdict(task, TaskState.FAILED, task.failure_count, why))
        if task.index in blamed
        else (task, _sibling(task, ends=True))
        for task in tasks
    ]


def state_after(job: Job, verdicts: Verdicts) -> JobState:
    """The state of the job once the verdicts are applied."""
    counts = dict(job.counts)
    for task, verdict in verdicts:
        counts[task.status] -= 1
        counts[verdict.state] = counts.get(verdict.state, 0) + 1
    return state_of(job, counts)


def close(work: Work, verdicts: Verdicts, phase: str) -> None:
    """Apply the verdicts. Those that are tried again wait for their next attempt already."""
    for task, verdict in verdicts:
        failed = verdict.failure_count > task.failure_count
        task.failure_count = verdict.failure_count
        task.preemption_count = verdict.preemption_count
        task.reason = verdict.reason
        work.unit.touch(task)
        work.mark(task)
        if verdict.state is TaskState.PENDING:
            if failed:
                put_off_after_failure(task, work)
            continue
        task.job.waiting.pop(task.index, None)
        task.finished_at = work.now
        if not verdict.is_sibling:
            note_first_loss(task, verdict)
        if verdict.state is TaskState.SUCCEEDED:  # the table has it succeed after ASSIGNED only
            work.move(task, {TaskState.PENDING}, TaskState.ASSIGNED, Move(phase))
        result = SchedulingResult.GIVE_UP
        if verdict.state is TaskState.SUCCEEDED:
            result = SchedulingResult.SUCCESS
        why = verdict.reason if result is SchedulingResult.GIVE_UP else None
        work.move(task, {task.status}, verdict.state, Move(phase, result, why))


def _held(job: Job, charged: Collection[int]) -> list[Task]:
    """The tasks whose verdicts are open, the charged ones first: the job's reason is the first
    loss."""
    if not job.spec.coscheduled:
        return [job.tasks[index] for index in sorted(charged) if index in job.tasks]
    return sorted(job.tasks.values(), key=lambda task: (task.index not in charged, task.index))


def _sibling(task: Task, ends: bool) -> TaskVerdict:
    """The verdict on a task of a gang that is not charged."""
    if not ends:
        return _verdict(task, TaskState.PENDING, task.failure_count, task.reason)
    ended_well = (
        task.exit_code == 0 and task.reason is not None and task.reason.code is ReasonCode.EXITED
    )
    if ended_well:
        return _verdict(task, TaskState.SUCCEEDED, task.failure_count, task.reason)
    lost = _verdict(task, TaskState.WORKER_FAILED, task.failure_count, task.reason)
    spent = exhausted(task.preemption_count, task.job.spec.max_retries_preemption)
    return replace(lost, preemption_count=spent, is_sibling=True)


def _verdict(task: Task, state: TaskState, failures: int, why: Reason | None) -> TaskVerdict:
    return TaskVerdict(state, failures, task.preemption_count, state, why)
