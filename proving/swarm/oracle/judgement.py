"""Budgets, states, exit codes and reasons of tasks and jobs, compared with the oracle's."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from muster.control.recovery.entity import Recovery
from muster.core.ids import JobId
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, SESSION_TABLE, TASK_TABLE, TaskState
from muster.store.records import Job, Session, Task
from muster.store.unit import Unit
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.causes import is_given_up
from proving.swarm.oracle.facts import Facts, How, Known
from proving.swarm.oracle.verdicts import (
    DISPLACED,
    NEVER,
    Attempt,
    charged,
    job_state,
)

_COUNTED = (TaskState.FAILED, TaskState.WORKER_FAILED)


@dataclass(slots=True)
class Account:
    """The oracle's own account of a task: its counters, the last attempt that was judged, and its
    final state. ``with_job`` says that it ended because its job did, ``alone`` because a user
    stopped it."""

    failures: int = 0
    preemptions: int = 0
    timeouts: int = 0
    attempt: int = 0
    ended: TaskState | None = None
    with_job: bool = False
    alone: bool = False


class _Expected:
    """The counters and the final state that a task must have after an attempt that ended."""

    def __init__(self, task: Task, attempt: Attempt, account: Account, *, is_charged: bool) -> None:
        state, spec = attempt.state, task.job.spec
        self.failures = account.failures + (is_charged and state is TaskState.FAILED)
        self.preemptions = account.preemptions + (is_charged and state is TaskState.WORKER_FAILED)
        self.timed_out = timed_out(task.job.spec, attempt)
        self.timeouts = account.timeouts + self.timed_out
        within = (
            self.failures <= spec.max_retries_failure
            and self.preemptions <= spec.max_retries_preemption
        )
        again = state is TaskState.PENDING or (state in _COUNTED and (within or not is_charged))
        again = again or (self.timed_out and self.timeouts <= spec.max_retries_timeout)
        self.ended = None if again else state
        self._most_preemptions = spec.max_retries_preemption

    def end(self, state: TaskState) -> None:
        """Have the task end with its gang: what is lost with it has no preemption left."""
        self.ended = state
        if state is TaskState.WORKER_FAILED:
            self.preemptions = max(self.preemptions, self._most_preemptions + 1)


class TasksAreJudged(Invariant):
    """Judged in the commit in which a session of a job ends."""

    says = "budgets, states, exit codes and reasons of tasks are what the oracle says"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._facts = judge.of(Facts)
        self.accounts: dict[JobId, dict[int, Account]] = defaultdict(dict)

    def committed(self, unit: Unit) -> None:
        ended = [
            each
            for each in unit.touched[Session]
            if each.job is not None and each.status in SESSION_TABLE.terminal
        ]
        latest: dict[tuple[Job | None, int | None], int] = {}
        for session in ended:
            for kernel in session.kernels:
                latest[session.job, kernel.task_index] = kernel.attempt
        noted = {*_noted(unit)}
        for session in ended:
            tasks = {each.index: each for each in unit.touched[Task] if each.job is session.job}
            attempts = ((each.task_index, each.attempt) for each in session.kernels)
            if noted.isdisjoint((session.job, *each) for each in attempts):
                self._judge_session(session, tasks, latest)
        for job in {
            job for job, *_ in noted if job is not None
        }:  # a recovery decides on these attempts
            self._believe([*job.tasks.values()])
            self._believe([task for task in unit.touched[Task] if task.job is job])
        for task in unit.touched[Task]:
            if task.status in TASK_TABLE.terminal and _with_its_job(task):
                account = self._account(task)
                account.ended, account.with_job = TaskState.KILLED, True
            elif task.reason is not None and task.reason.code is ReasonCode.TASK_STOPPED:
                self._judge_stop(task)

    def _judge_stop(self, task: Task) -> None:
        """A task is stopped at once, before its attempt ends."""
        account = self._account(task)
        account.ended, account.alone = TaskState.KILLED, True
        was_asked = task.index in self.scene.stopped[task.job.id]
        self.expect(was_asked, f"{_name(task)} was stopped, and nobody asked for that")

    def _account(self, task: Task) -> Account:
        return self.accounts[task.job.id].setdefault(task.index, Account())

    def _judge_session(
        self,
        session: Session,
        touched: Mapping[int, Task],
        latest: Mapping[tuple[Job | None, int | None], int],
    ) -> None:
        """
        Args:
            touched: the job's tasks that the commit changed.
            latest: the last of the attempts of a task that ended in the commit.
        """
        members = [
            (kernel, task)
            for kernel in session.kernels
            if kernel.task_index is not None
            and (task := touched.get(kernel.task_index)) is not None
            and self._account(task).ended is None
            and self._account(task).attempt < kernel.attempt
        ]
        last = [latest[session.job, kernel.task_index] for kernel, _ in members]
        for (_, task), attempt in zip(members, last, strict=True):
            self._account(task).attempt = attempt
        if not members or any(_with_its_job(task) for _, task in members):
            return  # the job was cancelled in this commit, or was ended by another of its tasks
        known = [self._facts.known[kernel.id, kernel.generation] for kernel, _ in members]
        one = all(len(each.ends) < 2 and not each.is_unsure for each in known)
        if is_given_up(session):
            self._believe([task for _, task in members])
        elif one and last == [kernel.attempt for kernel, _ in members]:
            self._judge_tasks(session, [task for _, task in members], known)
        else:  # nobody can tell which of the news it acted upon, or what the first attempt made
            self._believe([task for _, task in members])

    def _judge_tasks(self, session: Session, tasks: Sequence[Task], known: Sequence[Known]) -> None:
        why = None if session.reason is None else session.reason.code
        let_go = session.barrier_opened_at is not None
        attempts = [
            Attempt(each.ends[0] if each.ends else None, each.has_begun, why, let_go)
            for each in known
        ]
        may_be = charged(attempts) if len(tasks) > 1 else None
        leader = tasks[0].job.spec.leader
        is_whole = [each.index for each in tasks] == [*range(len(session.kernels))]
        if leader is not None and is_whole and attempts[leader].state is TaskState.SUCCEEDED:
            self._all_succeed(tasks, attempts)
            return
        if may_be is None:
            self._compare(tasks, attempts, set(range(len(tasks))))
        else:
            counts = [(task.failure_count, task.preemption_count) for task in tasks]
            was = [
                blamed
                for blamed in may_be
                if counts == _counts(self._expected(tasks, attempts, blamed, is_gang=True))
            ]
            self.expect(
                bool(was),
                f"{session.id}: not one of {may_be} is charged, by {counts}: {attempts}",
            )
            self._compare(tasks, attempts, (was or may_be)[0], is_gang=True)

    def _all_succeed(self, tasks: Sequence[Task], attempts: Sequence[Attempt]) -> None:
        """The leader of a gang ended well, which is the end of all, whatever became of them."""
        for task, attempt in zip(tasks, attempts, strict=True):
            account = self._account(task)
            charged_ = task.failure_count, task.preemption_count
            self.expect(
                charged_ == (account.failures, account.preemptions),
                f"{_name(task)} is charged, though the leader of its gang ended well: {attempt}",
            )
            self._compare_state(task, attempt, TaskState.SUCCEEDED)
            account.ended = TaskState.SUCCEEDED

    def _believe(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            account = self._account(task)
            account.failures, account.preemptions = task.failure_count, task.preemption_count
            account.timeouts = task.timeout_count
            account.ended = task.status if task.status in TASK_TABLE.terminal else None

    def _compare(
        self,
        tasks: Sequence[Task],
        attempts: Sequence[Attempt],
        blamed: Set[int],
        *,
        is_gang: bool = False,
    ) -> None:
        expected = self._expected(tasks, attempts, blamed, is_gang=is_gang)
        for task, attempt, wanted in zip(tasks, attempts, expected, strict=True):
            counts = task.failure_count, task.preemption_count
            self.expect(
                counts == (wanted.failures, wanted.preemptions),
                f"{_name(task)} has failed and lost {counts}, and should have "
                f"{wanted.failures, wanted.preemptions}: {attempt}",
            )
            self.expect(
                task.timeout_count == wanted.timeouts,
                f"{_name(task)} met its time limit {task.timeout_count} times, and should have "
                f"{wanted.timeouts}: {attempt}",
            )
            self._compare_state(task, attempt, wanted.ended)
            account = self._account(task)
            account.failures, account.preemptions = wanted.failures, wanted.preemptions
            account.timeouts = wanted.timeouts
            account.ended = wanted.ended

    def _expected(
        self,
        tasks: Sequence[Task],
        attempts: Sequence[Attempt],
        blamed: Set[int],
        *,
        is_gang: bool,
    ) -> "list[_Expected]":
        expected = [
            _Expected(task, attempt, self._account(task), is_charged=i in blamed)
            for i, (task, attempt) in enumerate(zip(tasks, attempts, strict=True))
        ]
        if len(tasks) > 1:
            _as_one(expected, attempts, blamed if is_gang else None)
        return expected

    def _compare_state(self, task: Task, attempt: Attempt, ended: TaskState | None) -> None:
        is_ended = task.status in TASK_TABLE.terminal
        right = task.status is ended if ended is not None else not is_ended or _with_its_job(task)
        self.expect(right, f"{_name(task)} is {task.status}, and should be {ended}: {attempt}")
        if ended is None or task.status is not ended:
            return
        end = attempt.end
        code = None if end is None else end.exit_code
        self.expect(
            task.exit_code == code, f"{_name(task)} has exit code {task.exit_code}, not {code}"
        )
        allowed = _reasons(attempt, ended)
        told = None if task.reason is None else task.reason.code
        self.expect(
            not allowed or told in allowed,
            f"{_name(task)} is {ended} for {told}, and not for {allowed}: {attempt}",
        )


def timed_out(spec: JobSpec, attempt: Attempt) -> bool:
    """Whether an attempt was stopped at a time limit after which its job goes on."""
    stopped = attempt.state is TaskState.KILLED and attempt.why is ReasonCode.TIMEOUT
    return stopped and spec.on_timeout == "retry"


def _with_its_job(task: Task) -> bool:
    """Whether the task was ended because its job was."""
    code = None if task.reason is None else task.reason.code
    with_job = (ReasonCode.CANCELLED, ReasonCode.JOB_ENDED, ReasonCode.JOB_FAILED)
    return task.job.status in JOB_TABLE.terminal and code in with_job


def _as_one(
    expected: Sequence[_Expected], attempts: Sequence[Attempt], blamed: Set[int] | None
) -> None:
    """A gang goes on or ends as one. Where members were blamed, the others were stopped for them;
    else each ends as its own attempt did, unless the gang is tried again after its time limit."""
    if any(each.timed_out for each in expected):
        ends = {each.ended for each in expected}
        if ends <= {None, TaskState.SUCCEEDED}:
            for each in expected:
                each.ended = None
            return
    ended = any(
        each.ended is not None and (blamed is None or i in blamed)
        for i, each in enumerate(expected)
    )
    for i, (each, attempt) in enumerate(zip(expected, attempts, strict=True)):
        succeeded = attempt.state is TaskState.SUCCEEDED
        if not ended:
            each.ended = None
        elif blamed is None or i in blamed:
            if each.ended is None:
                pending = attempt.state is TaskState.PENDING
                each.end(TaskState.WORKER_FAILED if pending else attempt.state)
        else:
            each.end(TaskState.SUCCEEDED if succeeded else TaskState.WORKER_FAILED)


def _counts(expected: Sequence[_Expected]) -> list[tuple[int, int]]:
    return [(each.failures, each.preemptions) for each in expected]


def _reasons(attempt: Attempt, ended: TaskState) -> set[ReasonCode | None]:
    """The reasons for which the task may have ended; empty where any will do."""
    end, why = attempt.end, attempt.why
    if ended in (TaskState.KILLED, TaskState.UNSCHEDULABLE):
        return {why}
    if ended is TaskState.FAILED and end is not None and end.how is How.BY_ITSELF:
        return {end.code}
    if ended is TaskState.WORKER_FAILED and why in DISPLACED:
        return {why}
    if ended is TaskState.WORKER_FAILED and end is not None and end.how is How.WITH_MACHINE:
        vanished = {ReasonCode.AGENT_REBOOTED, ReasonCode.KERNEL_VANISHED}
        return {*vanished} if end.code in vanished else {end.code}
    return set()


def _noted(unit: Unit) -> Iterator[tuple[Job | None, int | None, int]]:
    """The attempts, with their jobs, of rounds that recoveries have open, or that ended now."""
    for recovery in {*unit.live.of(Recovery).values(), *unit.touched[Recovery]}:
        for each in (recovery.open, recovery.next, *recovery.kept):
            if each is not None and each.ended_at in (None, unit.now):
                for task in each.tasks:
                    yield recovery.job, task.index, task.attempt


def _name(task: Task) -> str:
    return f"task {task.index} of {task.job.id}"


class JobsAreDerived(Invariant):
    says = "a job has ended if, and as, the oracle says"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._tasks = judge.of(TasksAreJudged)

    def committed(self, unit: Unit) -> None:
        for job in unit.touched[Job]:
            told = None if job.reason is None else job.reason.code
            if told is ReasonCode.CANCELLED:
                asked = job.id in self.scene.cancelled
                self.expect(asked, f"{job.id} is cancelled, and nobody asked for that")
                continue
            accounts = self._tasks.accounts[job.id].values()
            ended = job_state(
                [each.ended for each in accounts if each.ended is not None and not each.with_job],
                job.tasks_total,
                job.spec.max_task_failures,
                keep_going=job.spec.keep_going and not (told in NEVER and job.started_at is None),
                stopped=sum(each.alone for each in accounts),
            )
            has = job.status if job.status in JOB_TABLE.terminal else None
            self.expect(has is ended, f"{job.id} is {job.status}, and should be {ended}")
