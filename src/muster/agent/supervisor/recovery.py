"""Recovery after a supervisor was killed: end the processes that it left, then report its
kernels."""

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from muster.agent.supervisor import reports
from muster.agent.supervisor.journal import Journal, Survivor
from muster.agent.supervisor.kernel import EndReason, Event, OwnKernel, Status
from muster.agent.supervisor.known_kernels import KnownKernels
from muster.agent.supervisor.process_tree import (
    ProcessStat,
    all_processes,
    kernel_tag,
    user_of,
)

_TIMEOUT_S = 10.0
_ROUND_S = 0.01


def kill_leftovers(directory: str, survivors: Collection[Survivor], *, same_boot: bool) -> int:
    """Kill all processes of a dead supervisor's kernels; returns how many would not die in time.

    Processes in cgroups are dead by now. Others are known by their main process (pid and start
    time), its session and group, a known ancestor, or the tag in their environment, which may be
    forged and so is believed only of this process's own user. After a reboot pids mean nothing, so
    none is looked at; no process can have the tag then.
    """
    deadline_s = time.monotonic() + _TIMEOUT_S
    while victims := _find(directory, survivors if same_boot else ()):
        for pid in victims:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline_s:
            return len(victims)
        time.sleep(_ROUND_S)
    return 0


def remember(known: KnownKernels, events: Iterable[Event]) -> None:
    """Add the kernels that a dead supervisor reported and nobody acknowledged."""
    for event in events:
        key = event["kernel"], event["generation"]
        if event.get("reason") == EndReason.UNKNOWN_KERNEL:
            known.bury(key, event["seq"])
            continue
        kernel = known.get(key) or OwnKernel(key)
        known.add(kernel)
        kernel.devices = tuple(event.get("devices", ()))
        kernel.device_milli = event.get("device_milli", 1000)
        if event["kind"] == "started":
            kernel.pid, kernel.started_at = event["pid"], event["at"]
        elif event["kind"] != "created":
            kernel.status = Status(event["kind"])
            kernel.is_lost = event.get("reason") == EndReason.SUPERVISOR_LOST
            known.note_final(event["seq"], kernel)


def report_lost(
    known: KnownKernels, journal: Journal, survivors: Iterable[Survivor], detail: str
) -> None:
    """Report the kernels of a dead supervisor, which have no processes any more."""
    for survivor in survivors:
        kernel = OwnKernel(
            survivor.key, shape=survivor.shape, pid=survivor.pid, status=Status.ENDED
        )
        kernel.is_lost = True
        known.add(kernel)
        event = reports.ended_without_run(kernel, EndReason.SUPERVISOR_LOST, detail)
        journal.record([event])
        known.note_final(event["seq"], kernel)


def _find(directory: str, survivors: Collection[Survivor]) -> set[int]:
    processes = {stat.pid: stat for stat in all_processes()}
    mains = {
        survivor.pid
        for survivor in survivors
        if survivor.pid in processes and _is_main(processes[survivor.pid], survivor)
    }
    found = {
        pid
        for pid, stat in processes.items()
        if stat.session in mains
        or stat.group in mains
        or (kernel_tag(pid, directory) is not None and user_of(pid) == os.getuid())
    }
    grown = True
    while grown:
        below = {pid for pid, stat in processes.items() if stat.parent in found} - found
        found |= below
        grown = bool(below)
    found.discard(os.getpid())
    return {pid for pid in found if processes[pid].state not in ("Z", "X")}


def _is_main(stat: ProcessStat, survivor: Survivor) -> bool:
    low, high = survivor.born_ticks
    return low <= stat.start_ticks <= high
