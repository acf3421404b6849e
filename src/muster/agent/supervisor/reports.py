"""The events about kernels: the form of each fact, and the reasons of ends."""

import os
import signal
import time

from muster.agent.supervisor.failures import CannotExecute, CreateFailed
from muster.agent.supervisor.kernel import EndReason, Event, OwnKernel, Status
from muster.agent.supervisor.protocol import Key

_WITHOUT_PROCESS = (Status.QUEUED, Status.STANDBY, Status.CREATED, Status.STARTING)
_KILLED_EXIT_CODE = 128 + signal.SIGKILL  # a shell's code for a command that was killed


def started(kernel: OwnKernel) -> Event:
    """The event that a kernel's main process runs its program."""
    event = _event(kernel, "started")
    event["at"] = kernel.started_at
    event["pid"] = kernel.pid
    return event


def created(kernel: OwnKernel) -> Event:
    """The event that a kernel is ready and waits for `go`. Its start tells its devices again."""
    event = _event(kernel, "created")
    kernel.announced = False
    return event


def create_failed(kernel: OwnKernel, failure: CreateFailed) -> Event:
    """The event that a kernel could not be made."""
    event = _event(kernel, "create_failed")
    event["reason"] = failure.reason
    event["detail"] = failure.detail
    return event


def cannot_execute(kernel: OwnKernel, failure: CannotExecute) -> Event:
    """The end of a kernel whose command could not be executed."""
    event = ended_without_run(kernel, failure.reason, failure.detail)
    event["exit_code"] = failure.exit_code
    return event


def ended_without_run(kernel: OwnKernel, reason: EndReason, detail: str = "") -> Event:
    """The end of a kernel of which no process ran, as far as this supervisor saw."""
    event = _event(kernel, "ended")
    event["reason"] = reason
    if detail:
        event["detail"] = detail
    return event


def unknown(key: Key) -> Event:
    """The end of a kernel that is not known here, so that the controller can free its room."""
    return ended_without_run(OwnKernel(key), EndReason.UNKNOWN_KERNEL)


def ended(kernel: OwnKernel, oom_kills: int) -> Event:
    """The end of a kernel whose main process was reaped; `oom_kills` is its cgroup's count."""
    assert kernel.wait_status is not None
    event = _event(kernel, "ended")
    event["pid"] = kernel.pid
    code = os.waitstatus_to_exitcode(kernel.wait_status)
    if code < 0:
        event["signal"] = -code
    else:
        event["exit_code"] = code
    if kernel.stop_reason is not None:
        event["reason"] = kernel.stop_reason
        if kernel.stop_detail:
            event["detail"] = kernel.stop_detail
    elif oom_kills and code in (-signal.SIGKILL, _KILLED_EXIT_CODE):
        event["reason"] = EndReason.OUT_OF_MEMORY
    else:
        event["reason"] = EndReason.SIGNALED if code < 0 else EndReason.EXITED
        if oom_kills:
            event["oom_kills"] = oom_kills
            event["detail"] = f"{oom_kills} of its processes were killed for lack of memory"
    return event


def describe(kernel: OwnKernel) -> dict[str, object]:
    """A kernel in the answer to `attach`; its end is told by its event, which follows."""
    description: dict[str, object] = {
        "id": kernel.id,
        "generation": kernel.generation,
        "status": Status.QUEUED if kernel.status is Status.STANDBY else kernel.status,
        "shape": kernel.shape,
        "devices": kernel.devices,
    }
    if kernel.is_lost:
        description["lost"] = True
    if kernel.status not in _WITHOUT_PROCESS:
        description["pid"] = kernel.pid
        description["started_at"] = kernel.started_at
    return description


def _event(kernel: OwnKernel, kind: str) -> Event:
    kernel_id, generation = kernel.key
    event: Event = {
        "kernel": kernel_id,
        "generation": generation,
        "kind": kind,
        "at": time.time(),
    }
    if not kernel.announced:  # its first event tells its devices
        kernel.announced = True
        if kernel.devices:
            event["devices"] = list(kernel.devices)
            event["device_milli"] = kernel.device_milli
        if kernel.predecessor is not None:
            event["predecessor"] = kernel.predecessor
    return event
