"""The answer of `muster why` about a job: why it has not ended, or why it has."""

from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.explanation import (
    Found,
    findings,
    holding_up,
)
from muster.control.session.handlers.schedule import cleaning_up
from muster.core.errors import NotFound
from muster.core.ids import AgentId, JobId
from muster.core.owner import Principal, Role
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.states import KernelStatus, SessionStatus, TaskState
from muster.core.views.placement import WhyView
from muster.core.views.work import JobView
from muster.store.live import Live
from muster.store.records import Job, Session

MOST_MACHINES = 5
"""Machines that are named because they hold up tasks of a job."""


def explain_job(
    live: Live, cluster: ClusterState, id_: JobId, now: float, asker: Principal | None = None
) -> WhyView:
    """Why a live job has not ended: the reasons of its first waiting session, the states of its
    tasks, and facts about the machines on which they run.

    Args:
        asker: for whom the answer is, which bounds what is told of the work of others; the job's
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
    reasons += [why for why in _of_machines(live, job, now) if why not in reasons]
    for task in job.waiting.values():
        if task.kernel_id is not None and task.kernel_id in live.allocations_of:
            reasons.append(cleaning_up(task.kernel_id, live))
            break
    queued = cluster.candidates.get(job.id, 0)
    to_come = job.tasks_total - job.next_task
    if to_come:
        reasons.append(reason(ReasonCode.NOT_YET_CANDIDATE, waiting=to_come, candidates=queued))
    return found.answer(job.id, job.status, _verdict(job))


def explain_ended_job(job: JobView) -> WhyView:
    """Why an ended job has ended."""
    counts = ", ".join(f"{count} {state}" for state, count in job.counts.items())
    return WhyView.of_ended(job, f"ended {job.state}; its tasks: {counts}")


def _of_machines(live: Live, job: Job, now: float) -> list[Reason]:
    """Reasons about a few of the machines on which the job's tasks run."""
    found: dict[AgentId, Reason] = {}
    for task in job.tasks.values():
        kernel = live.kernels.get(task.kernel_id) if task.kernel_id else None
        if kernel is None or kernel.agent_id is None or kernel.agent_id in found:
            continue
        why = holding_up(live, kernel, now) if kernel.status is KernelStatus.RUNNING else None
        if why is not None:
            found[kernel.agent_id] = why
            if len(found) == MOST_MACHINES:
                break
    return list(found.values())


def _first_waiting(live: Live, cluster: ClusterState, job: Job) -> Session | None:
    """The job's oldest session in the queue, else one that is placed and does not run yet. Only the
    job's own tasks are looked at: the queue may be long with the work of others."""
    queue = cluster.groups[job.group].queue
    ids = dict.fromkeys(task.session_id for task in job.tasks.values() if task.session_id)
    sessions = (live.sessions.get(id_) for id_ in ids)
    held_up = [each for each in sessions if each and each.status is not SessionStatus.RUNNING]
    queued = (session for session in held_up if session.id in queue)
    oldest = min(queued, key=lambda session: (session.created_at, session.id), default=None)
    return oldest or next(iter(held_up), None)


def _verdict(job: Job) -> str:
    """The numbers of the job's tasks by state, as a sentence."""
    done = job.counts.get(TaskState.SUCCEEDED, 0)
    running = job.counts.get(TaskState.RUNNING, 0)
    assigned = job.counts.get(TaskState.ASSIGNED, 0) + job.counts.get(TaskState.BUILDING, 0)
    waiting = job.tasks_total - job.next_task + job.counts.get(TaskState.PENDING, 0)
    failed = job.tasks_total - done - running - assigned - waiting
    parts = [
        f"{count} {how}"
        for count, how in (
            (done, "done"),
            (running, "running"),
            (assigned, "being started"),
            (waiting, "waiting"),
            (failed, "ended otherwise"),
        )
        if count
    ]
    tasks = "1 task" if job.tasks_total == 1 else f"{job.tasks_total} tasks"
    return f"{tasks}: {', '.join(parts)}"
