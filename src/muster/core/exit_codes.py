"""The exit code of work that has ended, as a shell would have it (design: Exit codes)."""

from muster.core.states import TaskState
from muster.core.views.work import KernelView, SessionDetail, TaskDetail

FAILED = 1
TIMED_OUT = 124
"""The code of a timeout, as in timeout(1)."""
NOT_EXECUTABLE = 126
NOT_FOUND = 127
"""The code of a command that was not found (source: POSIX shell)."""
SIGNAL_BASE = 128
"""Added to the number of the signal that ended a task."""
INTERRUPTED = 130
"""The code of cancelled work, by Ctrl-C or otherwise."""


def of_task(task: TaskDetail) -> int:
    """The code of one task, by its last attempt: the attempt's exit code, or 128 and the number of
    its signal, or a shell's code for a command that cannot be started; never 0 for a task that did
    not succeed."""
    if task.state is TaskState.SUCCEEDED:
        return 0
    last = task.attempts[-1] if task.attempts else None
    if last is not None and last.signal:
        return SIGNAL_BASE + last.signal
    if task.exit_code:
        return task.exit_code
    from muster.core.reasons import ReasonCode  # late: `muster run` imports this module

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
    """The code of a kernel that has ended, by the same rules."""
    if kernel.signal:
        return SIGNAL_BASE + kernel.signal
    return FAILED if kernel.exit_code is None else kernel.exit_code


def of_session(session: SessionDetail) -> int:
    """The code of a session that has ended: its first kernel's that did not end with 0, or 0 if all
    did, or if its leader did; INTERRUPTED if it was cancelled."""
    from muster.core.reasons import ReasonCode

    if session.reason is not None and session.reason.code == ReasonCode.CANCELLED:
        return INTERRUPTED
    if session.reason is not None and session.reason.code == ReasonCode.LEADER_ENDED:
        return 0
    return next((code for kernel in session.kernels if (code := of_kernel(kernel))), 0)
