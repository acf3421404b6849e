"""Requests that hold jobs, whose tasks do not begin then, and release them.

A held job makes no more sessions (``ExpandJobs``), those that wait are refused by the validator
``Holds``, and those that stand by on agents are recalled. Tasks that have a place already begin,
and go on.
"""

from muster.control.engine.work import Work
from muster.control.job.derive import live_attempts
from muster.control.session.cluster.eligibility import job_waits_anew
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.start import recall
from muster.control.session.lifecycle import is_prefilled
from muster.core.errors import Conflict, NotFound
from muster.core.ids import JobId
from muster.core.owner import Principal
from muster.core.reasons import Reason
from muster.core.reasons.of_tasks import JobHeld, JobReleased
from muster.core.results import SchedulingResult
from muster.core.text import utc_moment
from muster.store.records import Job

PHASE = "Request"


def held_by(principal: Principal, now: float) -> JobHeld:
    """The reason of a job that the principal holds from now on."""
    by, moment = principal.owner.user, utc_moment(now)
    return JobHeld(by=by, moment=moment, by_admin=principal.is_admin)


def hold_job(work: Work, cluster: ClusterState, principal: Principal, id_: JobId) -> bool:
    """Hold a job; the answer is whether that changes anything. An admin's hold takes the place of
    its owner's.

    Raises:
        NotFound: no such live job of the principal's.
    """
    job = _job_of(work, principal, id_)
    held = held_by(principal, work.now)
    if isinstance(job.held, JobHeld) and job.held.by_admin >= held.by_admin:
        return False
    job.held = held
    _changed(work, cluster, job, held)
    for session in live_attempts(job, work.live):
        if is_prefilled(session, work):
            recall(session.kernels[0], work)
    return True


def release_job(work: Work, cluster: ClusterState, principal: Principal, id_: JobId) -> bool:
    """Release a job; the answer is whether it was held.

    Raises:
        NotFound: no such live job of the principal's.
        Conflict: an admin holds it, and the principal is none.
    """
    job = _job_of(work, principal, id_)
    if job.held is None:
        return False
    if isinstance(job.held, JobHeld) and job.held.by_admin and not principal.is_admin:
        raise Conflict(f"job {job.name} is {job.held.sentence()}, an admin: only admins release it")
    job.held, job.released_at = None, work.now
    _changed(work, cluster, job, JobReleased(by=principal.owner.user))
    return True


def _job_of(work: Work, principal: Principal, id_: JobId) -> Job:
    job = work.live.jobs.get(id_)
    if job is None or not principal.may_change(job.owner):
        raise NotFound(f"there is no live job {id_}")
    return job


def _changed(work: Work, cluster: ClusterState, job: Job, why: Reason) -> None:
    """Store and tell the change, and have the sessions that wait do so as the job says now."""
    work.unit.touch(job)
    work.unit.note(job, PHASE, SchedulingResult.SUCCESS, why)
    for session in job_waits_anew(cluster, job, live_attempts(job, work.live)):
        work.mark(session)
    work.mark(job)
