"""The summary of a job or a session that runs or has ended, in a few sentences."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.cli.ends import how_ended
from muster.cli.follow.exit_code import first_failed
from muster.cli.follow.progress import counted
from muster.cli.screen import plain
from muster.cli.words import clock_time, duration, signal_name
from muster.core.states import JobState, SessionStatus, TaskState

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.work import JobView, KernelView, SessionView, TaskDetail

LOOKED_AT = 5
"""Running tasks whose agents are looked up."""
NAMED = 3
"""Agents that are named."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The verdict and more lines. ``verdict`` replaces the controller's, unless it is empty."""

    verdict: str = ""
    details: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


NO_SUMMARY = Summary()


def summary_of(client: "Client", id_: str) -> Summary:
    """Since when and where a job or a session runs, or how and when it ended; ``NO_SUMMARY`` if it
    waits, and for all else.

    Raises:
        MusterError: the work cannot be read.
    """
    if id_.startswith("ses-"):
        session = client.session(id_)
        look = (f"muster show {id_}", f"muster history {id_}")
        if session.status is SessionStatus.RUNNING:
            return Summary(details=(_runs("it", session, _agents(session.kernels)),), commands=look)
        return Summary(_ended("it", session), commands=look) if session.ended else NO_SUMMARY
    if not id_.startswith("job-"):
        return NO_SUMMARY
    job = client.job(id_)
    if job.ended:
        return _of_ended(client, job)
    if job.state is not JobState.RUNNING or not job.counts.get(TaskState.RUNNING):
        return NO_SUMMARY
    running = client.tasks(job.id, state=TaskState.RUNNING, limit=LOOKED_AT)
    agents = _agents(task.attempts[-1] for task in running.items if task.attempts)
    if agents and running.total > len(running.items):
        agents += " (its first tasks)"
    return Summary(
        details=(_runs(job.name, job, agents),), commands=(f"muster logs -f {job.name}",)
    )


def _of_ended(client: "Client", job: "JobView") -> Summary:
    verdict = _ended(job.name, job)
    if job.tasks_total > 1:
        verdict += f": {counted(job).plain}"
    failed = first_failed(client, job)
    details = () if failed is None else (_of_failed(failed),)
    history = f"muster history {job.name}"
    if job.started_at is None:
        return Summary(verdict, details, (history,))
    part = f"/{failed.index}" if failed is not None and job.tasks_total > 1 else ""
    return Summary(verdict, details, (f"muster logs {job.name}{part}", history))


def _runs(name: str, work: "JobView | SessionView", agents: str) -> str:
    where = f" on {agents}" if agents else ""
    if work.started_at is None:
        return f"{name} runs{where}"
    now = time.time()
    since = f"since {clock_time(work.started_at, now)} ({duration(now - work.started_at)})"
    return f"{name} runs {since}{where}"


def _ended(name: str, work: "JobView | SessionView") -> str:
    if work.finished_at is None:
        return ""
    at = f"{name} ended at {clock_time(work.finished_at, time.time())}"
    if work.started_at is None:
        return f"{at} without a start"
    return f"{at} after {duration(work.finished_at - work.started_at)}"


def _of_failed(task: "TaskDetail") -> str:
    """The agent, the attempt and the reason of a task's end."""
    said = f"task {task.index} failed"
    how = how_ended(task.reason, task.exit_code)
    if task.attempts:
        last = task.attempts[-1]
        said += f" on {last.agent}" if last.agent else ""
        said += f" in attempt {last.attempt}" if last.attempt > 1 else ""
        said += f" ({signal_name(last.signal)})" if last.signal else ""
        how = how or how_ended(None, last.exit_code)
    return plain(f"{said}: {how}" if how else said)


def _agents(kernels: "Iterable[KernelView]") -> str:
    """The names of the kernels' agents: all of them if they are few."""
    names = list(dict.fromkeys(kernel.agent for kernel in kernels if kernel.agent))
    if len(names) <= NAMED:
        return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
