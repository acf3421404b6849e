"""The end of a job, in one sentence."""

from typing import TYPE_CHECKING

from muster.cli.streams import Line, plain, state_word
from muster.cli.words import count, duration, sentence_of
from muster.core.states import TASK_TABLE, JobState, TaskState
from muster.core.views.work import WorkStanding

if TYPE_CHECKING:
    from muster.core.views.base import ReasonView
    from muster.core.views.work import JobView


def done(job: "JobView") -> int:
    """How many of the job's tasks have ended, in whatever way."""
    return sum(number for state, number in job.counts.items() if state in TASK_TABLE.terminal)


def counted(job: "JobView", *, stopped: bool = False) -> Line:
    """The job's tasks by state, as in 120 succeeded, 12 running, 68 pending.

    Args:
        stopped: whether tasks that are KILLED are called stopped, as people would.
    """
    words = {TaskState.KILLED: WorkStanding.STOPPED} if stopped else {}
    line = Line()
    for state in TaskState:
        if number := job.counts.get(state, 0):
            line.append(f"{', ' if line.parts else ''}{number:,} ")
            line.append(state_word(words.get(state, state)))
    return line


def conclusion(job: "JobView", why: "ReasonView | None") -> Line:
    """The final sentence, with the reason of the end."""
    took = duration((job.finished_at or job.state_changed_at) - job.submitted_at)
    sentence = Line(f"{job.name} ", state_word(job.standing))
    if job.tasks_total > 1:
        sentence.append(f" ({done(job):,} of {count(job.tasks_total, 'task')} ended")
        if job.state is not JobState.SUCCEEDED:
            sentence.append(": ")
            sentence.append(counted(job, stopped=True))
        sentence.append(")")
    sentence.append(f" after {took}")
    if why is not None:
        sentence.append(f": {plain(sentence_of(why))}")
        if why.remedy:
            sentence.append(f". {plain(why.remedy)}")
    for each in job.remarks:
        sentence.append(f"; {plain(each.sentence)}")
    return sentence
