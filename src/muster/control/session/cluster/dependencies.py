"""The progress of work on which other work depends (``after`` in a spec)."""

import math
from collections.abc import Iterable

from muster.control.session.cluster.known_deployments import UNKNOWN, KnownDeployments
from muster.core.ids import IdKind, JobId, KernelId, SessionId
from muster.core.owner import Owner
from muster.core.reasons import ReasonCode
from muster.core.specs import Dependency, DependencyCondition
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState
from muster.scheduling.policy.validators import is_met
from muster.scheduling.workload import DependencyProgress, DependencyState
from muster.store.live import Live
from muster.store.records import Job, Session


class DependencyTracker:
    """Follows the work on which other work depends, as long as other work depends on it.

    Work counts as running until none of its processes can be left: the agents have confirmed the
    end of the processes, or are proven gone. Dependent work may need files or ports that such
    processes hold open.

    Attributes:
        deployments: the deployments; none before ``know``.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self.deployments = KnownDeployments()
        self._progress: dict[str, DependencyProgress] = {}
        self._waiting: dict[str, int] = {}  # how much work depends on the work
        # By ended work, its kernels that may still have processes.
        self._leaving: dict[str, set[KernelId]] = {}
        self._news: set[str] = set()  # work that has come further since ``take_news``
        records: list[Job | Session] = [*live.jobs.values(), *live.sessions.values()]
        for record in records:
            for id_ in _waits_for(record):
                self.follow(id_, self.progress_now(id_))

    def know(self, deployments: KnownDeployments) -> None:
        """Have deployments be known, those too that are followed already."""
        self.deployments = deployments
        for id_ in self._progress:
            if IdKind.DEPLOYMENT.begins(id_):
                self._progress[id_] = deployments.progress(id_)

    def find(self, owner: Owner, ref: str) -> tuple[str, DependencyProgress] | None:
        """The id and the progress of the owner's live work that has ``ref`` as its name or id."""
        job = self._live.job_names.get((owner, ref)) or self._live.jobs.get(JobId(ref))
        if job is not None and job.owner == owner:
            return job.id, _of_job(job)
        named = self._live.session_names.get((owner, ref))
        session = named or self._live.sessions.get(SessionId(ref))
        if session is not None and session.owner == owner and session.job is None:
            return session.id, _of_session(session)
        return None

    def follow(self, id_: str, progress: DependencyProgress) -> None:
        """Count one more that depends on the work ``id_``, whose progress is given."""
        if id_ not in self._progress:
            self._progress[id_] = progress
            self._look_for_rest(id_)
        self._waiting[id_] = self._waiting.get(id_, 0) + 1

    def ended(self, record: Job | Session) -> None:
        """Drop the dependencies of a job or session that has ended."""
        self.follow_no_more(_waits_for(record))

    def follow_no_more(self, ids: Iterable[str]) -> None:
        """Count one less that depends on each of these."""
        for id_ in ids:
            self._waiting[id_] -= 1
            if not self._waiting[id_]:
                del self._waiting[id_], self._progress[id_]
                self._leaving.pop(id_, None)
                self._news.discard(id_)

    def changed(self, record: Job | Session) -> bool:
        """Take note of a change of the record; whether its DependencyState has changed, so that
        dependent work has to be looked at."""
        if record.id not in self._progress:
            return False
        progress = _of_job(record) if isinstance(record, Job) else _of_session(record)
        return self._progressed(record.id, progress)

    def deployment_changed(self, id_: str) -> bool:
        """Take note of a change of the deployment; whether its DependencyState has changed."""
        if id_ not in self._progress:
            return False
        return self._progressed(id_, self.deployments.progress(id_))

    def _progressed(self, id_: str, progress: DependencyProgress) -> bool:
        before = self._progress[id_]
        self._progress[id_] = progress
        if progress.state is before.state:
            return False
        self._look_for_rest(id_)
        self._news.add(id_)
        return True

    def released(self, kernel: KernelId) -> bool:
        """Note that no process of the kernel is left; the answer is whether work that is followed
        has ended with it."""
        if not self._leaving:
            return False
        gone = [id_ for id_, kernels in self._leaving.items() if kernels == {kernel}]
        for kernels in self._leaving.values():
            kernels.discard(kernel)
        for id_ in gone:
            del self._leaving[id_]
        self._news.update(gone)
        return bool(gone)

    def state(self, owner: Owner, dependency: Dependency) -> DependencyState:
        """How far the work that the dependency names has come."""
        if dependency.condition in _AFTER_ALL and dependency.on in self._leaving:
            return DependencyState.RUNNING
        return self._progress.get(dependency.on, UNKNOWN).state

    def met_at(self, owner: Owner, after: Iterable[Dependency]) -> float:
        """The time at which the last of the dependencies was met; infinity while one is not met."""
        met_at = 0.0
        for each in after:
            if not is_met(each, self.state(owner, each)):
                return math.inf
            met_at = max(met_at, self._progress[each.on].since)
        return met_at

    def take_news(self) -> set[str]:
        """The ids of work that has come further since the last call."""
        news, self._news = self._news, set()
        return news

    def _look_for_rest(self, id_: str) -> None:
        """If the work has ended, note those of its kernels that may still have processes."""
        if self._progress[id_].state not in _ENDED:
            return
        left = {kernel for kernel in self._live.allocations_of if self._live.work_of(kernel) == id_}
        if left:
            self._leaving[id_] = left

    def progress_now(self, id_: str) -> DependencyProgress:
        """The progress of work that other live work has in its spec."""
        if IdKind.DEPLOYMENT.begins(id_):
            return self.deployments.progress(id_)
        job, session = self._live.jobs.get(JobId(id_)), self._live.sessions.get(SessionId(id_))
        if job is not None:
            return _of_job(job)
        if session is not None:
            return _of_session(session)
        return self._live.ended_dependencies.get(id_, UNKNOWN)


_AFTER_ALL = frozenset({DependencyCondition.ENDED, DependencyCondition.FAILED})
"""The conditions that are met once no process of the other work is left."""
_ENDED = frozenset({DependencyState.SUCCEEDED, DependencyState.ENDED_OTHERWISE})


def _waits_for(record: Job | Session) -> set[str]:
    """The ids of the work on which a job or session depends; the sessions of a job have no
    dependencies of their own."""
    return {each.on for each in record.spec.after} if record.spec is not None else set()


def _of_job(job: Job) -> DependencyProgress:
    """The progress of a job. It runs once a task of it runs; a task that is being started is not
    enough."""
    if job.status in JOB_TABLE.terminal:
        well = job.status is JobState.SUCCEEDED
        return _ended(well, job.finished_at or job.status_changed_at)
    if job.started_at is not None:
        return DependencyProgress(DependencyState.RUNNING, job.started_at)
    return DependencyProgress(DependencyState.WAITING, job.submitted_at)


def _of_session(session: Session) -> DependencyProgress:
    """The progress of a session. It has succeeded only if it ended by itself: a stopped session has
    not, whatever its exit code."""
    if session.status in SESSION_TABLE.terminal:
        by_itself = session.reason is not None and session.reason.code is ReasonCode.COMPLETED
        well = by_itself and all(kernel.exit_code == 0 for kernel in session.kernels)
        well = well or _ended_with_leader(session)
        return _ended(well, session.finished_at or session.status_changed_at)
    if session.started_at is not None:
        return DependencyProgress(DependencyState.RUNNING, session.started_at)
    return DependencyProgress(DependencyState.WAITING, session.created_at)


def _ended_with_leader(session: Session) -> bool:
    return session.reason is not None and session.reason.code is ReasonCode.LEADER_ENDED


def _ended(well: bool, at: float) -> DependencyProgress:
    return DependencyProgress(
        DependencyState.SUCCEEDED if well else DependencyState.ENDED_OTHERWISE, at
    )
