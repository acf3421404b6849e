"""The counters of GPUs: sampled by the process that watches them, averaged by the agent.

A counter that a driver does not tell is left out. The throughput of PCIe is not asked for: each
question would take 20 ms (source: NVML).
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from muster.core.health.counters import GpuMeans
from muster.core.resources import Device

MOST_CPU = 0.001
"""The share of a processor that sampling may use: where it takes longer, it is done less often."""
INTERVAL_S = 60.0
"""Seconds of which the controller is told the means."""
MAX_SAMPLES = 64
"""Samples of a GPU that are kept for one mean, at most: Xids bring more of them."""
_LEAST_S = 1.0
"""Seconds between two looks at a counter of energy, at least."""
_SM = 1
"""NVML's number of the clock of the processors."""

T = TypeVar("T")


class Utilization(Protocol):
    """The answer of ``nvmlDeviceGetUtilizationRates``."""

    @property
    def gpu(self) -> int: ...


class CountingNvml(Protocol):
    """The calls of NVML that tell counters."""

    @property
    def NVMLError(self) -> type[Exception]: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Utilization: ...

    def nvmlDeviceGetClockInfo(self, handle: Any, type: int) -> int: ...

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int: ...

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...


class Sampler:
    """Samples the counters of an NVML that stays open.

    Args:
        declared: the GPUs that the agent has; those without a UUID are not to be found.
        cpu_s: the processor time that this process has used.
        now_s: a clock that only goes on.
    """

    def __init__(
        self,
        nvml: CountingNvml,
        declared: Sequence[Device],
        cpu_s: Callable[[], float],
        now_s: Callable[[], float],
    ) -> None:
        self._nvml = nvml
        self._devices = {each.uuid: each.index for each in declared if each.uuid}
        self._cpu_s = cpu_s
        self._now_s = now_s
        self._handles: dict[str, Any] = {}
        self._energy: dict[str, tuple[float, int]] = {}  # when it was read, and the millijoules
        self._next_s = 0.0

    def sample(self) -> tuple[GpuMeans, ...]:
        """The counters now; none if the last sample cost so much that it is too early."""
        now_s = self._now_s()
        if now_s < self._next_s or not self._devices:
            return ()
        began_s = self._cpu_s()
        sampled = [self._of(uuid, index, now_s) for uuid, index in self._devices.items()]
        self._next_s = now_s + (self._cpu_s() - began_s) / MOST_CPU
        return tuple(each for each in sampled if not each.is_empty and each.is_plausible)

    def _of(self, uuid: str, index: int, now_s: float) -> GpuMeans:
        nvml = self._nvml
        gpu = self._handles.get(uuid)
        if gpu is None:
            gpu = self._asked(lambda: nvml.nvmlDeviceGetHandleByUUID(uuid))
            if gpu is None:
                return GpuMeans(index)
            self._handles[uuid] = gpu
        return GpuMeans(
            index,
            self._asked(lambda: float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)),
            self._asked(lambda: float(nvml.nvmlDeviceGetClockInfo(gpu, _SM))),
            self._power_w(uuid, gpu, now_s),
        )

    def _power_w(self, uuid: str, gpu: Any, now_s: float) -> float | None:
        """The mean power since the last sample, where the GPU counts its energy, else its power
        now."""
        nvml = self._nvml
        energy = self._asked(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu))
        if energy is None:
            return self._asked(lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000)
        at_s, before = self._energy.get(uuid, (-_LEAST_S, energy))
        if now_s < at_s + _LEAST_S:
            return None
        first = uuid not in self._energy
        self._energy[uuid] = now_s, energy
        return None if first or energy < before else (energy - before) / 1000 / (now_s - at_s)

    def _asked(self, call: Callable[[], T]) -> T | None:
        """The answer of a call; None if the GPU does not have what is asked for."""
        with suppress(self._nvml.NVMLError):
            return call()
        return None


class GpuCounters:
    """The means of the GPUs that work holds, until they are told.

    Args:
        now_s: a clock that only goes on.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._samples: dict[int, list[GpuMeans]] = {}
        self._began_s = 0.0

    def add(self, samples: Iterable[GpuMeans], held: Collection[int] | None) -> None:
        """Keep samples.

        Args:
            held: the GPUs that work holds, all others are forgotten; None if it is not known which.
        """
        if not self._samples:
            self._began_s = self._now_s()
        for each in samples:
            self._samples.setdefault(each.device, []).append(each)
        if held is not None:
            self._samples = {gpu: some for gpu, some in self._samples.items() if gpu in held}
        for some in self._samples.values():
            del some[:-MAX_SAMPLES]

    def take(self) -> tuple[GpuMeans, ...]:
        """The means once an interval is over, and none before; the next interval begins."""
        if not self._samples or self._now_s() < self._began_s + INTERVAL_S:
            return ()
        taken, self._samples = self._samples, {}
        return tuple(
            GpuMeans(
                gpu,
                _mean(each.busy for each in some),
                _mean(each.clock_mhz for each in some),
                _mean(each.power_w for each in some),
            )
            for gpu, some in taken.items()
        )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) / len(known) if known else None
