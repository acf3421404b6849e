"""Why something does not start, or what it is doing: the answer of `muster why`.

Asked of the live state, so it is never out of date; the deciding code itself answers.
"""

from dataclasses import asdict, dataclass
from typing import Any

from muster.control.session.board import Board, workload
from muster.control.session.schedule import cleaning_up
from muster.core.errors import NotFound
from muster.core.ids import JobId, SessionId
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.states import PLACED_SESSION, AgentStatus, SessionStatus, TaskState
from muster.scheduling.explain import explain
from muster.store.live import Live
from muster.store.records import Job, Kernel, Session


@dataclass(frozen=True, slots=True)
class Told:
    """A reason as a person reads it."""

    code: str
    kind: str
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Why:
    """One answer. ``subject`` is the id asked about, ``status`` its own, ``verdict`` a sentence.

    ``reasons`` are all that hold; ``placement`` is what scheduling says of the session that waits
    longest (``scheduling.explain.Explanation``), None where placement is not the question.
    """

    subject: str
    status: str
    verdict: str
    reasons: tuple[Told, ...]
    placement: dict[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def told(why: Reason) -> Told:
    return Told(why.code.value, why.kind.value, why.sentence(), why.remedy())


def explain_job(live: Live, board: Board, id_: JobId, now: float) -> Why:
    """Why a live job is not done: the reasons of its first waiting session, and what its tasks do.

    Raises:
        NotFound: the job is not live.
    """
    job = live.jobs.get(id_)
    if job is None:
        raise NotFound(f"there is no live job {id_}")
    waiting = _first_waiting(live, board, job)
    reasons: list[Reason] = []
    placement = None
    if waiting is not None:
        found, placement = _of_session(live, board, waiting, now)
        reasons += found
    for task in job.waiting.values():
        if task.kernel_id is not None and task.kernel_id in live.rows_of:
            reasons.append(cleaning_up(task.kernel_id, live))
            break
    queued = board.candidates.get(job.id, 0)
    to_come = job.tasks_total - job.next_task
    if to_come:
        reasons.append(reason(ReasonCode.NOT_YET_CANDIDATE, waiting=to_come, candidates=queued))
    return Why(job.id, job.status, _job_verdict(job), tuple(map(told, reasons)), placement)


def explain_session(live: Live, board: Board, id_: SessionId, now: float) -> Why:
    """Why a live session is where it is.

    Raises:
        NotFound: the session is not live.
    """
    session = live.sessions.get(id_)
    if session is None:
        raise NotFound(f"there is no live session {id_}")
    reasons, placement = _of_session(live, board, session, now)
    verdict = f"{session.status.lower()} for {now - session.status_changed_at:.0f} s"
    return Why(session.id, session.status, verdict, tuple(map(told, reasons)), placement)


def _first_waiting(live: Live, board: Board, job: Job) -> Session | None:
    """The job's first session that does not run yet."""
    for session, _ in board.groups[job.group].pending.values():
        if session.job is job:
            return session
    for task in job.tasks.values():
        session_of_task = live.sessions.get(task.session_id) if task.session_id else None
        if session_of_task is not None and session_of_task.status is not SessionStatus.RUNNING:
            return session_of_task
    return None


def _of_session(
    live: Live, board: Board, session: Session, now: float
) -> tuple[list[Reason], dict[str, Any] | None]:
    if session.status is SessionStatus.PENDING:
        return _pending(live, board, session, now)
    reasons = [why for kernel in session.kernels if (why := _of_kernel(live, kernel, now))]
    if session.retry_at > now:
        reasons.append(reason(ReasonCode.RETRY_BACKOFF, seconds=round(session.retry_at - now, 1)))
    if session.reason is not None:
        reasons.append(session.reason)
    return list(dict.fromkeys(reasons)), None


def _pending(
    live: Live, board: Board, session: Session, now: float
) -> tuple[list[Reason], dict[str, Any] | None]:
    reasons = []
    for kernel in session.kernels:
        if kernel.id in live.rows_of:
            reasons.append(cleaning_up(kernel.id, live))
            break
    if session.reason is not None:
        reasons.append(session.reason)
    group = board.groups[session.group]
    queue = [waiting for _, waiting in group.pending.values()]
    found = explain(workload(session), group.snapshot, group.policy, queue, now)
    return [*found.reasons, *reasons], found.as_dict()


def _of_kernel(live: Live, kernel: Kernel, now: float) -> Reason | None:
    """What holds a placed kernel up, if anything does."""
    agent = live.agents.get(kernel.agent_id) if kernel.agent_id else None
    if agent is None:
        return kernel.failure
    if agent.status is AgentStatus.UNREACHABLE:
        silent_s = round(now - agent.seen_at)
        return reason(ReasonCode.AGENT_UNREACHABLE, agent=agent.name, silent_s=silent_s)
    row = live.ledger.get((kernel.id, kernel.generation))
    if row is not None and not row.charged and kernel.session.status in PLACED_SESSION:
        return reason(ReasonCode.BEHIND_SHAPE, agent=agent.name)
    return kernel.failure


def _job_verdict(job: Job) -> str:
    done = job.counts.get(TaskState.SUCCEEDED, 0)
    running = job.counts.get(TaskState.RUNNING, 0)
    assigned = job.counts.get(TaskState.ASSIGNED, 0) + job.counts.get(TaskState.BUILDING, 0)
    waiting = job.tasks_total - job.next_task + job.counts.get(TaskState.PENDING, 0)
    failed = job.tasks_total - done - running - assigned - waiting
    parts = [
        f"{count} {what}"
        for count, what in (
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
