"""The texts of notices. Pure."""

from collections.abc import Sequence

from muster.control.notice.entity import Message, Tone
from muster.control.session.must_leave import Departure
from muster.core.reasons import ENDED_WELL, Reason
from muster.core.states import JobState, TaskState
from muster.core.text import count, duration, made_text, printable, utc_moment
from muster.store.queries.jobs import all_counts
from muster.store.records import Agent, Job, Kernel, Session

MAX_BODY = 2_000
"""Characters of a text: few enough for every service."""

MAX_NAMED = 20
"""Tasks that a notice names."""

TRIAL = Message("Muster: a trial", "This channel gets notices of this cluster's work.", Tone.INFO)


def job_message(job: Job) -> Message:
    """The message that a job has ended, and how."""
    counts = all_counts(job.counts, job.tasks_total, job.next_task, ended=True)
    told = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    failed = counts.get(TaskState.FAILED, 0) + counts.get(TaskState.WORKER_FAILED, 0)
    lines = [
        f"job {job.name} ({job.id}) of {job.owner}: {job.status}",
        _sentence(job.reason),
        f"tasks: {told}" if job.tasks_total > 1 else "",
        f"tasks failed: {failed:,} of {job.tasks_total:,}"
        if failed and job.tasks_total > 1
        else "",
        *(f"remark: {each.reason().sentence()}" for each in job.remarks),
        _times(job.submitted_at, job.started_at, job.finished_at),
        f"more: muster show {job.id}",
    ]
    tone = Tone.SUCCESS if job.status is JobState.SUCCEEDED else Tone.FAILURE
    return _message(f"job {job.name}: {job.status}", lines, tone)


def session_message(session: Session) -> Message:
    """The message that a session has ended, and how."""
    name = session.name or session.id
    success = session.reason is not None and session.reason.code in ENDED_WELL
    how = "ended well" if success else str(session.status)
    lines = [
        f"session {name} ({session.id}) of {session.owner}: {how}",
        _sentence(session.reason),
        _times(session.created_at, session.started_at, session.finished_at),
        f"more: muster show {session.id}",
    ]
    tone = Tone.SUCCESS if success else Tone.FAILURE
    return _message(f"session {name}: {how}", lines, tone)


def departure_message(
    whole: Job | Session, kernels: Sequence[Kernel], agent: Agent, departure: Departure, now: float
) -> Message:
    """The message that work has to leave a machine, or need not leave it any more.

    Args:
        whole: a job, or a session without a job.
        kernels: those of it that are on the machine.
    """
    if isinstance(whole, Job):
        kind, name, what = "job", whole.name, _tasks(kernels)
        follows = "it runs again then, on another machine where there is one"
    else:
        kind, name, what = "session", whole.name or whole.id, count(len(kernels), "kernel")
        follows = "it ends then, if it has started: hand it in again"
    lines = [
        f"{kind} {name} ({whole.id}) of {whole.owner}: {what} on agent {agent.name}",
        _sentence(departure.why),
        "" if departure.leave_by is None else f"what follows: {follows}",
        f"more: muster why {whole.id}",
    ]
    return _message(f"{kind} {name}: {_leaves(agent, departure, now)}", lines, Tone.INFO)


def _leaves(agent: Agent, departure: Departure, now: float) -> str:
    if departure.leave_by is None:
        return f"need not leave agent {agent.name} any more"
    if departure.leave_by <= now:
        return f"leaves agent {agent.name} now"
    return f"has to leave agent {agent.name} by {utc_moment(departure.leave_by)}"


def _tasks(kernels: Sequence[Kernel]) -> str:
    """The number of a job's tasks, and which."""
    indexes = sorted(kernel.task_index or 0 for kernel in kernels)
    named = ", ".join(map(str, indexes[:MAX_NAMED]))
    more = ", …" if len(indexes) > MAX_NAMED else ""
    return f"{count(len(indexes), 'task')} ({named}{more})"


def _message(title: str, lines: list[str], tone: Tone) -> Message:
    body = "\n".join(line for line in lines if line)
    return Message(title, printable(made_text(body, MAX_BODY)), tone)


def _sentence(reason: Reason | None) -> str:
    return "" if reason is None else f"reason: {reason.sentence()}"


def _times(submitted: float, started: float | None, finished: float | None) -> str:
    finished = submitted if finished is None else finished
    if started is None:
        return f"waited {duration(finished - submitted)}, never started"
    return f"waited {duration(started - submitted)}, ran {duration(finished - started)}"
