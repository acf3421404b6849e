"""ExpandJobs: a job's tasks become rows and sessions when they become candidates.

A job of a million tasks costs a constant to submit (design: Tasks follow attempts): only so many of
its tasks stand in the queue at a time.
"""

from collections.abc import Sequence

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Move, Work
from muster.control.job.held import HeldAttempts
from muster.control.session.cluster.state import ClusterState
from muster.core.ids import AgentId
from muster.core.reasons import DISPLACED, Reason, ReasonCode
from muster.core.reasons.of_tasks import TaskStopped
from muster.core.results import SchedulingResult
from muster.core.specs import SessionType
from muster.core.states import JOB_TABLE, KernelStatus, SessionStatus, TaskState
from muster.core.states.task import ACTIVE
from muster.store.records import MAX_FAILED_AGENTS, Job, Kernel, Session, Task

LEAST_CANDIDATES = 2
"""Sessions of one job that are kept waiting in the queue at least, so that placement knows that the
job needs more room. Each of them costs a look in every pass, and one write more than a session that
is placed as soon as it is made."""
MOST_CANDIDATES = 1024
"""Sessions of one job that a pass makes at most. The number doubles from pass to pass of a wake, as
long as all sessions that the last pass made are placed."""

MOST_WAITING = 1024
"""Tasks of one job that wait for their next try at most, before others of it begin for the first
time: each of them is in memory, and is looked at in every pass."""


class _BroughtUp(dict[Job, int]):
    """For each job the number of tasks for which the last pass of the wake could make a session,
    and for new tasks a row."""


class ExpandJobs(FollowingHandler[Job]):
    """Makes tasks candidates: each gets a row, a session and a place in the queue."""

    name = "ExpandJobs"
    stage = Stage.EXPAND
    entity = Job
    statuses = frozenset(JOB_TABLE.live)

    def __init__(self, cluster: ClusterState, held: HeldAttempts) -> None:
        self._cluster = cluster
        self._held = held

    def follow(self, record: Job, work: Work) -> None:
        if record.reason is not None and record.reason.code is ReasonCode.CANCELLED:
            return  # the job is about to end
        if record.held is not None:
            return
        if record.spec.coscheduled:
            self._bring_up_gang(record, work)
        else:
            self._bring_up_tasks(record, work)
        self._cluster.expanded(record)

    def _bring_up_tasks(self, job: Job, work: Work) -> None:
        if not job.waiting and job.next_task >= job.tasks_total:
            return
        if self._held.holds_job(job):
            return
        queued = self._cluster.candidates.get(job.id, 0)
        prefilled = sum(
            room for _, room in self._cluster.shapes.prefill_room(job, job.resources, work.now)
        )
        room = LEAST_CANDIDATES + prefilled - queued
        if not queued:
            doubled = work.once(_BroughtUp).get(job, LEAST_CANDIDATES) * 2
            room = work.once(_BroughtUp)[job] = max(room, doubled)
        room = min(room, work.share.of(MOST_CANDIDATES), room_under_max_running(job))
        if room <= 0:
            return
        if work.is_full:
            work.look_later([job])
            return
        for task in list(job.waiting.values()):
            if room and self._may_begin(task, work):
                del job.waiting[task.index]
                self._start_attempt(job, [task], work)
                room -= 1
        if len(job.waiting) >= MOST_WAITING:
            return
        last = min(job.next_task + room, job.tasks_total)
        while job.next_task < last:
            task = self._next_task(job, work)
            if job.stopped is not None and task.index in job.stopped:
                task.reason = TaskStopped(index=task.index)
                task.finished_at = work.now
                stopped = Move(self.name, SchedulingResult.GIVE_UP, task.reason)
                work.move(task, {task.status}, TaskState.KILLED, stopped)
                work.mark(job)
                continue
            self._start_attempt(job, [task], work)

    def _bring_up_gang(self, job: Job, work: Work) -> None:
        while job.next_task < job.tasks_total:
            task = self._next_task(job, work)
            job.waiting[task.index] = task
        tasks = list(job.waiting.values())
        if len(tasks) == job.tasks_total and all(self._may_begin(task, work) for task in tasks):
            job.waiting.clear()
            self._start_attempt(job, tasks, work)

    def _may_begin(self, task: Task, work: Work) -> bool:
        """Whether the processes of the task's last attempt are proven gone, and nobody holds the
        task back."""
        gone = task.kernel_id is None or task.kernel_id not in work.live.allocations_of
        return gone and work.may_try(task) and not self._held.holds(task)

    def _next_task(self, job: Job, work: Work) -> Task:
        index = job.spec.task_at(job.next_task)
        task = Task(job=job, index=index, status=TaskState.PENDING, status_changed_at=work.now)
        work.unit.add(task)
        work.unit.touch(job)
        job.next_task += 1
        return task

    def _start_attempt(self, job: Job, tasks: Sequence[Task], work: Work) -> None:
        returns_to = self._held.returns_to(tasks[0])
        session = Session(
            id=work.ids.session(),
            job=job,
            name=None,
            type=SessionType.BATCH,
            owner=job.owner,
            group=job.group,
            priority=job.spec.priority,
            spec=None,
            status=SessionStatus.PENDING,
            status_changed_at=work.now,
            created_at=work.now,
            queued_at=work.now,
            reason=_displaced(tasks[0].reason),
            failed_agents=_failed_agents(tasks) if returns_to is None else (),
            returns_to=returns_to,
        )
        kernels = []
        for index, task in enumerate(tasks):
            if task.status is not TaskState.PENDING:  # nobody settled the end of its last attempt
                again = Move(self.name, SchedulingResult.NEED_RETRY)
                work.move(task, ACTIVE, TaskState.PENDING, again)
            kernel = Kernel(
                id=work.ids.kernel(),
                session=session,
                index=index,
                process=job.spec,
                resources=job.resources,
                status=KernelStatus.PENDING,
                status_changed_at=work.now,
                task_index=task.index,
                attempt=task.attempt + 1,
            )
            kernels.append(kernel)
            task.attempt += 1
            task.session_id = session.id
            task.kernel_id = kernel.id
            task.reason = None
            task.exit_code = None
            task.started_at = None
            work.unit.touch(task)
        session.kernels = kernels
        work.unit.add(session)
        work.unit.add(*kernels)
        work.mark(session)
        self._cluster.session_changed(session)


def room_under_max_running(job: Job) -> int:
    """How many more of a job's tasks may get a session, so that no more than ``max_running`` have
    one at a time."""
    if job.spec.max_running is None:
        return job.tasks_total
    have_one = len(job.tasks) - len(job.waiting)
    return job.spec.max_running - have_one


def _failed_agents(tasks: Sequence[Task]) -> tuple[AgentId, ...]:
    """The agents on which the tasks of an attempt failed before."""
    found = dict.fromkeys(agent for task in tasks for agent in task.failed_agents)
    return tuple(found)[-MAX_FAILED_AGENTS:]


def _displaced(why: Reason | None) -> Reason | None:
    """The reason of the last attempt's end, if it was displaced: the next attempt keeps it."""
    return why if why is not None and why.code in DISPLACED else None
