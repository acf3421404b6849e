"""How far work has come that other work waits for (``after`` in a spec)."""

from muster.core.ids import JobId, SessionId
from muster.core.owner import Owner
from muster.core.specs import Dependency
from muster.core.states import SESSION_TABLE, JobState, SessionStatus
from muster.scheduling.workload import TargetState
from muster.store.live import Live
from muster.store.records import Job, Session


class Targets:
    """Follows what is waited for, by id of the job or session, for as long as it is."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._states: dict[str, TargetState] = {}
        self._waiting: dict[str, int] = {}  # jobs and sessions that name it
        records: list[Job | Session] = [*live.jobs.values(), *live.sessions.values()]
        for record in records:
            for id_ in _waits_for(record):
                self.follow(id_, self._state_now(id_))

    def find(self, owner: Owner, ref: str) -> tuple[str, TargetState] | None:
        """Live work of the owner's by name or id, with how far it has come."""
        job = self._live.job_names.get((owner, ref)) or self._live.jobs.get(JobId(ref))
        if job is not None and job.owner == owner:
            return job.id, _of_job(job)
        named = self._live.session_names.get((owner, ref))
        session = named or self._live.sessions.get(SessionId(ref))
        if session is not None and session.owner == owner and session.job is None:
            return session.id, _of_session(session)
        return None

    def follow(self, id_: str, state: TargetState) -> None:
        """A job or session more waits for that work, which has come so far."""
        self._states.setdefault(id_, state)
        self._waiting[id_] = self._waiting.get(id_, 0) + 1

    def ended(self, record: Job | Session) -> None:
        """It waits for nothing any more."""
        for id_ in _waits_for(record):
            self._waiting[id_] -= 1
            if not self._waiting[id_]:
                del self._waiting[id_], self._states[id_]

    def changed(self, record: Job | Session) -> bool:
        """Whether it has come further, in the eyes of those who wait for it."""
        before = self._states.get(record.id)
        if before is None:
            return False
        state = _of_job(record) if isinstance(record, Job) else _of_session(record)
        self._states[record.id] = state
        return state is not before

    def state(self, owner: Owner, dependency: Dependency) -> TargetState:
        """How far what the dependency names has come."""
        return self._states.get(dependency.on, TargetState.MISSING)

    def _state_now(self, id_: str) -> TargetState:
        job, session = self._live.jobs.get(JobId(id_)), self._live.sessions.get(SessionId(id_))
        if job is not None:
            return _of_job(job)
        if session is not None:
            return _of_session(session)
        match self._live.ended_targets.get(id_):
            case None:
                return TargetState.MISSING
            case JobState.SUCCEEDED:
                return TargetState.SUCCEEDED
            case _:
                return TargetState.ENDED_OTHERWISE


def _waits_for(record: Job | Session) -> set[str]:
    """The ids that it names itself; a job's sessions name none."""
    return {each.on for each in record.spec.after} if record.spec is not None else set()


def _of_job(job: Job) -> TargetState:
    match job.status:
        case JobState.PENDING:
            return TargetState.WAITING
        case JobState.RUNNING:
            return TargetState.RUNNING
        case JobState.SUCCEEDED:
            return TargetState.SUCCEEDED
        case _:
            return TargetState.ENDED_OTHERWISE


def _of_session(session: Session) -> TargetState:
    if session.status in SESSION_TABLE.terminal:
        if all(kernel.exit_code == 0 for kernel in session.kernels):
            return TargetState.SUCCEEDED
        return TargetState.ENDED_OTHERWISE
    running = session.status in (SessionStatus.RUNNING, SessionStatus.TERMINATING)
    return TargetState.RUNNING if running else TargetState.WAITING
