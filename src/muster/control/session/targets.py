"""How far work has come that other work waits for (``after`` in a spec)."""

import math
from collections.abc import Iterable

from muster.core.ids import JobId, KernelId, SessionId
from muster.core.owner import Owner
from muster.core.reasons import ReasonCode
from muster.core.specs import Dependency, DependencyCondition
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState
from muster.scheduling.validators import is_met
from muster.scheduling.workload import Progress, TargetState
from muster.store.live import Live
from muster.store.records import Job, Session

_UNKNOWN = Progress(TargetState.MISSING, math.inf)


class Targets:
    """Follows what is waited for, by id of the job or session, for as long as it is.

    Work counts as running until none of its processes can be left: its agents have confirmed that,
    or are proven gone. Whoever waits for its end may need what they still hold open.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self._progress: dict[str, Progress] = {}
        self._waiting: dict[str, int] = {}  # jobs and sessions that name it
        self._leaving: dict[str, set[KernelId]] = {}  # its kernels that may still have processes
        self._news: set[str] = set()  # what has come further since ``take_news``
        records: list[Job | Session] = [*live.jobs.values(), *live.sessions.values()]
        for record in records:
            for id_ in _waits_for(record):
                self.follow(id_, self._progress_now(id_))

    def find(self, owner: Owner, ref: str) -> tuple[str, Progress] | None:
        """Live work of the owner's by name or id, with how far it has come."""
        job = self._live.job_names.get((owner, ref)) or self._live.jobs.get(JobId(ref))
        if job is not None and job.owner == owner:
            return job.id, _of_job(job)
        named = self._live.session_names.get((owner, ref))
        session = named or self._live.sessions.get(SessionId(ref))
        if session is not None and session.owner == owner and session.job is None:
            return session.id, _of_session(session)
        return None

    def follow(self, id_: str, progress: Progress) -> None:
        """A job or session more waits for that work, which has come so far."""
        if id_ not in self._progress:
            self._progress[id_] = progress
            self._look_for_rest(id_)
        self._waiting[id_] = self._waiting.get(id_, 0) + 1

    def ended(self, record: Job | Session) -> None:
        """It waits for nothing any more."""
        for id_ in _waits_for(record):
            self._waiting[id_] -= 1
            if not self._waiting[id_]:
                del self._waiting[id_], self._progress[id_]
                self._leaving.pop(id_, None)
                self._news.discard(id_)

    def changed(self, record: Job | Session) -> bool:
        """Whether it has come further, in the eyes of those who wait for it."""
        before = self._progress.get(record.id)
        if before is None:
            return False
        progress = _of_job(record) if isinstance(record, Job) else _of_session(record)
        self._progress[record.id] = progress
        if progress.state is before.state:
            return False
        self._look_for_rest(record.id)
        self._news.add(record.id)
        return True

    def released(self, kernel: KernelId) -> bool:
        """No process of the kernel is left; whether that was the last of some work's."""
        if not self._leaving:
            return False
        gone = [id_ for id_, kernels in self._leaving.items() if kernels == {kernel}]
        for kernels in self._leaving.values():
            kernels.discard(kernel)
        for id_ in gone:
            del self._leaving[id_]
        self._news.update(gone)
        return bool(gone)

    def state(self, owner: Owner, dependency: Dependency) -> TargetState:
        """How far what the dependency names has come."""
        if dependency.condition is DependencyCondition.ENDED and dependency.on in self._leaving:
            return TargetState.RUNNING
        return self._progress.get(dependency.on, _UNKNOWN).state

    def met_at(self, owner: Owner, after: Iterable[Dependency]) -> float:
        """When the last of the dependencies was met; never, while one is not."""
        met_at = 0.0
        for each in after:
            if not is_met(each, self.state(owner, each)):
                return math.inf
            met_at = max(met_at, self._progress[each.on].since)
        return met_at

    def take_news(self) -> set[str]:
        """What has come further since the last call."""
        news, self._news = self._news, set()
        return news

    def _look_for_rest(self, id_: str) -> None:
        """The work may just have ended: whatever may be left of it."""
        if self._progress[id_].state not in _ENDED:
            return
        left = {kernel for kernel in self._live.rows_of if self._live.work_of(kernel) == id_}
        if left:
            self._leaving[id_] = left

    def _progress_now(self, id_: str) -> Progress:
        job, session = self._live.jobs.get(JobId(id_)), self._live.sessions.get(SessionId(id_))
        if job is not None:
            return _of_job(job)
        if session is not None:
            return _of_session(session)
        return self._live.ended_targets.get(id_, _UNKNOWN)


_ENDED = frozenset({TargetState.SUCCEEDED, TargetState.ENDED_OTHERWISE})


def _waits_for(record: Job | Session) -> set[str]:
    """The ids that it names itself; a job's sessions name none."""
    return {each.on for each in record.spec.after} if record.spec is not None else set()


def _of_job(job: Job) -> Progress:
    """A job runs once a task of it does; that one is being started is not enough."""
    if job.status in JOB_TABLE.terminal:
        well = job.status is JobState.SUCCEEDED
        return _ended(well, job.finished_at or job.status_changed_at)
    if job.started_at is not None:
        return Progress(TargetState.RUNNING, job.started_at)
    return Progress(TargetState.WAITING, job.submitted_at)


def _of_session(session: Session) -> Progress:
    """A session has succeeded if it came to its end by itself: one that was stopped has not,
    whatever its programs made of that."""
    if session.status in SESSION_TABLE.terminal:
        by_itself = session.reason is not None and session.reason.code is ReasonCode.COMPLETED
        well = by_itself and all(kernel.exit_code == 0 for kernel in session.kernels)
        return _ended(well, session.finished_at or session.status_changed_at)
    if session.started_at is not None:
        return Progress(TargetState.RUNNING, session.started_at)
    return Progress(TargetState.WAITING, session.created_at)


def _ended(well: bool, at: float) -> Progress:
    return Progress(TargetState.SUCCEEDED if well else TargetState.ENDED_OTHERWISE, at)
