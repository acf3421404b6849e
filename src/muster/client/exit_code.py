"""The code with which `muster run` ends, for a job that has ended."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from muster.client.calls import Calls
from muster.client.encoding import quoted
from muster.client.exchange import Exchange
from muster.core import exit_codes
from muster.core.states import JobState, TaskState
from muster.core.views.work import JobView, TaskPage

J = TypeVar("J", bound=JobView)

LOOKED_AT = 100
"""Tasks that are looked at to find out why a job was stopped."""


def with_exit_code(calls: Calls, job: J) -> Exchange[J]:
    """The job with its exit code, if it has ended: its first failed task's, 124 after a timeout,
    130 when it was cancelled, by whomever.

    Raises:
        MusterError: the job's tasks cannot be read.
    """
    if not job.ended:
        return job
    code = yield from _exit_code(calls, job)
    return msgspec.structs.replace(job, exit_code=code)


def _exit_code(calls: Calls, job: JobView) -> Exchange[int]:
    if job.state is JobState.SUCCEEDED:
        return 0
    path = f"/v1/jobs/{quoted(job.id)}/tasks"
    if job.state is JobState.FAILED:
        failed = yield from calls._get(TaskPage, path, state=TaskState.FAILED, limit=1)
        return exit_codes.of_task(failed.items[0]) if failed.items else exit_codes.FAILED
    if job.state is not JobState.KILLED:
        return exit_codes.FAILED
    from muster.core.reasons import ReasonCode

    if job.reason is None or job.reason.code != ReasonCode.TIMEOUT:
        killed = yield from calls._get(TaskPage, path, state=TaskState.KILLED, limit=LOOKED_AT)
        # One task ran too long; the others were stopped with it.
        if not any(each.reason and each.reason.code == ReasonCode.TIMEOUT for each in killed.items):
            return exit_codes.INTERRUPTED
    return exit_codes.TIMED_OUT
