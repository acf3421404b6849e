"""The notice of a recovery that FAILED: which job, which machines, what was found, and what to
do."""

from collections.abc import Sequence

from muster.control.engine.work import Work
from muster.control.notice.ends import Writer, told_subjects
from muster.control.notice.entity import Message
from muster.control.notice.message import job_message
from muster.control.recovery.entity import Recovery
from muster.control.recovery.rounds import Round
from muster.core.text import count, duration, made_text
from muster.store.records import Job

MAX_NAMED = 8
"""Machines that a notice names."""
MAX_BODY = 4_000
"""Characters of a notice's text."""


class Teller:
    """Makes the notices of a job that failed though it was to recover, before the job's own handler
    would: whoever is told gets one notice."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def tell(self, job: Job, recovery: Recovery, work: Work) -> None:
        """Tell the job's channels. Where no attempt led to a check, nothing is to be told beyond
        the end of the job."""
        told = work.once(told_subjects)
        if not recovery.kept or job.id in told:
            return
        told.add(job.id)
        message = failure_message(job, recovery, work.now)
        for channel in job.spec.notify:
            if channel.wants(success=False):
                self._writer.write(work, channel, message, job.owner, job.id)


def failure_message(job: Job, recovery: Recovery, now: float) -> Message:
    """The message that a job was given up."""
    last = recovery.kept[-1]
    of_job = job_message(job)
    why = recovery.reason
    lines = [
        of_job.body,
        "" if why is None else f"recovery: {why.sentence()}",
        f"began with: {last.why.reason().sentence()}",
        *_found(last),
        _cost(recovery, now),
        "" if why is None or not why.remedy() else f"what to do: {why.remedy()}",
        f"more: muster recoveries show {recovery.id}",
    ]
    body = made_text("\n".join(line for line in lines if line), MAX_BODY)
    return Message(_title(job, last), body, of_job.tone)


def _title(job: Job, last: Round) -> str:
    names = [agent.name for agent in last.agents if agent.is_fault]
    machines = f", {_some(names)} at fault" if names else ""
    return f"job {job.name}: {job.status}{machines}"


def _found(last: Round) -> list[str]:
    lines = [
        f"agent {agent.name}: {agent.result}" + (f", {agent.said}" if agent.said else "")
        for agent in last.agents[:MAX_NAMED]
    ]
    more = len(last.agents) - len(lines)
    return [*lines, *([f"and {count(more, 'more agent')}"] if more > 0 else [])]


def _cost(recovery: Recovery, now: float) -> str:
    restarts = count(recovery.restarts, "restart")
    hours = recovery.lost_gpu_s / 3600
    lasted = duration(now - recovery.created_at)
    lost = f", {hours:.1f} GPU-hours lost" if hours else ""
    return f"recovered {count(recovery.rounds, 'time')}, {restarts}{lost}, in {lasted}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
