"""The words for how work ended, which are the same wherever it is shown."""

from typing import TYPE_CHECKING

from muster.cli.streams import plain
from muster.cli.words import count, duration, sentence_of, signal_name
from muster.core.reasons import DISPLACED, ReasonCode
from muster.core.states import KernelStatus, TaskState

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.base import ReasonView
    from muster.core.views.work import FailureView, JobView, KernelView

_BAD = (
    TaskState.FAILED,
    TaskState.WORKER_FAILED,
    TaskState.UNSCHEDULABLE,
    TaskState.KILLED,
)
_STOPPED = frozenset(
    {ReasonCode.STOPPED, ReasonCode.NEVER_STARTED, ReasonCode.TIMEOUT, ReasonCode.CANCELLED}
)


def exit_text(exit_code: int | None, signal: int | None) -> str:
    """An exit code, or the signal that ended the kernel; empty while there is neither."""
    if signal:
        return signal_name(signal)
    return "" if exit_code is None else str(exit_code)


def how_ended(reason: "ReasonView | None", exit_code: int | None) -> str:
    """The reason's sentence, else a sentence on the exit code; empty where neither is known."""
    if reason is not None:
        return plain(sentence_of(reason))
    return "" if exit_code is None else f"exited with code {exit_code}"


def ran(started: float | None, ended: float | None, now: float) -> str:
    """How long work has run; empty if it has not started."""
    return "" if started is None else duration((ended or now) - started)


def shown_state(kernel: "KernelView") -> str:
    """The status of a kernel; once it has ended, the word for tasks that end so."""
    match kernel.status:
        case KernelStatus.TERMINATED:
            code = kernel.reason.code if kernel.reason else None
            if code in DISPLACED:
                return TaskState.WORKER_FAILED
            if code in _STOPPED:  # with whatever code it exited then
                return TaskState.KILLED
            return TaskState.SUCCEEDED if kernel.exit_code == 0 else TaskState.FAILED
        case KernelStatus.CANCELLED:
            return TaskState.KILLED
        case KernelStatus.ERROR:
            return TaskState.WORKER_FAILED
        case alive:
            return alive


def failures_of(client: "Client", job: "JobView") -> list[str]:
    """A line for each way in which tasks of the job failed, if it has several tasks.

    Raises:
        MusterError: the tasks cannot be read.
    """
    if job.tasks_total == 1 or not any(job.counts.get(state) for state in _BAD):
        return []
    page = client.failures(job.id)
    lines = [_failed_alike(each) for each in page.items]
    return [*lines, f"{count(page.others, 'task')} otherwise"] if page.others else lines


def _failed_alike(failure: "FailureView") -> str:
    """A line such as "37 tasks: exited with code 1, such as 3, 17, 40", or "tasks 3, 17: …"."""
    named = ", ".join(map(str, failure.such_as))
    state = failure.state.lower().replace("_", " ")
    how = how_ended(failure.reason, failure.exit_code) or state
    if failure.parameters:
        values = " ".join(f"{name}={value}" for name, value in failure.parameters.items())
        how = f"{how}, all with {values}"
    if failure.tasks > len(failure.such_as):
        return f"{count(failure.tasks, 'task')}: {how}, such as {named}"
    return f"task{'' if failure.tasks == 1 else 's'} {named}: {how}"
