"""The exit code of a job that has ended, as a shell would have it."""

from typing import TYPE_CHECKING

from muster.cli.exits import ExitCode
from muster.core.exit_codes import of_task
from muster.core.states import JobState, TaskState

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.work import JobView, TaskDetail

_LOOKED_AT = 100
"""Tasks that are looked at to find out why a job was stopped."""


def first_failed(client: "Client", job: "JobView") -> "TaskDetail | None":
    """The failed task with the lowest index of a job that FAILED.

    Raises:
        MusterError: the job's tasks cannot be read.
    """
    if job.state is not JobState.FAILED:
        return None
    failed = client.tasks(job.id, state=TaskState.FAILED, limit=1).items
    return failed[0] if failed else None


def exit_code(client: "Client", job: "JobView", failed: "TaskDetail | None") -> int:
    """The code with which a command that waited for ``job`` ends.

    It is the ``first_failed`` task's, 124 after a timeout, 130 when the job was cancelled, by
    whomever.

    Raises:
        MusterError: the job's tasks cannot be read.
    """
    match job.state:
        case JobState.SUCCEEDED:
            return ExitCode.OK
        case JobState.FAILED:
            return of_task(failed) if failed else ExitCode.FAILED
        case JobState.KILLED:
            return ExitCode.TIMEOUT if _timed_out(client, job) else ExitCode.INTERRUPTED
        case _:
            return ExitCode.FAILED


def _timed_out(client: "Client", job: "JobView") -> bool:
    """Whether the job was stopped because a task ran too long; other tasks are stopped with it."""
    from muster.core.reasons import ReasonCode

    if job.reason is not None and job.reason.code == ReasonCode.TIMEOUT:
        return True
    killed = client.tasks(job.id, state=TaskState.KILLED, limit=_LOOKED_AT).items
    return any(task.reason and task.reason.code == ReasonCode.TIMEOUT for task in killed)
