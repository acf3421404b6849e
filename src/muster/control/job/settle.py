"""SettleTasks: the state of a task follows from its attempt's kernel; an ended attempt is
judged."""

from collections.abc import Sequence

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.retries import NO_LIMIT, RetryPolicy
from muster.control.engine.work import Move, Work
from muster.control.job.derive import live_attempts
from muster.control.job.held import HeldAttempts, put_off
from muster.control.job.judge import Attempt, Budget, TaskVerdict, judge, judge_gang
from muster.control.session.cluster.eligibility import job_waits_anew
from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import has_begun
from muster.core.job_remarks import of_end, with_task
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_tasks import TaskLost, TasksFailed
from muster.core.results import SchedulingResult
from muster.core.specs import JobSpec
from muster.core.specs.job import OnTimeout
from muster.core.states import (
    SESSION_TABLE,
    TASK_TABLE,
    KernelStatus,
    SessionStatus,
    TaskState,
)
from muster.store.records import MAX_FAILED_AGENTS, Job, Kernel, Session, Task

STARTS = RetryPolicy(max_tries=NO_LIMIT, backoff_s=1.0, longest_backoff_s=60.0, at_once=1)
"""The tries to begin an attempt. One that is lost before it began charges no budget (design:
Budgets), so the wait for the next grows each time, lest a machine that loses all attempts is tried
without end."""

FIRST_BACKOFF_S = 1.0
"""The wait before the second retry of a task that fails, where its job does not say how long. The
first is at once: on another agent it may succeed."""

STATE_OF = {
    SessionStatus.PENDING: TaskState.PENDING,
    SessionStatus.SCHEDULED: TaskState.ASSIGNED,
    SessionStatus.PREPARING: TaskState.ASSIGNED,
    SessionStatus.PREPARED: TaskState.ASSIGNED,
    SessionStatus.CREATING: TaskState.ASSIGNED,
    SessionStatus.RUNNING: TaskState.RUNNING,
}
"""The state of a task by the status of its attempt's session; see also ``SettleTasks``. While a
session ends, the state of its task is unchanged."""


class SettleTasks(FollowingHandler[Session]):
    """Moves tasks with the kernels of their attempts (design: Tasks follow attempts)."""

    name = "SettleTasks"
    stage = Stage.SETTLE
    entity = Session
    statuses = frozenset(SessionStatus)

    def __init__(self, cluster: ClusterState, held: HeldAttempts) -> None:
        self._cluster = cluster
        self._held = held

    def follow(self, record: Session, work: Work) -> None:
        if record.job is None:
            return
        if record.status in SESSION_TABLE.terminal:
            self._settle(record, record.job, work)
        elif record.status is not SessionStatus.TERMINATING and not _followed(record, record.job):
            for kernel in record.kernels:
                self._follow(kernel, record, record.job, work)

    def _follow(self, kernel: Kernel, session: Session, job: Job, work: Work) -> None:
        task = _task_of(kernel, session, job)
        if task is None:
            return
        state = STATE_OF[session.status]
        if state is TaskState.ASSIGNED and kernel.status is KernelStatus.PULLING:
            state = TaskState.BUILDING
        if task.status is state:
            return
        if state is TaskState.RUNNING:
            task.started_at = kernel.started_at or work.now
            self._job_runs(job, session, work)
            if task.status is TaskState.PENDING:  # it was placed and started in one wake
                work.move(task, {task.status}, TaskState.ASSIGNED, Move(self.name))
        work.move(task, TASK_TABLE.live, state, Move(self.name))

    def _job_runs(self, job: Job, session: Session, work: Work) -> None:
        """Note that the job has begun, with the first of its tasks that runs."""
        if job.started_at is None:
            job.started_at = session.started_at or work.now
            work.unit.touch(job)
            self._cluster.job_changed(job)
            if has_begun(job):
                # It was enough that deployments were healthy when the first of its tasks started.
                job_waits_anew(self._cluster, job, live_attempts(job, work.live))

    def _settle(self, session: Session, job: Job, work: Work) -> None:
        pairs = [
            (kernel, task)
            for kernel in session.kernels
            if (task := _task_of(kernel, session, job)) is not None
        ]
        if not pairs:
            return
        if session.started_at is not None:
            self._job_runs(job, session, work)
        attempts = [_attempt(kernel, session) for kernel, _ in pairs]
        budgets = [_budget(task, job) for _, task in pairs]
        verdicts: Sequence[TaskVerdict] = (
            judge_gang(attempts, budgets, _leader(session, [kernel for kernel, _ in pairs]))
            if job.spec.coscheduled
            else [judge(attempts[0], budgets[0])]
        )
        if job.spec.recovery is not None:
            tasks = [task for _, task in pairs]
            verdicts = self._left_open(session, tasks, verdicts, work)
        for (kernel, task), verdict in zip(pairs, verdicts, strict=True):
            self._apply(kernel, task, verdict, work)

    def _left_open(
        self,
        session: Session,
        tasks: Sequence[Task],
        verdicts: Sequence[TaskVerdict],
        work: Work,
    ) -> Sequence[TaskVerdict]:
        """The verdicts, or if they are kept open, others that charge nobody yet."""
        pairs = [*zip(tasks, verdicts, strict=True)]
        charged = [task.index for task, each in pairs if each.failure_count > task.failure_count]
        if not self._held.keeps_open(work, session, charged):
            return verdicts
        return [put_off(each, task) for task, each in pairs]

    def _apply(self, kernel: Kernel, task: Task, verdict: TaskVerdict, work: Work) -> None:
        failures = task.failure_count
        task.failure_count = verdict.failure_count
        task.preemption_count = verdict.preemption_count
        task.timeout_count += verdict.timed_out
        task.exit_code = kernel.exit_code
        task.reason = verdict.reason
        if kernel.started_at is not None:
            task.started_at = kernel.started_at
        work.unit.touch(task)
        for code in of_end(kernel.reason):
            task.job.remarks = with_task(task.job.remarks, code, task.index)
            work.unit.touch(task.job)
        retry = verdict.state is TaskState.PENDING
        if task.status is TaskState.PENDING and not retry and verdict.state in _NEEDS_ASSIGNED:
            work.move(task, {task.status}, TaskState.ASSIGNED, Move(self.name))
        if not retry:
            task.finished_at = kernel.ended_at or work.now
            if not verdict.is_sibling:
                note_first_loss(task, verdict)
        result = SchedulingResult.SUCCESS
        if verdict.attempt_state is not TaskState.SUCCEEDED:
            result = SchedulingResult.NEED_RETRY if retry else SchedulingResult.GIVE_UP
        if task.status is not verdict.state:
            why = verdict.reason if result is not SchedulingResult.SUCCESS else None
            work.move(task, TASK_TABLE.live, verdict.state, Move(self.name, result, why))
        if retry:
            self._put_off(kernel, task, work, failed=task.failure_count > failures)
            # Its session may be looked at again before the next attempt has one of its own.
            task.session_id = None
            task.job.waiting[task.index] = task
            work.mark(task)

    def _put_off(self, kernel: Kernel, task: Task, work: Work, *, failed: bool) -> None:
        """Have the task wait before its next attempt, and remember the agent that failed it.

        Args:
            failed: whether the task was charged a failure.
        """
        if failed or kernel.status is KernelStatus.ERROR:
            _remember_agent(task, kernel)
        if failed:
            put_off_after_failure(task, work)
        elif kernel.started_at is None:
            work.charge_try(task, STARTS)
        else:
            work.forget_tries(task)


def put_off_after_failure(task: Task, work: Work) -> None:
    """Have a task that was charged a failure wait before its next attempt (design: Budgets)."""
    work.forget_tries(task)
    work.try_later(task, work.now + failure_backoff(task.job.spec).delay_s(task.failure_count))


def failure_backoff(spec: JobSpec) -> RetryPolicy:
    """The waits between the tries of a task that fails."""
    tries = spec.max_retries_failure + 1
    if spec.retry_backoff is None:
        return RetryPolicy(tries, FIRST_BACKOFF_S, spec.max_retry_backoff, at_once=1)
    longest_s = max(spec.retry_backoff, spec.max_retry_backoff)
    return RetryPolicy(tries, spec.retry_backoff, longest_s)


def _remember_agent(task: Task, kernel: Kernel) -> None:
    if kernel.agent_id is not None:
        others = (agent for agent in task.failed_agents if agent != kernel.agent_id)
        task.failed_agents = (*others, kernel.agent_id)[-MAX_FAILED_AGENTS:]


def note_first_loss(task: Task, verdict: TaskVerdict) -> None:
    """Note in the job its first task that did not succeed, and the end of that task."""
    job = task.job
    if job.reason is not None or verdict.state is TaskState.SUCCEEDED:
        return
    if verdict.reason is not None and verdict.reason.code is ReasonCode.TASK_STOPPED:
        return
    how = verdict.reason.sentence() if verdict.reason else verdict.state.lower()
    match verdict.state:
        case TaskState.FAILED if job.tasks_total > 1:
            job.reason = TasksFailed(
                failed=1,
                others=0,
                tolerated=job.spec.max_task_failures,
                index=task.index,
                how=how,
                job=job.name,
            )
        case TaskState.WORKER_FAILED:
            limit = job.spec.max_retries_preemption
            job.reason = TaskLost(index=task.index, limit=limit)
        case _:
            job.reason = verdict.reason


def _followed(session: Session, job: Job) -> bool:
    """Whether all tasks of a gang already have the state that follows from its session's."""
    kernels = len(session.kernels)
    if kernels == 1 or session.tally.among((KernelStatus.PULLING,)):
        return False
    return job.counts.get(STATE_OF[session.status], 0) == kernels


_NEEDS_ASSIGNED = frozenset({TaskState.SUCCEEDED})
"""States that the table of changes allows only after ASSIGNED. A task is still PENDING if this
handler had no turn between its attempt's start and end; it then passes ASSIGNED on its way."""


def _task_of(kernel: Kernel, session: Session, job: Job) -> Task | None:
    """The live task whose current attempt this kernel is."""
    task = job.tasks.get(kernel.task_index) if kernel.task_index is not None else None
    return task if task is not None and task.session_id == session.id else None


def _attempt(kernel: Kernel, session: Session) -> Attempt:
    return Attempt(
        status=kernel.status,
        exit_code=kernel.exit_code,
        ended_at=kernel.ended_at,
        started=kernel.started_at is not None,
        kernel_reason=kernel.reason,
        session_reason=session.reason,
        let_go=session.barrier_opened_at is not None,
    )


def _budget(task: Task, job: Job) -> Budget:
    spec = job.spec
    return Budget(
        failure_count=task.failure_count,
        preemption_count=task.preemption_count,
        max_retries_failure=spec.max_retries_failure,
        max_retries_preemption=spec.max_retries_preemption,
        timeout_count=task.timeout_count,
        max_retries_timeout=spec.max_retries_timeout if _goes_on(spec) else None,
    )


def _leader(session: Session, kernels: Sequence[Kernel]) -> int | None:
    """The place of the leader of a gang among its kernels whose tasks are judged."""
    leader = session.leader
    return kernels.index(leader) if leader is not None and leader in kernels else None


def _goes_on(spec: JobSpec) -> bool:
    """Whether tasks are tried again that were stopped at their time limit."""
    return spec.on_timeout is OnTimeout.RETRY
