"""Counters of GPUs: what is sampled, at what cost, and which means an agent tells."""

from collections.abc import Iterable
from typing import Any

import pytest
from tests.agent.health.recorded import Recorded

from muster.agent.health.counters import (
    INTERVAL_S,
    MAX_SAMPLES,
    MOST_CPU,
    GpuCounters,
    Sampler,
)
from muster.agent.health.nvml import GPU_IS_LOST
from muster.core.health.counters import MOST_POWER_W, GpuMeans


class Clocks:
    """A clock, and the processor time that each question costs."""

    def __init__(self) -> None:
        self.at_s = 1000.0
        self.used_s = 0.0
        self.cost_s = 0.0

    def now_s(self) -> float:
        return self.at_s

    def cpu_s(self) -> float:
        self.used_s += self.cost_s
        return self.used_s


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def nvml() -> Recorded:
    found = Recorded("h100-healthy.json")
    for nth, gpu in enumerate(found.gpus):
        plant(gpu, busy=90 + nth, mhz=1700 + nth, millijoules=5_000)
    return found


def plant(gpu: dict[str, Any], *, busy: int, mhz: int, millijoules: int) -> None:
    gpu["nvmlDeviceGetUtilizationRates"] = busy
    gpu["nvmlDeviceGetClockInfo"] = mhz
    gpu["nvmlDeviceGetTotalEnergyConsumption"] = millijoules


def sampler(nvml: Recorded, clocks: Clocks) -> Sampler:
    return Sampler(nvml, nvml.devices(), clocks.cpu_s, clocks.now_s)


def test_power_is_the_mean_since_the_last_sample_where_energy_is_counted(
    nvml: Recorded, clocks: Clocks
) -> None:
    sampled = sampler(nvml, clocks)
    assert sampled.sample() == (GpuMeans(0, 90.0, 1700.0), GpuMeans(1, 91.0, 1701.0))
    clocks.at_s += 10.0
    plant(nvml.gpus[1], busy=50, mhz=900, millijoules=5_000 + 4_000_000)
    assert sampled.sample() == (
        GpuMeans(0, 90.0, 1700.0, 0.0),
        GpuMeans(1, 50.0, 900.0, 400.0),
    )
    clocks.at_s += 0.1  # an Xid came
    assert [each.power_w for each in sampled.sample()] == [None, None]
    clocks.at_s += 10.0
    plant(nvml.gpus[1], busy=50, mhz=900, millijoules=7)  # the driver was loaded anew
    assert [each.power_w for each in sampled.sample()] == [0.0, None]


def test_gpu_without_a_counter_of_energy_tells_its_power_now(
    nvml: Recorded, clocks: Clocks
) -> None:
    del nvml.gpus[0]["nvmlDeviceGetTotalEnergyConsumption"]
    nvml.gpus[0]["nvmlDeviceGetPowerUsage"] = 312_500
    assert sampler(nvml, clocks).sample()[0] == GpuMeans(0, 90.0, 1700.0, 312.5)


def test_nothing_is_said_of_a_gpu_without_counters_or_one_that_is_lost(clocks: Clocks) -> None:
    bare = Recorded("h100-healthy.json")
    assert sampler(bare, clocks).sample() == ()
    bare.gpus[0]["nvmlDeviceGetUtilizationRates"] = 5
    assert sampler(bare, clocks).sample() == (GpuMeans(0, 5.0),)
    bare.gpus[0]["nvmlDeviceGetHandleByIndex"] = {"error": GPU_IS_LOST}
    assert sampler(bare, clocks).sample() == ()


def test_values_that_no_gpu_has_are_not_told(nvml: Recorded, clocks: Clocks) -> None:
    plant(nvml.gpus[0], busy=4_294_967_295, mhz=1700, millijoules=0)
    assert [each.device for each in sampler(nvml, clocks).sample()] == [1]
    assert GpuMeans(0, power_w=MOST_POWER_W).is_plausible
    assert not GpuMeans(0, power_w=float("nan")).is_plausible


def test_sampling_that_costs_much_comes_less_often(nvml: Recorded, clocks: Clocks) -> None:
    clocks.cost_s = 0.05
    sampled = sampler(nvml, clocks)
    assert sampled.sample()
    clocks.at_s += 0.05 / MOST_CPU - 1
    assert sampled.sample() == ()
    clocks.at_s += 1
    assert sampled.sample()


def samples(*busy: float, device: int = 0) -> Iterable[GpuMeans]:
    return [GpuMeans(device, each, power_w=2 * each) for each in busy]


def test_means_are_told_once_an_interval_and_of_what_work_holds(clocks: Clocks) -> None:
    counters = GpuCounters(clocks.now_s)
    assert counters.take() == ()
    counters.add([*samples(90), *samples(1, device=1)], {0})
    clocks.at_s += INTERVAL_S - 1
    assert counters.take() == ()
    counters.add(samples(70), {0})
    clocks.at_s += 1
    assert counters.take() == (GpuMeans(0, 80.0, None, 160.0),)
    assert counters.take() == ()
    counters.add(samples(50), {0})
    assert counters.take() == ()
    clocks.at_s += INTERVAL_S
    assert counters.take() == (GpuMeans(0, 50.0, None, 100.0),)


def test_gpu_that_work_has_left_begins_anew(clocks: Clocks) -> None:
    counters = GpuCounters(clocks.now_s)
    counters.add(samples(90), None)
    counters.add(samples(90), set())
    clocks.at_s += INTERVAL_S
    counters.add(samples(10), {0})
    assert counters.take() == ()
    clocks.at_s += INTERVAL_S
    assert counters.take() == (GpuMeans(0, 10.0, None, 20.0),)


def test_samples_are_bounded(clocks: Clocks) -> None:
    counters = GpuCounters(clocks.now_s)
    counters.add(samples(*[10.0] * 1000, *[20.0] * MAX_SAMPLES), {0})
    clocks.at_s += INTERVAL_S
    assert counters.take() == (GpuMeans(0, 20.0, None, 40.0),)
