"""The process that watches GPUs: ``python -m muster.agent.health.gpu_watch`` reads the facts about
the machine from standard input, and prints a report a line (source: NVML).

NVML is asked here and not in the agent, because a call to a driver may hang for ever. The process
limits its own cost, and ends with the agent that started it.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from muster.agent.health.check import CheckedMachine
from muster.agent.health.counters import CountingNvml, Sampler
from muster.agent.health.nvml import (
    Nvml,
    devices_by_gpu,
    partition_addresses,
    pci_addresses,
    standing,
)
from muster.core.health.counters import GpuMeans
from muster.core.health.verdict import MAX_TOLD, Finding, Severity, bounded
from muster.core.resources import Device, is_partition

PERIOD_S = 10.0
"""Seconds between two reports; an event of a GPU brings the next one at once."""
MOST_CPU = 0.001
"""The share of a processor that the process may use: where asking takes longer, it asks less
often."""
LONGEST_PERIOD_S = 300.0
REOPEN_S = 3600.0
"""Seconds after which NVML is opened anew: it tells the number of GPUs as it was when it was."""
MAX_EVENTS = 64
"""Events that one report has, at most."""

_TIMEOUT = 10  # NVML's number of the error
_XID = 0x8
_EVENTS = _XID | 0x2 | 0x4000 | 0x8000
"""Xids, uncorrectable errors, GPUs that cannot be used any more, changes of the recovery action."""


class GpuEvent(Protocol):
    """One event of ``nvmlEventSetWait_v2``."""

    @property
    def device(self) -> Any: ...

    @property
    def eventType(self) -> int: ...

    @property
    def eventData(self) -> int: ...


class WatchedNvml(Nvml, CountingNvml, Protocol):
    """The calls of NVML that are made here besides those of the check."""

    def nvmlDeviceGetIndex(self, handle: Any) -> int: ...

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> int: ...

    def nvmlDeviceRegisterEvents(self, handle: Any, eventTypes: int, eventSet: Any) -> None: ...

    def nvmlEventSetCreate(self) -> Any: ...

    def nvmlEventSetWait_v2(self, eventSet: Any, timeoutms: int) -> GpuEvent: ...

    def nvmlEventSetFree(self, eventSet: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One look at the GPUs.

    Args:
        error: the driver's words if it does not answer; the rest is empty then.
        addresses: the addresses of the GPUs that are there, by their UUIDs; empty if it is unknown.
        findings: the faults, and what the driver does not tell.
        xids: the Xids since the last report: the index of the agent's device, and the number.
        next_s: when the next report comes at the latest, in seconds.
        samples: the counters of the GPUs now.
        partitions: the addresses of the GPUs of partitions, by the UUIDs of these.
    """

    error: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    xids: tuple[tuple[int, int], ...] = ()
    next_s: float = PERIOD_S
    samples: tuple[GpuMeans, ...] = ()
    partitions: Mapping[str, str] = field(default_factory=dict)


def reports(
    nvml: WatchedNvml,
    declared: Sequence[Device],
    *,
    sleep: Callable[[float], None] = time.sleep,
    cpu_s: Callable[[], float] = time.process_time,
    now_s: Callable[[], float] = time.monotonic,
) -> Iterator[GpuReport]:
    """Reports without an end, ``next_s`` after each other or sooner.

    Args:
        declared: the GPUs that the agent has.
        cpu_s: the processor time that this process has used.
        now_s: a clock that only goes on.
    """
    while True:
        try:
            nvml.nvmlInit()
            try:
                yield from _looks(nvml, declared, sleep, cpu_s, now_s)
            finally:
                nvml.nvmlShutdown()
        except nvml.NVMLError as error:
            yield GpuReport(error=bounded(str(error), MAX_TOLD))
            sleep(PERIOD_S)


def _looks(
    nvml: WatchedNvml,
    declared: Sequence[Device],
    sleep: Callable[[float], None],
    cpu_s: Callable[[], float],
    now_s: Callable[[], float],
) -> Iterator[GpuReport]:
    """The reports until NVML is to be opened anew.

    Raises:
        NVMLError: the driver does not answer.
    """
    sampler = Sampler(nvml, declared, cpu_s, now_s)
    devices = devices_by_gpu(nvml, declared)
    with _Events(nvml, sleep) as events:
        xids: tuple[tuple[int, int], ...] = ()
        past_s = 0.0
        while past_s < REOPEN_S:
            began_s = cpu_s()
            report = look(nvml, declared)
            took_s = cpu_s() - began_s
            wait_s = min(max(PERIOD_S, took_s / MOST_CPU), LONGEST_PERIOD_S)
            past_s += wait_s
            yield replace(report, xids=xids, next_s=wait_s, samples=sampler.sample())
            xids = tuple(
                (device, number)
                for gpu, number in events.wait(wait_s)
                for device in devices.get(gpu, (gpu,))
            )


def look(nvml: Nvml, declared: Sequence[Device]) -> GpuReport:
    """A report on the GPUs as they are now, of an NVML that is open.

    Raises:
        NVMLError: the driver does not answer.
    """
    grave = [each for each in standing(nvml, declared) if each.severity is not Severity.WARNING]
    has_partitions = any(is_partition(device.model) for device in declared)
    return GpuReport(
        addresses=pci_addresses(nvml),
        partitions=partition_addresses(nvml) if has_partitions else {},
        findings=tuple(grave),
    )


class _Events:
    """The events of all GPUs that have any; a pause where there are none."""

    def __init__(self, nvml: WatchedNvml, sleep: Callable[[float], None]) -> None:
        self._nvml = nvml
        self._sleep = sleep
        self._set: Any = None

    def __enter__(self) -> "_Events":
        nvml = self._nvml
        with suppress(nvml.NVMLError):
            events, registered = nvml.nvmlEventSetCreate(), 0
            for index in range(nvml.nvmlDeviceGetCount()):
                with suppress(nvml.NVMLError):
                    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
                    kinds = nvml.nvmlDeviceGetSupportedEventTypes(gpu) & _EVENTS
                    nvml.nvmlDeviceRegisterEvents(gpu, kinds, events)
                    registered += 1
            if registered:
                self._set = events
            else:
                nvml.nvmlEventSetFree(events)
        return self

    def __exit__(self, *_: object) -> None:
        if self._set is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._set)

    def wait(self, limit_s: float) -> tuple[tuple[int, int], ...]:
        """Wait for an event, ``limit_s`` at most; the Xids among those that came."""
        if self._set is None:
            self._sleep(limit_s)
            return ()
        found: list[tuple[int, int]] = []
        for nth in range(MAX_EVENTS):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0 if nth else int(1000 * limit_s))
                if event.eventType == _XID:
                    found.append((self._nvml.nvmlDeviceGetIndex(event.device), event.eventData))
            except self._nvml.NVMLError as error:
                if not (error.args and error.args[0] == _TIMEOUT) and not nth:
                    self._sleep(PERIOD_S)  # a GPU is lost, say: events that fail at once
                break
        else:
            self._sleep(PERIOD_S)  # a flood
        return tuple(found)


def main() -> None:
    # Whatever a library prints is no report.
    output = os.dup(1)
    os.dup2(2, 1)
    agent = os.getppid()
    machine = msgspec.json.decode(sys.stdin.buffer.read(), type=CheckedMachine)
    import pynvml

    with suppress(BrokenPipeError), os.fdopen(output, "wb", buffering=0) as file:
        for report in reports(pynvml, machine.devices):
            file.write(msgspec.json.encode(report) + b"\n")
            if os.getppid() != agent:
                return


if __name__ == "__main__":
    main()
