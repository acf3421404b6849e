"""The exit code of work that has ended, as a shell would have it (design: Exit codes)."""

from muster.core.reasons import ReasonCode
from muster.core.states import TaskState
from muster.core.views import KernelView, SessionDetail, TaskDetail

FAILED = 1
TIMED_OUT = 124
"""As timeout(1) has it."""
NOT_EXECUTABLE = 126
NOT_FOUND = 127
"""As shells have it (source: POSIX shell)."""
SIGNAL_BASE = 128
"""Added to the number of the signal that ended a task."""
INTERRUPTED = 130
"""Cancelled, by Ctrl-C or otherwise."""


def of_task(task: TaskDetail) -> int:
    """The code of one task, by its last attempt: its exit code, 128 and the number of its signal,
    what a shell says of a command it cannot start; never 0 for one that did not succeed."""
    if task.state is TaskState.SUCCEEDED:
        return 0
    last = task.attempts[-1] if task.attempts else None
    if last is not None and last.signal:
        return SIGNAL_BASE + last.signal
    if task.exit_code:
        return task.exit_code
    match task.reason.code if task.reason else None:
        case ReasonCode.COMMAND_NOT_FOUND:
            return NOT_FOUND
        case ReasonCode.COMMAND_NOT_EXECUTABLE:
            return NOT_EXECUTABLE
        case ReasonCode.TIMEOUT:
            return TIMED_OUT
        case _:
            return FAILED


def of_kernel(kernel: KernelView) -> int:
    """Likewise, of a kernel that has ended."""
    if kernel.signal:
        return SIGNAL_BASE + kernel.signal
    return FAILED if kernel.exit_code is None else kernel.exit_code


def of_session(session: SessionDetail) -> int:
    """That of the first kernel that did not end well of a session that has ended, 0 if all did;
    INTERRUPTED if it was cancelled."""
    if session.reason is not None and session.reason.code == ReasonCode.CANCELLED:
        return INTERRUPTED
    return next((code for kernel in session.kernels if (code := of_kernel(kernel))), 0)
