"""DeriveJobs: the state of a job is derived from its tasks' states; the end of a job ends its other
tasks (design: Job derivation)."""

from collections.abc import Mapping
from dataclasses import replace

from muster.control.engine.handler import DerivationHandler, Stage, TransitionStatus
from muster.control.engine.work import Work
from muster.control.job.judge import derive_job
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.promote import why_with_job
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_tasks import EnoughSucceeded, TasksFailed, TasksTolerated
from muster.core.states import JOB_TABLE, TASK_TABLE, JobState, SessionStatus, TaskState
from muster.scheduling.policy.validators import NEVER
from muster.store.live import Live
from muster.store.records import Job, Session, Task

LARGE = 1_000
"""Live tasks above which a job ends in a wake of its own: each of them ends with it."""
_SENT = frozenset({SessionStatus.CREATING, SessionStatus.RUNNING})


class DeriveJobs(DerivationHandler[Job]):
    """Derives the state of a job from those of its tasks; when the job ends, its other tasks are
    killed."""

    name = "DeriveJobs"
    stage = Stage.DERIVE
    entity = Job
    statuses = frozenset(JOB_TABLE.live)

    def __init__(self, sessions: SessionLifecycle, cluster: ClusterState) -> None:
        self._sessions = sessions
        self._cluster = cluster

    def derive(self, record: Job, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        state = state_of(record)
        if state is record.status:
            return None
        ends = state in JOB_TABLE.terminal
        if ends and len(record.tasks) > LARGE and not work.is_alone:
            work.look_alone(record)
            return None
        return TransitionStatus(state), _why(record, state)

    def derived(self, record: Job, work: Work) -> None:
        if record.status not in JOB_TABLE.terminal:
            return
        self._cluster.job_ended(record)
        kill_tasks(record, work, self._sessions, phase=self.name)


def state_of(job: Job, counts: Mapping[TaskState, int] | None = None) -> JobState:
    """The state of a job that follows from the states of its tasks.

    Args:
        counts: the number of its tasks by state, if they were others than the present ones.
    """
    return derive_job(
        job.status,
        job.tasks_total,
        job.counts if counts is None else counts,
        job.spec.max_task_failures,
        keep_going=job.spec.keep_going and not _ends_whole(job),
        stopped=0 if _ends_whole(job) else job.stopped_rows,
        enough=None if _ends_whole(job) else job.spec.stop_when,
    )


def kill_tasks(job: Job, work: Work, sessions: SessionLifecycle, *, phase: str) -> None:
    """End the live tasks KILLED of a job that is over.

    Sessions of their attempts that were not sent to agents end at once. ``EndWithJob`` stops the
    others later, those first that have not begun. Tasks without rows get none: an ended job's
    missing tasks never ran.
    """
    why = why_with_job(job)
    attempts = live_attempts(job, work.live)
    for task in list(job.tasks.values()):
        task.reason = why
        task.finished_at = work.now
        work.unit.move(task, TASK_TABLE.live, TaskState.KILLED, phase, reason=why)
    job.waiting.clear()
    sessions.terminate(work, [each for each in attempts if each.status not in _SENT], phase, why)
    sent = [each for each in attempts if each.status in _SENT]
    work.look_later(sorted(sent, key=lambda session: session.status is SessionStatus.RUNNING))


def stop_task(task: Task, work: Work, sessions: SessionLifecycle, phase: str, why: Reason) -> None:
    """End one live task KILLED, for a person; the other tasks of its job go on."""
    attempts = [work.live.sessions[id_] for id_ in (task.session_id,) if id_ in work.live.sessions]
    task.reason = why
    task.finished_at = work.now
    task.job.waiting.pop(task.index, None)
    work.unit.move(task, TASK_TABLE.live, TaskState.KILLED, phase, reason=why)
    sessions.terminate(work, attempts, phase, why)


def live_attempts(job: Job, live: Live) -> list[Session]:
    """The sessions of a job that have not ended."""
    ids = {task.session_id: None for task in job.tasks.values() if task.session_id}
    return [live.sessions[id_] for id_ in ids if id_ in live.sessions]


def _ends_whole(job: Job) -> bool:
    """Whether the end of one task ends all tasks: the job was cancelled, or none of its tasks can
    ever start."""
    code = job.reason.code if job.reason else None
    return code is ReasonCode.CANCELLED or (code in NEVER and job.started_at is None)


def _why(job: Job, state: JobState) -> Reason | None:
    """The reason of a job's new state. Before the end of the job, ``job.reason`` is the reason of
    its first lost task."""
    failed = job.counts.get(TaskState.FAILED, 0)
    tolerated = job.spec.max_task_failures
    if state is JobState.SUCCEEDED:
        succeeded, enough = job.counts.get(TaskState.SUCCEEDED, 0), job.spec.stop_when
        if enough is not None and succeeded >= enough and succeeded < job.tasks_total:
            return EnoughSucceeded(succeeded=succeeded, enough=enough)
        if not failed:
            return None
        return TasksTolerated(failed=failed, tolerated=tolerated)
    if state is JobState.FAILED and isinstance(job.reason, TasksFailed):
        alone = not job.spec.keep_going and not job.spec.coscheduled
        stopped = alone and failed > tolerated
        none = failed <= tolerated and not job.counts.get(TaskState.SUCCEEDED)
        return replace(
            job.reason,
            failed=failed,
            others=failed - 1,
            stopped=stopped,
            none=none,
            sole=failed == 1 and not stopped,
        )
    return job.reason
