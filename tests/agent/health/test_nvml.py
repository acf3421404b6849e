"""GPUs judged by what NVML tells of them, with recorded answers."""

from typing import Any

import pynvml
import pytest
from tests.agent.health.recorded import Recorded

from muster.agent.health.check import CheckedMachine, visible
from muster.agent.health.dcgm import DcgmCheck
from muster.agent.health.nvml import (
    GPU_IS_LOST,
    RESET_REQUIRED,
    NvmlCheck,
    check_gpus,
    devices_by_gpu,
    partition_addresses,
    pci_addresses,
)
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import CheckResult, Finding, Severity, Verdict
from muster.core.resources import Device

FAULT, WARNING, UNKNOWN = Severity.FAULT, Severity.WARNING, Severity.UNKNOWN


@pytest.fixture
def nvml() -> Recorded:
    """Two healthy GPUs."""
    return Recorded("h100-healthy.json")


def judged(nvml: Recorded) -> Verdict:
    verdict = check_gpus(nvml, nvml.devices())
    assert nvml.initialized == 0
    return verdict


def found(nvml: Recorded) -> list[Finding]:
    """The findings about the first GPU."""
    return [each for each in judged(nvml).findings if each.device == 0]


def test_recorded_calls_and_their_numbers_are_those_of_the_library(nvml: Recorded) -> None:
    calls = [name for name in dir(nvml) if name.startswith("nvml")]
    assert [name for name in calls if name not in vars(pynvml)] == []
    assert (GPU_IS_LOST, RESET_REQUIRED) == (
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
    )
    assert pynvml.NVMLError(GPU_IS_LOST).args == (GPU_IS_LOST,)


def test_gpus_that_work_are_healthy_and_one_that_saves_power_is_too(nvml: Recorded) -> None:
    verdict = judged(nvml)
    assert verdict.result is CheckResult.HEALTHY
    assert [(each.device, each.test) for each in verdict.findings] == [(1, "link")]


def test_gpus_that_are_merely_declared_are_not_looked_for(nvml: Recorded) -> None:
    check = NvmlCheck()
    assert check.applies(CheckedMachine(devices=tuple(nvml.devices())))
    assert not check.applies(CheckedMachine(devices=(Device(0, "H100"), Device(1, "H100"))))
    assert not check.applies(CheckedMachine())


def test_gpu_that_tells_little_is_not_worse_for_it() -> None:
    assert judged(Recorded("t4-old-driver.json")).findings == ()


@pytest.mark.parametrize(
    ("call", "answer", "test", "severity", "what"),
    [
        ("TotalEccErrors", {"1,0": 2, "1,1": 9}, "ecc", FAULT, "2 uncorrectable errors of"),
        ("TotalEccErrors", {"1,0": 0, "1,1": 9}, "ecc", WARNING, "9 uncorrectable errors of"),
        ("RemappedRows", [1, 0, 0, 1], "row remapping", FAULT, "could not be remapped"),
        ("RemappedRows", [1, 0, 1, 0], "row remapping", WARNING, "at the next reset"),
        ("RetiredPagesPendingStatus", 1, "retired pages", FAULT, "only at the next reboot"),
        ("FieldValues", {"230": 1}, "recovery action", FAULT, "action 1: reset"),
        ("FieldValues", {"230": 2}, "recovery action", FAULT, "action 2: reboot"),
        ("FieldValues", {"230": 3}, "recovery action", UNKNOWN, "action 3: check"),
        ("CurrPcieLinkWidth", 8, "link", FAULT, "8 of 16 lanes"),
        ("CurrPcieLinkGeneration", 3, "link", WARNING, "generation 3 of 5"),
        ("CurrentClocksThrottleReasons", 0x48, "clocks", WARNING, "because it is hot"),
        ("CurrentClocksThrottleReasons", 0x08, "clocks", WARNING, "the hardware slows it down"),
        ("CurrentClocksThrottleReasons", 0x80, "clocks", WARNING, "power supply"),
        ("Temperature", {"0": 95}, "temperature", WARNING, "95 °C and is slowed down from 89 °C"),
        ("TotalEccErrors", {"error": 999}, "ecc", UNKNOWN, "the driver does not tell it"),
        ("RemappedRows", {"error": 10}, "row remapping", UNKNOWN, "the driver does not tell it"),
        ("Temperature", {"error": GPU_IS_LOST}, "device", FAULT, "fallen off the bus"),
        ("TotalEccErrors", {"error": RESET_REQUIRED}, "device", FAULT, "has to be reset"),
    ],
)
def test_one_answer_is_one_finding_of_its_gpu(
    nvml: Recorded, call: str, answer: object, test: str, severity: Severity, what: str
) -> None:
    nvml.gpus[0][f"nvmlDeviceGet{call}"] = answer
    (finding,) = found(nvml)
    assert (finding.test, finding.severity) == (test, severity)
    assert what in finding.what
    assert finding.uuid == nvml.gpus[0]["nvmlDeviceGetUUID"]


@pytest.mark.parametrize("error", [2, 3, 4, 13, 21, 25, 26])
def test_call_that_is_not_supported_finds_nothing(nvml: Recorded, error: int) -> None:
    for call in [name for name in nvml.gpus[0] if name != "nvmlDeviceGetUUID"]:
        nvml.gpus[0][call] = {"error": error}
    assert found(nvml) == []


def test_gpu_that_is_lost_is_asked_nothing_more_and_the_other_one_is(nvml: Recorded) -> None:
    for call in [name for name in nvml.gpus[0] if name != "nvmlDeviceGetUUID"]:
        nvml.gpus[0][call] = {"error": GPU_IS_LOST}
    nvml.gpus[1]["nvmlDeviceGetCurrPcieLinkWidth"] = 4
    faults = [each for each in judged(nvml).findings if each.severity is FAULT]
    assert [(each.device, each.test) for each in faults] == [(0, "device"), (1, "link")]


def test_gpu_that_does_not_even_tell_its_name_is_the_one_with_its_index(nvml: Recorded) -> None:
    declared = nvml.devices()
    nvml.gpus[0]["nvmlDeviceGetHandleByIndex"] = {"error": GPU_IS_LOST}
    (finding,) = [each for each in check_gpus(nvml, declared).findings if each.device == 0]
    assert finding.what == "this GPU does not answer: it has fallen off the bus"
    assert finding.severity is FAULT


def test_gpu_that_was_declared_and_is_not_there_any_more_is_a_fault(nvml: Recorded) -> None:
    declared = nvml.devices()
    del nvml.gpus[0]
    faults = [each for each in check_gpus(nvml, declared).findings if each.severity is FAULT]
    assert [(each.device, each.test, each.what) for each in faults] == [
        (0, "count", "this GPU is not there any more: 1 GPU of 2 missing")
    ]


def test_other_gpu_in_the_place_of_a_declared_one_does_not_hide_that_it_is_missing(
    nvml: Recorded,
) -> None:
    declared = nvml.devices()
    nvml.gpus[1]["nvmlDeviceGetUUID"] = "GPU-other"
    assert [each.device for each in check_gpus(nvml, declared).findings] == [1]


def test_machine_that_declared_none_has_all_of_its_gpus_judged(nvml: Recorded) -> None:
    nvml.gpus[1]["nvmlDeviceGetCurrPcieLinkWidth"] = 4
    assert check_gpus(nvml, []).findings[0].device == 1


def test_gpu_whose_name_is_bytes_is_known(nvml: Recorded) -> None:
    class OldBinding(Recorded):
        def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> bytes:
            return str(handle["nvmlDeviceGetUUID"]).encode()

    old = OldBinding("t4-old-driver.json")
    assert check_gpus(old, old.devices()).findings == ()


def test_addresses_are_those_by_which_the_kernels_log_names_gpus(nvml: Recorded) -> None:
    first, second = (each.uuid for each in nvml.devices())
    assert pci_addresses(nvml) == {first: "0000:1b:00", second: "0000:5d:00"}
    nvml.gpus[0]["nvmlDeviceGetPciInfo"] = {"error": GPU_IS_LOST}
    assert pci_addresses(nvml) == {second: "0000:5d:00"}


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount"])
def test_driver_that_does_not_answer_is_unknown(nvml: Recorded, call: str) -> None:
    nvml.broken[call] = 9
    verdict = judged(nvml)
    assert verdict.result is CheckResult.UNKNOWN
    assert "NVML error 9" in verdict.findings[0].told


def test_device_without_a_uuid_is_missing_only_if_it_is() -> None:
    nvml = Recorded("h100-healthy.json")
    assert [each.device for each in check_gpus(nvml, [Device(5, "A", "GPU-5")]).findings] == [5]


# Partitions

ON_A100 = (
    Device(0, "A100-SXM4-40GB MIG 3g.20gb", "MIG-33333333-0000-0000-0000-000000000000"),
    Device(1, "A100-SXM4-40GB MIG 1g.5gb", "MIG-11111111-0000-0000-0000-000000000000"),
    Device(2, "A100-SXM4-40GB MIG 1g.5gb", "MIG-22222222-0000-0000-0000-000000000000"),
    Device(3, "A100-SXM4-40GB", "GPU-bbbbbbbb-0000-0000-0000-000000000000"),
)


@pytest.fixture
def partitioned() -> Recorded:
    """A healthy GPU with three partitions, and a whole one."""
    return Recorded("a100-mig.json")


def test_partitions_of_healthy_gpus_are_healthy(partitioned: Recorded) -> None:
    assert check_gpus(partitioned, ON_A100) == Verdict(("nvml",))


def test_fault_of_a_gpu_is_one_of_all_of_its_partitions(partitioned: Recorded) -> None:
    partitioned.gpus[0]["nvmlDeviceGetTotalEccErrors"] = {"1,0": 3, "1,1": 3}
    findings = check_gpus(partitioned, ON_A100).findings
    assert [(each.device, each.test) for each in findings] == [(0, "ecc"), (1, "ecc"), (2, "ecc")]


def test_partition_that_was_removed_is_an_operators_affair(partitioned: Recorded) -> None:
    partitioned.gpus[0]["partitions"].pop(0)
    verdict = check_gpus(partitioned, ON_A100)
    (finding,) = verdict.findings
    assert (finding.device, finding.remedy) == (0, Remedy.OPERATOR)
    assert finding.what == "this partition is not there any more: it was removed, or its GPU was"


def test_partitions_of_a_gpu_that_fell_off_the_bus_ask_for_a_reboot(partitioned: Recorded) -> None:
    partitioned.gpus[0]["nvmlDeviceGetHandleByIndex"] = {"error": GPU_IS_LOST}
    verdict = check_gpus(partitioned, ON_A100)
    assert [each.device for each in verdict.findings] == [0, 1, 2]
    assert verdict.remedy is Remedy.REBOOT


def test_partitions_are_at_the_address_of_their_gpu(partitioned: Recorded) -> None:
    assert partition_addresses(partitioned) == {each.uuid: "0000:07:00" for each in ON_A100[:3]}
    assert devices_by_gpu(partitioned, ON_A100) == {0: (0, 1, 2), 1: (3,)}
    assert devices_by_gpu(partitioned, ON_A100[3:]) == {1: (3,)}


def test_gpus_with_partitions_are_not_reset_and_not_tested_by_dcgm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("muster.agent.health.dcgm.shutil.which", lambda program: "/bin/true")
    assert not DcgmCheck().applies(CheckedMachine(devices=ON_A100, level=2))
    assert DcgmCheck().applies(CheckedMachine(devices=ON_A100[3:], level=2))
    seen = visible(CheckedMachine(devices=ON_A100[2:]))
    assert seen["CUDA_VISIBLE_DEVICES"] == ",".join(each.uuid for each in ON_A100[2:])
    assert visible(CheckedMachine(devices=ON_A100[3:]))["CUDA_VISIBLE_DEVICES"] == "3"
