"""The process that watches GPUs: what it reports, how often, and at what cost."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec
import pytest
from tests.agent.health.recorded import Recorded, RecordedError

from muster.agent.health.gpu_watch import (
    LONGEST_PERIOD_S,
    MAX_EVENTS,
    MOST_CPU,
    PERIOD_S,
    REOPEN_S,
    GpuReport,
    reports,
)
from muster.agent.health.nvml import GPU_IS_LOST
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import Severity
from muster.core.resources import Device

XID = 0x8
TIMEOUT = 10


@dataclass(frozen=True, slots=True)
class Event:
    device: Any
    eventType: int
    eventData: int


@dataclass
class WithEvents:
    """Requests to an NVML with event sets, beside its recorded answers."""

    events: list[Event] = field(default_factory=list)
    waits_ms: list[int] = field(default_factory=list)
    sets: int = 0
    kinds: int = XID


class Watched(Recorded):
    """Recorded answers of an NVML with events; time passes while somebody waits."""

    def __init__(self, name: str = "h100-healthy.json") -> None:
        super().__init__(name)
        self.extra = WithEvents()
        self.slept_s = 0.0
        self.used_cpu_s = 0.0
        self.look_cpu_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds

    def cpu_s(self) -> float:
        self.used_cpu_s += self.look_cpu_s  # a look is between two questions
        return self.used_cpu_s

    def nvmlDeviceGetIndex(self, handle: dict[str, Any]) -> int:
        return self.gpus.index(handle)

    def nvmlDeviceGetSupportedEventTypes(self, handle: dict[str, Any]) -> int:
        if not self.extra.kinds:
            raise RecordedError(3)
        return self.extra.kinds

    def nvmlDeviceRegisterEvents(
        self, handle: dict[str, Any], eventTypes: int, eventSet: object
    ) -> None:
        assert eventTypes == self.extra.kinds

    def nvmlEventSetCreate(self) -> object:
        self.extra.sets += 1
        return object()

    def nvmlEventSetFree(self, eventSet: object) -> None:
        self.extra.sets -= 1

    def nvmlEventSetWait_v2(self, eventSet: object, timeoutms: int) -> Event:
        self.extra.waits_ms.append(timeoutms)
        if self.extra.events:
            return self.extra.events.pop(0)
        self.slept_s += timeoutms / 1000
        raise RecordedError(TIMEOUT)


@pytest.fixture
def nvml() -> Watched:
    return Watched()


def watching(nvml: Watched) -> Iterator[GpuReport]:
    return reports(nvml, nvml.devices(), sleep=nvml.sleep, cpu_s=nvml.cpu_s)


def test_healthy_gpus_are_told_with_their_addresses_and_nothing_else(nvml: Watched) -> None:
    first, second = islice(watching(nvml), 2)
    assert first == second
    uuids = [each.uuid for each in nvml.devices()]
    assert first == GpuReport(addresses=dict(zip(uuids, ["0000:1b:00", "0000:5d:00"], strict=True)))
    assert nvml.slept_s == PERIOD_S


def test_report_goes_through_json_and_is_the_same(nvml: Watched) -> None:
    nvml.gpus[0]["nvmlDeviceGetTotalEccErrors"] = {"1,0": 3, "1,1": 3}
    report = next(watching(nvml))
    assert msgspec.json.decode(msgspec.json.encode(report), type=GpuReport) == report
    [found] = report.findings
    assert (found.device, found.severity, found.remedy) == (0, Severity.FAULT, Remedy.RESET)


def test_xid_brings_a_report_at_once(nvml: Watched) -> None:
    watch = watching(nvml)
    next(watch)
    nvml.extra.events = [Event(nvml.gpus[1], XID, 79), Event(nvml.gpus[0], 0x8000, 2)]
    assert next(watch).xids == ((1, 79),)
    assert nvml.slept_s == 0.0
    assert next(watch).xids == ()


def test_flood_of_events_is_bounded_and_delayed(nvml: Watched) -> None:
    watch = watching(nvml)
    next(watch)
    nvml.extra.events = [Event(nvml.gpus[0], XID, 79)] * 10_000
    for nth in range(1, 4):
        assert len(next(watch).xids) == MAX_EVENTS
        assert nvml.slept_s == nth * PERIOD_S


def test_events_that_fail_at_once_do_not_make_it_run_hot(nvml: Watched) -> None:
    def lost(eventSet: object, timeoutms: int) -> Event:
        raise RecordedError(GPU_IS_LOST)

    nvml.nvmlEventSetWait_v2 = lost  # type: ignore[method-assign]
    list(islice(watching(nvml), 5))
    assert nvml.slept_s == 4 * PERIOD_S


def test_gpus_without_events_are_looked_at_all_the_same(nvml: Watched) -> None:
    nvml.extra.kinds = 0
    list(islice(watching(nvml), 3))
    assert nvml.slept_s == 2 * PERIOD_S
    assert nvml.extra.sets == 0


def test_looks_that_cost_much_come_less_often(nvml: Watched) -> None:
    nvml.look_cpu_s = 0.05
    first, second = islice(watching(nvml), 2)
    assert [first.next_s, second.next_s] == pytest.approx([0.05 / MOST_CPU] * 2)
    nvml.look_cpu_s = 60.0
    assert list(islice(watching(nvml), 2))[1].next_s == LONGEST_PERIOD_S


def test_driver_that_does_not_answer_is_told_and_asked_again(nvml: Watched) -> None:
    nvml.broken["nvmlInit"] = 9
    watch = watching(nvml)
    assert [next(watch).error, next(watch).error] == ["9", "9"]
    assert nvml.slept_s == PERIOD_S
    del nvml.broken["nvmlInit"]
    assert next(watch).error == ""


def test_driver_that_stops_to_answer_is_told_and_opened_anew(nvml: Watched) -> None:
    watch = watching(nvml)
    next(watch)
    nvml.broken["nvmlDeviceGetCount"] = 9
    assert next(watch).error == "9"
    assert (nvml.initialized, nvml.extra.sets) == (0, 0)
    del nvml.broken["nvmlDeviceGetCount"]
    assert next(watch).addresses


def test_nvml_is_opened_anew_each_hour_because_its_count_stands_still(nvml: Watched) -> None:
    watch = watching(nvml)
    for _ in range(int(3 * REOPEN_S / PERIOD_S)):
        next(watch)
        assert nvml.initialized == 1
        assert nvml.extra.sets == 1
    watch.close()  # type: ignore[attr-defined]
    assert (nvml.initialized, nvml.extra.sets) == (0, 0)


def test_gpu_that_has_fallen_off_the_bus_is_a_fault_and_not_there(nvml: Watched) -> None:
    lost = nvml.devices()[0].uuid
    watch = watching(nvml)
    next(watch)
    for call in ("nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo"):
        nvml.gpus[0][call] = {"error": GPU_IS_LOST}
    report = reports(nvml, Watched().devices(), sleep=nvml.sleep, cpu_s=nvml.cpu_s)
    told = next(report)
    assert [(each.device, each.remedy) for each in told.findings] == [(0, Remedy.REBOOT)]
    assert lost not in told.addresses


def test_xid_of_a_partitioned_gpu_is_one_of_each_of_its_partitions() -> None:
    nvml = Watched("a100-mig.json")
    uuids = [
        *(each["nvmlDeviceGetUUID"] for each in nvml.gpus[0]["partitions"] if each),
        nvml.gpus[1]["nvmlDeviceGetUUID"],
    ]
    devices = [
        Device(index, "A100 MIG 1g.5gb" if index < 3 else "A100", uuid)
        for index, uuid in enumerate(uuids)
    ]
    nvml.extra.events = [Event(nvml.gpus[0], XID, 79), Event(nvml.gpus[1], XID, 31)]
    watched = reports(nvml, devices, sleep=nvml.sleep, cpu_s=nvml.cpu_s)
    first, second = islice(watched, 2)
    assert first.partitions == dict.fromkeys(uuids[:3], "0000:07:00")
    assert first.findings == ()
    assert second.xids == ((0, 79), (1, 79), (2, 79), (3, 31))
