"""When waiting work could start, by its start time and by the work on which it depends."""

import math
from collections.abc import Iterable

from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import has_begun, waits_anew
from muster.store.entity import Record
from muster.store.live import Live
from muster.store.records import Job, Session


def eligible_at(cluster: ClusterState, session: Session) -> float:
    """The time from which the session could have started, had there been room: the session was
    handed in, its start time had come, its dependencies were met, and nobody held its job.
    Infinity while a dependency is not met, or the job is held.

    A job's later attempts and later tasks count from the same time, unless ``waits_anew``; those of
    a job that waited for a deployment count from the start of the first.
    """
    released_at = 0.0
    if session.job is not None:
        if session.job.held is not None:
            return math.inf
        released_at = session.job.released_at or 0.0
    if waits_anew(session):
        return max(session.queued_at, released_at)
    workload, job, met_at = cluster.workload(session), session.job, 0.0
    handed_in = session.created_at if job is None else job.submitted_at
    if job is not None and job.started_at is not None and has_begun(job):
        met_at = job.started_at
    elif workload.after:
        met_at = cluster.dependencies.met_at(session.owner, workload.after)
    return max(handed_in, released_at, workload.not_before or 0.0, met_at)


def take_unblocked(cluster: ClusterState, live: Live) -> list[Record]:
    """The waiting sessions and deployments whose dependencies have progressed since the last call:
    their waiting times have to be judged anew."""
    news = cluster.dependencies.take_news()
    if not news:
        return []
    sessions = [
        live.sessions[waiting.id]
        for state in cluster.groups.values()
        for members in state.queue.classes
        if any(each.on in news for each in members.workload.after)
        for waiting in members
    ]
    return [*sessions, *cluster.deployments.waiting_for(news)]


def job_waits_anew(cluster: ClusterState, job: Job, attempts: Iterable[Session]) -> list[Session]:
    """Have those of a job's attempts that wait do so as the job says now; the answer is these."""
    cluster.hooks.forget_job(job.id)
    waiting = [each for each in attempts if cluster.groups[each.group].waits(each.id)]
    for session in waiting:
        cluster.wait_anew(session)
    return waiting
