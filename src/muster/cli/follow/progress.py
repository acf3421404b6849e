"""The progress of a job, in one line that rich draws."""

from typing import TYPE_CHECKING

from rich.text import Text

from muster.cli.follow.conclusion import done
from muster.cli.screen import status
from muster.cli.streams import plain
from muster.cli.words import duration
from muster.core.states.task import COLOURS, TASK_TABLE, TaskState

if TYPE_CHECKING:
    from muster.core.views.work import JobView

BAR = 24
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ACTIVE = (TaskState.RUNNING, TaskState.BUILDING, TaskState.ASSIGNED)
_FAILED = (TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.UNSCHEDULABLE)


def spinner(tick: int) -> Text:
    """The sign that a line is alive; ``tick`` counts up and moves it."""
    return Text(_SPINNER[tick % len(_SPINNER)], style="bold")


def progress(job: "JobView", elapsed_s: float, reason: str, tick: int) -> Text:
    """The line that is shown while a job is followed.

    Args:
        elapsed_s: since following began.
        reason: why the job waits, if known.
        tick: counts up, and moves the sign that the line is alive.
    """
    parts: list[Text | str]
    if job.tasks_total == 1:
        parts = [Text.assemble(spinner(tick), f" {job.name} ", status(job.standing))]
    else:
        parts = [Text.assemble(f"{job.name} ", bar(job), f" {done(job):,}/{job.tasks_total:,}")]
        parts += [
            Text.assemble(f"{number:,} ", status(state))
            for state in (*_ACTIVE, *_FAILED)
            if (number := job.counts.get(state, 0))
        ]
    if elapsed_s >= 1:
        parts.append(duration(int(elapsed_s)))
    if reason:
        parts.append(plain(reason))
    return Text(" · ").join(Text(part) if isinstance(part, str) else part for part in parts)


def bar(job: "JobView", width: int = BAR) -> Text:
    """The job's tasks as one bar in the colours of their states, ended tasks first."""
    ended = [state for state in TaskState if state in TASK_TABLE.terminal]
    drawn = Text()
    tasks = 0
    for state in (*ended, *_ACTIVE):
        tasks += job.counts.get(state, 0)
        # Rounded down, so that the bar is full only when all tasks have ended.
        cells = width * tasks // job.tasks_total - len(drawn)
        drawn.append("━" * cells, style=COLOURS[state])
    drawn.append("─" * (width - len(drawn)), style="dim")
    return drawn
