"""Recorded answers of NVML in place of its library: ``data/*.json``.

An answer stands under the name of its call, by the call's other arguments where it has some;
``{"error": 15}`` is raised.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.core.resources import Device

DATA = Path(__file__).parent / "data"


class RecordedError(Exception):
    """An error of NVML, with its number."""


@dataclass(frozen=True, slots=True)
class _Unsigned:
    uiVal: int


@dataclass(frozen=True, slots=True)
class _Field:
    nvmlReturn: int
    value: _Unsigned


@dataclass(frozen=True, slots=True)
class _PciInfo:
    busId: bytes


@dataclass(frozen=True, slots=True)
class _Memory:
    total: int


@dataclass(frozen=True, slots=True)
class _Attributes:
    gpuInstanceSliceCount: int
    computeInstanceSliceCount: int
    memorySizeMB: int


@dataclass(frozen=True, slots=True)
class _Utilization:
    gpu: int


class Recorded:
    """NVML as a file has it; ``gpus`` may be changed."""

    NVMLError: type[Exception] = RecordedError

    def __init__(self, name: str) -> None:
        self.gpus: list[dict[str, Any]] = json.loads((DATA / name).read_text())["devices"]
        self.broken: dict[str, int] = {}
        """Numbers of errors, by the calls that raise them for no device."""
        self.initialized = 0

    def devices(self) -> list[Device]:
        """The GPUs as an agent declares them."""
        return [
            Device(index, "any", each["nvmlDeviceGetUUID"]) for index, each in enumerate(self.gpus)
        ]

    def nvmlInit(self) -> None:
        self._may("nvmlInit")
        self.initialized += 1

    def nvmlShutdown(self) -> None:
        self.initialized -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._may("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        handle = self.gpus[index]
        if "nvmlDeviceGetHandleByIndex" in handle:
            self._answer(handle, "nvmlDeviceGetHandleByIndex")
        return handle

    def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> str | bytes:
        return str(self._answer(handle, "nvmlDeviceGetUUID"))

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.1"

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> str | bytes:
        return str(self._answer(handle, "nvmlDeviceGetName"))

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any]) -> _Memory:
        return _Memory(int(self._answer(handle, "nvmlDeviceGetMemoryInfo")))

    def nvmlDeviceGetAttributes_v2(self, device: dict[str, Any]) -> _Attributes:
        return _Attributes(*self._answer(device, "nvmlDeviceGetAttributes_v2"))

    def nvmlDeviceGetMigMode(self, device: dict[str, Any]) -> list[int]:
        """A GPU of which it is not recorded has error 3, not supported."""
        recorded = {"nvmlDeviceGetMigMode": {"error": 3}, **device}
        return [*self._answer(recorded, "nvmlDeviceGetMigMode")]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: dict[str, Any]) -> int:
        return len(device["partitions"])

    def nvmlDeviceGetMigDeviceHandleByIndex(
        self, device: dict[str, Any], index: int
    ) -> dict[str, Any]:
        found: dict[str, Any] | None = device["partitions"][index]
        if found is None:
            raise RecordedError(6)
        return found

    def nvmlDeviceGetPciInfo(self, handle: dict[str, Any]) -> _PciInfo:
        return _PciInfo(str(self._answer(handle, "nvmlDeviceGetPciInfo")).encode())

    def nvmlDeviceGetTotalEccErrors(
        self, handle: dict[str, Any], errorType: int, counterType: int
    ) -> int:
        return int(self._answer(handle, "nvmlDeviceGetTotalEccErrors", errorType, counterType))

    def nvmlDeviceGetRemappedRows(self, device: dict[str, Any]) -> tuple[int, int, int, int]:
        a, b, c, d = self._answer(device, "nvmlDeviceGetRemappedRows")
        return a, b, c, d

    def nvmlDeviceGetRetiredPagesPendingStatus(self, device: dict[str, Any]) -> int:
        return int(self._answer(device, "nvmlDeviceGetRetiredPagesPendingStatus"))

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: dict[str, Any]) -> int:
        return int(self._answer(handle, "nvmlDeviceGetCurrPcieLinkWidth"))

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: dict[str, Any]) -> int:
        return int(self._answer(handle, "nvmlDeviceGetMaxPcieLinkWidth"))

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: dict[str, Any]) -> int:
        return int(self._answer(handle, "nvmlDeviceGetCurrPcieLinkGeneration"))

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: dict[str, Any]) -> int:
        return int(self._answer(handle, "nvmlDeviceGetMaxPcieLinkGeneration"))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: dict[str, Any]) -> int:
        return int(self._answer(handle, "nvmlDeviceGetCurrentClocksThrottleReasons"))

    def nvmlDeviceGetTemperature(self, handle: dict[str, Any], sensor: int) -> int:
        return int(self._answer(handle, "nvmlDeviceGetTemperature", sensor))

    def nvmlDeviceGetTemperatureThreshold(self, handle: dict[str, Any], threshold: int) -> int:
        return int(self._answer(handle, "nvmlDeviceGetTemperatureThreshold", threshold))

    def nvmlDeviceGetFieldValues(
        self, handle: dict[str, Any], fieldIds: list[int]
    ) -> Sequence[_Field]:
        """A field that is not recorded has error 3, not supported."""
        values = self._answer(handle, "nvmlDeviceGetFieldValues")
        return [
            _Field(0, _Unsigned(values[str(each)]))
            if str(each) in values
            else _Field(3, _Unsigned(0))
            for each in fieldIds
        ]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:
        for index, each in enumerate(self.gpus):
            if each["nvmlDeviceGetUUID"] == uuid:
                return self.nvmlDeviceGetHandleByIndex(index)
        raise RecordedError(6)

    def nvmlDeviceGetUtilizationRates(self, handle: dict[str, Any]) -> _Utilization:
        return _Utilization(int(self._counter(handle, "nvmlDeviceGetUtilizationRates")))

    def nvmlDeviceGetClockInfo(self, handle: dict[str, Any], type: int) -> int:
        assert type == 1
        return int(self._counter(handle, "nvmlDeviceGetClockInfo"))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: dict[str, Any]) -> int:
        return int(self._counter(handle, "nvmlDeviceGetTotalEnergyConsumption"))

    def nvmlDeviceGetPowerUsage(self, handle: dict[str, Any]) -> int:
        return int(self._counter(handle, "nvmlDeviceGetPowerUsage"))

    def _counter(self, gpu: dict[str, Any], call: str) -> Any:
        """A counter that is not recorded has error 3, not supported."""
        return self._answer({call: {"error": 3}, **gpu}, call)

    def _may(self, call: str) -> None:
        if call in self.broken:
            raise RecordedError(self.broken[call])

    def _answer(self, gpu: dict[str, Any], call: str, *arguments: int) -> Any:
        answer = gpu[call]
        if isinstance(answer, dict) and "error" in answer:
            raise RecordedError(answer["error"])
        return answer[",".join(map(str, arguments))] if arguments else answer
