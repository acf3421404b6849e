"""Explanations for missing output, where no process ran that could have written any."""

from typing import TYPE_CHECKING

from muster.core.views.work import JobDetail, SessionDetail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster.client import Client
    from muster.core.views.base import ReasonView
    from muster.core.views.work import KernelView


def why_no_output(client: "Client", found: JobDetail | SessionDetail, index: int) -> str | None:
    """A sentence that says that a task or kernel never started, and why; None if it started.

    Raises:
        MusterError: the work cannot be read any more.
    """
    runs: Sequence[KernelView]
    if isinstance(found, JobDetail):
        task = client.task(found.id, index)
        name, runs, reason = f"task {index}", task.attempts, task.reason
    else:
        now = client.session(found.id)
        kernel = now.kernels[index]
        name, runs, reason = f"kernel {index}", [kernel], kernel.reason or now.reason
    if any(run.started_at is not None for run in runs):
        return None
    return _never(name, reason)


def never_started(found: JobDetail | SessionDetail) -> str:
    """The sentence for all tasks of a job; for a waiting job it names the command that tells
    why."""
    if not found.ended:
        return f"no task has started yet: `muster why {found.name or found.id}` says why"
    return _never("the job", found.reason)


def _never(name: str, reason: "ReasonView | None") -> str:
    return f"{name} never started" + (f": {reason.sentence}" if reason else "")
