"""The answer of `muster why` about a job or a task: why it has not ended, or why it has."""

from collections.abc import Sequence

from msgspec.structs import replace
from sqlalchemy import Connection

from muster.control.engine.retries import seconds_left
from muster.control.job.derive import live_attempts
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.explanation import (
    Found,
    agents_of,
    delay_of,
    explain_session,
    findings,
    others_run_on,
    session_needs_agent,
)
from muster.control.session.explaining.machines import silence_of
from muster.control.session.handlers.schedule import cleaning_up
from muster.core import sentences
from muster.core.errors import NotFound
from muster.core.ids import AgentId, JobId, SessionId
from muster.core.owner import Principal, Role
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_tasks import NotYetCandidate, TaskRetryBackoff
from muster.core.states import TASK_TABLE, JobState, KernelStatus, SessionStatus, TaskState
from muster.core.views.base import ReasonView
from muster.core.views.placement import WhyView
from muster.core.views.work import JobView, TaskDetail, WorkStanding, standing_of_tasks
from muster.store.live import Live
from muster.store.queries.jobs import all_counts
from muster.store.queries.tasks import TaskFilter, list_tasks, read_task
from muster.store.records import Job, Session

MOST_MACHINES = 5
"""Machines that are named because they hold up tasks of a job."""
LOOKED_AT = 5
"""Running tasks whose agents are looked up."""


def explain_job(
    live: Live, cluster: ClusterState, id_: JobId, now: float, asker: Principal | None = None
) -> WhyView:
    """Why a live job has not ended: the reasons of its first waiting session, the states of its
    tasks, and facts about the machines on which they run.

    Args:
        asker: who asks; of others' work an answer names only what the asker may see. The job's
            owner if left out.

    Raises:
        NotFound: the job is not live.
    """
    job = live.jobs.get(id_)
    if job is None:
        raise NotFound(f"there is no live job {id_}")
    asker = asker or Principal(job.owner, Role.USER)
    waiting = _first_waiting(live, cluster, job)
    found = Found() if waiting is None else findings(live, cluster, waiting, now, asker)
    reasons = found.reasons
    if job.held is not None and job.held not in reasons:
        reasons.insert(0, job.held)
    reasons += [why for why in _of_machines(live, job, now) if why not in reasons]
    if job.spec.coscheduled and waiting is None:
        for session in live_attempts(job, live):
            reasons += others_run_on(session, now)
    for task in job.waiting.values():
        if task.kernel_id is not None and task.kernel_id in live.allocations_of:
            reasons.append(cleaning_up(task.kernel_id, live))
            break
    reasons += _paused(live, job, now)
    queued = cluster.candidates.get(job.id, 0)
    to_come = job.tasks_total - job.next_task
    if to_come:
        most = job.spec.max_running
        reasons.append(NotYetCandidate(waiting=to_come, candidates=queued, most=most))
    counts = all_counts(job.counts, job.tasks_total, job.next_task, ended=False)
    verdict, where = sentences.tasks(counts), _where(live, job, now)
    standing = standing_of_tasks(counts)
    return found.answer(job.id, job.status, verdict, where, name=job.name, standing=standing)


def job_needs_agent(live: Live, cluster: ClusterState, job: Job) -> list[Reason]:
    """The reasons for which a job's first session waits until another agent joins."""
    waiting = _first_waiting(live, cluster, job)
    return [] if waiting is None else session_needs_agent(cluster, waiting)


def explain_ended_job(
    connection: Connection, principal: Principal, job: JobView, now: float
) -> WhyView:
    """Why an ended job has ended; and of the first of its tasks that failed, if one ended it, where
    it ran, and how it failed unless the job's reason says so."""
    ended_at = job.finished_at or job.state_changed_at
    ran_s = None if job.started_at is None else ended_at - job.started_at
    counts = job.counts if job.tasks_total > 1 else None
    verdict = sentences.ended(job.name, now - ended_at, ran_s, counts)
    failed: Sequence[TaskDetail] = ()
    details: Sequence[str] = ()
    if job.reason is not None and job.reason.code == ReasonCode.TASKS_FAILED:
        # The reason says how this task ended.
        first = read_task(connection, principal, job.id, int(job.reason.numbers["index"] or 0))
        failed, details = (first,), tuple(sentences.ran(first))
    elif job.state is JobState.FAILED:
        failed = list_tasks(connection, principal, job.id, TaskFilter(TaskState.FAILED), 0, 1).items
        details = tuple(map(sentences.failed, failed))
    output = job.name if ran_s is not None else None
    if output is not None and failed and job.tasks_total > 1:
        output = f"{job.name}/{failed[0].index}"
    return WhyView.of_ended(job, verdict, details=tuple(details), name=job.name, output=output)


def with_what_is_left(live: Live, ended: WhyView, now: float) -> WhyView:
    """The answer about an ended job, with the room that kernels of it still hold, and for how long
    they may; as it is if none does any more."""
    kernels = live.remains().get(JobId(ended.subject), ())
    if not kernels:
        return ended
    allocations = [each for kernel in kernels for each in live.allocations_of[kernel.id]]
    each_holds = allocations[0].resources.describe()  # the tasks of a job are alike
    agents = [live.agents[each.agent_id] for each in allocations if each.agent_id in live.agents]
    job = kernels[0].session.job
    grace_s = None if job is None else job.spec.grace
    names = list(dict.fromkeys(each.name for each in agents))
    left = sentences.left(ended.name, len(kernels), names, each_holds, grace_s)
    silent = dict.fromkeys(silence_of(each, now) for each in agents if not each.connected)
    return replace(
        ended,
        standing=WorkStanding.STOPPING,
        details=(*ended.details, left),
        reasons=(*ended.reasons, *map(ReasonView.of, silent)),
    )


def explain_task(
    live: Live, cluster: ClusterState, task: TaskDetail, name: str, now: float, asker: Principal
) -> WhyView:
    """Why a live task is in its state: where it runs, or why its session waits.

    Args:
        name: the task's, as commands know it: ``train/3``.

    Raises:
        NotFound: its session is not live.
    """
    of_session = explain_session(live, cluster, SessionId(task.session_id or ""), now, asker)
    attempt = task.attempts[-1] if task.attempts else None
    if task.state is not TaskState.RUNNING or attempt is None or attempt.started_at is None:
        return of_session
    agents = [attempt.agent] if attempt.agent else []
    verdict = sentences.runs(name, now - attempt.started_at, agents, attempt=attempt.attempt)
    return replace(
        of_session,
        status=task.state,
        standing=task.state,
        verdict=verdict,
        details=(),
        name=name,
        output=name,
    )


def explain_ended_task(task: TaskDetail, name: str, now: float) -> WhyView:
    """Why an ended task has ended; its job may still run."""
    attempt = task.attempts[-1] if task.attempts else None
    began_at = None if attempt is None else attempt.started_at
    ended_at = task.finished_at or task.state_changed_at
    return WhyView(
        subject=task.job_id,
        status=task.state,
        verdict=sentences.ended(
            name, now - ended_at, None if began_at is None else ended_at - began_at
        ),
        details=(sentences.failed(task),) if task.state is TaskState.FAILED else (),
        reasons=() if task.reason is None else (task.reason,),
        name=name,
        output=None if began_at is None else name,
        ended=True,
    )


def _where(live: Live, job: Job, now: float) -> tuple[str, ...]:
    """Sentences on how long and where a job has run; none if it does not run. Where no task has
    ended, the time of displaced attempts does not count, because nothing of their work is left."""
    of_tasks = (live.kernels.get(t.kernel_id) for t in job.tasks.values() if t.kernel_id)
    kernels = [each for each in of_tasks if each and each.status is KernelStatus.RUNNING]
    if not kernels:
        return ()
    agents = agents_of(live, kernels[:LOOKED_AT])
    since = job.started_at
    if not any(job.counts.get(state) for state in TASK_TABLE.terminal):  # it may have begun anew
        since = min((each.started_at for each in kernels if each.started_at), default=since)
    for_s = None if since is None else now - since
    return (sentences.runs(job.name, for_s, agents, only_first=len(kernels) > LOOKED_AT),)


def _of_machines(live: Live, job: Job, now: float) -> list[Reason]:
    """Reasons about a few of the machines on which the job's tasks run."""
    found: dict[AgentId, Reason] = {}
    for task in job.tasks.values():
        kernel = live.kernels.get(task.kernel_id) if task.kernel_id else None
        if kernel is None or kernel.agent_id is None or kernel.agent_id in found:
            continue
        why = delay_of(live, kernel, now) if kernel.status is KernelStatus.RUNNING else None
        if why is not None:
            found[kernel.agent_id] = why
            if len(found) == MOST_MACHINES:
                break
    return list(found.values())


def _paused(live: Live, job: Job, now: float) -> list[Reason]:
    """The reason that the job tells while tasks of it that failed wait to be tried again: that of
    the next one."""
    paused = [task for task in job.waiting.values() if task.retry_at > now and task.failure_count]
    if not paused:
        return []
    task = min(paused, key=lambda task: (task.retry_at, task.index))
    agent = live.agents.get(task.failed_agents[-1]) if task.failed_agents else None
    return [
        TaskRetryBackoff(
            index=task.index,
            failures=task.failure_count,
            agent=None if agent is None else agent.name,
            seconds=seconds_left(task, now),
            others=len(paused) - 1,
        )
    ]


def _first_waiting(live: Live, cluster: ClusterState, job: Job) -> Session | None:
    """The job's oldest session in the queue, else one that is placed and does not run yet. Only the
    job's own tasks are looked at: the queue may be long with the work of others."""
    queue = cluster.groups[job.group].queue
    ids = dict.fromkeys(task.session_id for task in job.tasks.values() if task.session_id)
    sessions = (live.sessions.get(id_) for id_ in ids)
    unstarted = [each for each in sessions if each and each.status is not SessionStatus.RUNNING]
    queued = (session for session in unstarted if session.id in queue)
    oldest = min(queued, key=lambda session: (session.created_at, session.id), default=None)
    return oldest or next(iter(unstarted), None)
