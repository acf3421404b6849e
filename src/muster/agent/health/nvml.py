"""The check of GPUs by the counters and states that NVML tells (source: NVML).

It takes less than a second and disturbs nothing. A GPU that does not have something, or does not
tell it, is not worse for that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from muster.agent.health.check import CheckedMachine, PythonCheck
from muster.agent.mig import MigNvml, partitions_of
from muster.core.health.kernel_log import pci_address
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import Finding, Severity, Verdict, unknown, verdict_of
from muster.core.health.xid import named_action
from muster.core.health.xid_catalogue import OF_ACTION, XidAction
from muster.core.resources import Device, is_partition
from muster.core.text import count

CHECK = "nvml"

# NVML's own numbers.
NOT_SUPPORTED = 3
GPU_IS_LOST = 15
RESET_REQUIRED = 16
_SILENT = frozenset({2, 4, NOT_SUPPORTED, 13, 21, 25, 26})
"""Errors that say that something is not to be had here: invalid argument, no permission, not
supported, no such function, no data, another version, deprecated."""
_UNCORRECTED = 1
_VOLATILE, _AGGREGATE = 0, 1
_SENSOR = 0
_SLOWDOWN = 1
_RECOVERY_ACTION = 230
_HW_SLOWDOWN = 0x08
_REASONS: Mapping[int, str] = {
    0x20: "the driver slows it down because it is hot",
    0x40: "the hardware slows it down because it is hot",
    0x80: "the power supply slows it down",
}

T = TypeVar("T")


class _Value(Protocol):
    @property
    def uiVal(self) -> int: ...


class FieldValue(Protocol):
    """One answer of ``nvmlDeviceGetFieldValues``."""

    @property
    def nvmlReturn(self) -> int: ...

    @property
    def value(self) -> _Value: ...


class PciInfo(Protocol):
    """The answer of ``nvmlDeviceGetPciInfo``."""

    @property
    def busId(self) -> str | bytes: ...


class Nvml(MigNvml, Protocol):
    """The calls of NVML that are made here, under its own names: the module ``pynvml`` has them."""

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...

    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes: ...

    def nvmlDeviceGetPciInfo(self, handle: Any) -> PciInfo: ...

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, errorType: int, counterType: int) -> int: ...

    def nvmlDeviceGetRemappedRows(self, device: Any) -> tuple[int, int, int, int]: ...

    def nvmlDeviceGetRetiredPagesPendingStatus(self, device: Any) -> int: ...

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: Any) -> int: ...

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: Any) -> int: ...

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: Any) -> int: ...

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: Any) -> int: ...

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int: ...

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int: ...

    def nvmlDeviceGetTemperatureThreshold(self, handle: Any, threshold: int) -> int: ...

    def nvmlDeviceGetFieldValues(
        self, handle: Any, fieldIds: list[int]
    ) -> Sequence[FieldValue]: ...


class NvmlCheck(PythonCheck):
    """The counters and states of the machine's GPUs. Those that are merely declared have no UUID,
    so NVML knows nothing of them, and would make each of them seem to be missing."""

    name = CHECK
    limit_s = 60.0

    def applies(self, machine: CheckedMachine) -> bool:
        return any(each.uuid for each in machine.devices) and super().applies(machine)

    def look(self, machine: CheckedMachine) -> Verdict:
        import pynvml  # it would cost 12 MiB where there is no GPU

        return check_gpus(pynvml, machine.devices)


def check_gpus(nvml: Nvml, declared: Sequence[Device]) -> Verdict:
    """The verdict on the GPUs that the agent declared; on all that are there if it declared none.

    A GPU that was declared and is not there any more is a fault.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return unknown(CHECK, "the NVIDIA driver does not answer", _words(error))
    try:
        return verdict_of(CHECK, _findings(nvml, declared))
    except nvml.NVMLError as error:
        return unknown(CHECK, "the GPUs cannot be listed", _words(error))
    finally:
        nvml.nvmlShutdown()


def standing(nvml: Nvml, declared: Sequence[Device]) -> list[Finding]:
    """The findings of ``check_gpus`` on an NVML that is open.

    Raises:
        NVMLError: the GPUs cannot be listed.
    """
    return list(_findings(nvml, declared))


def pci_addresses(nvml: Nvml) -> dict[str, str]:
    """The addresses of all GPUs that tell theirs, by their UUIDs, of an NVML that is open: to be
    asked for while they work, so that a GPU that has fallen off the bus is known by its address in
    the kernel's log.

    Raises:
        NVMLError: the driver does not answer.
    """
    found: dict[str, str] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            address = pci_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
            if address is not None:
                found[_text(nvml.nvmlDeviceGetUUID(handle))] = address
    return found


def partition_addresses(nvml: Nvml) -> dict[str, str]:
    """The addresses of the GPUs of all partitions, by the UUIDs of these.

    Raises:
        NVMLError: the driver does not answer.
    """
    found: dict[str, str] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        with suppress(nvml.NVMLError):
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            partitions = partitions_of(nvml, gpu)
            if not partitions:
                continue
            address = pci_address(_text(nvml.nvmlDeviceGetPciInfo(gpu).busId))
            if address is not None:
                found |= {_text(nvml.nvmlDeviceGetUUID(each)): address for each in partitions}
    return found


def devices_by_gpu(nvml: Nvml, declared: Sequence[Device]) -> dict[int, tuple[int, ...]]:
    """The indexes of the agent's devices by NVML's index of the GPU that they are, or of which they
    are partitions.

    Raises:
        NVMLError: the GPUs cannot be listed.
    """
    there, _ = _listed(nvml)
    found: dict[int, tuple[int, ...]] = {}
    for device in declared:
        if device.uuid in there:
            index = there[device.uuid][0]
            found[index] = (*found.get(index, ()), device.index)
    return found


def _findings(nvml: Nvml, declared: Sequence[Device]) -> Iterator[Finding]:
    there, silent = _listed(nvml)
    wanted = declared or [
        Device(index, "", uuid) for uuid, (index, _) in there.items() if not is_partition(uuid)
    ]
    for device in wanted:
        if device.uuid in there:
            yield from _Gpu(nvml, there[device.uuid][1], device).findings()
            continue
        if is_partition(device.model) and not silent:
            what = "this partition is not there any more: it was removed, or its GPU was"
            remedy = Remedy.OPERATOR
            yield Finding(
                CHECK, Severity.FAULT, what, device.index, device.uuid, "count", remedy=remedy
            )
            continue
        missing = len([each for each in wanted if each.uuid not in there])
        told = silent.get(device.index, "")
        what = (
            f"this GPU is not there any more: {count(missing, 'GPU')} of {len(wanted)} missing"
            if not told
            else "this GPU does not answer: it has fallen off the bus"
        )
        yield Finding(
            CHECK,
            Severity.FAULT,
            what,
            device.index,
            device.uuid,
            "count",
            told,
            Remedy.REBOOT,
        )


def _listed(nvml: Nvml) -> tuple[dict[str, tuple[int, Any]], dict[int, str]]:
    """The GPUs that are there, index and handle by UUID, and by those of their partitions; and
    those that do not tell theirs, their errors by index.

    Raises:
        NVMLError: they cannot be counted.
    """
    there: dict[str, tuple[int, Any]] = {}
    silent: dict[int, str] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError as error:
            silent[index] = _words(error)
            continue
        there[_text(uuid)] = index, handle
        for partition in partitions_of(nvml, handle) or ():
            there[_text(nvml.nvmlDeviceGetUUID(partition))] = index, handle
    return there, silent


class _Unusable(Exception):
    """A GPU that answers nothing more; the text is the finding's sentence."""

    def __init__(self, what: str, remedy: Remedy) -> None:
        super().__init__(what)
        self.remedy = remedy


class _Gpu:
    """One GPU that is asked."""

    def __init__(self, nvml: Nvml, handle: Any, device: Device) -> None:
        self._nvml = nvml
        self._handle = handle
        self._device = device
        self._unclear: list[Finding] = []

    def findings(self) -> Iterator[Finding]:
        try:
            yield from self._memory()
            yield from self._recovery_action()
            yield from self._link()
            yield from self._heat()
        except _Unusable as error:
            yield self._found(Severity.FAULT, "device", str(error), remedy=error.remedy)
        yield from self._unclear

    def _memory(self) -> Iterator[Finding]:
        nvml, gpu = self._nvml, self._handle
        errors = self._ask(
            "ecc", lambda: nvml.nvmlDeviceGetTotalEccErrors(gpu, _UNCORRECTED, _VOLATILE)
        )
        if errors:
            what = f"{count(errors, 'uncorrectable error')} of memory since the last reset"
            yield self._found(Severity.FAULT, "ecc", what, remedy=Remedy.RESET)
        ever = self._ask(
            "ecc", lambda: nvml.nvmlDeviceGetTotalEccErrors(gpu, _UNCORRECTED, _AGGREGATE)
        )
        if ever and not errors:
            what = f"{count(ever, 'uncorrectable error')} of memory in its life"
            yield self._found(Severity.WARNING, "ecc", what)
        rows = self._ask("row remapping", lambda: nvml.nvmlDeviceGetRemappedRows(gpu))
        if rows is not None:
            _, _, pending, failed = rows
            if failed:
                what = "a row of memory could not be remapped: the GPU has to be replaced"
                yield self._found(Severity.FAULT, "row remapping", what, remedy=Remedy.OPERATOR)
            if pending:
                what = "a row of memory is remapped at the next reset"
                yield self._found(Severity.WARNING, "row remapping", what)
        if self._ask("retired pages", lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu)):
            what = "pages of memory are retired only at the next reboot"
            yield self._found(Severity.FAULT, "retired pages", what, remedy=Remedy.REBOOT)

    def _recovery_action(self) -> Iterator[Finding]:
        values = self._ask(
            "recovery action",
            lambda: self._nvml.nvmlDeviceGetFieldValues(self._handle, [_RECOVERY_ACTION]),
        )
        if not values or values[0].nvmlReturn:
            return
        number = values[0].value.uiVal
        action = named_action(number)
        if action is XidAction.IGNORE:
            return
        severity = Severity.UNKNOWN if action is XidAction.CHECK else Severity.FAULT
        what = f"the driver asks for recovery action {number}: {action}"
        yield self._found(
            severity, "recovery action", what, remedy=OF_ACTION.get(action, Remedy.CHECK)
        )

    def _link(self) -> Iterator[Finding]:
        nvml, gpu = self._nvml, self._handle
        width = self._ask("link", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu))
        widest = self._ask("link", lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu))
        if width and widest and width < widest:
            what = f"its PCIe link has {width} of {widest} lanes"
            yield self._found(Severity.FAULT, "link", what)
        generation = self._ask("link", lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu))
        latest = self._ask("link", lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu))
        if generation and latest and generation < latest:
            what = (
                f"its PCIe link is of generation {generation} of {latest}, which saves power while "
                f"it is idle"
            )
            yield self._found(Severity.WARNING, "link", what)

    def _heat(self) -> Iterator[Finding]:
        nvml, gpu = self._nvml, self._handle
        reasons = self._ask("clocks", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))
        told = [what for bit, what in _REASONS.items() if (reasons or 0) & bit]
        if (reasons or 0) & _HW_SLOWDOWN and not told:
            told = ["the hardware slows it down"]
        for what in told:
            yield self._found(Severity.WARNING, "clocks", what)
        degrees = self._ask("temperature", lambda: nvml.nvmlDeviceGetTemperature(gpu, _SENSOR))
        limit = self._ask(
            "temperature", lambda: nvml.nvmlDeviceGetTemperatureThreshold(gpu, _SLOWDOWN)
        )
        if degrees and limit and degrees >= limit:
            what = f"it has {degrees} °C and is slowed down from {limit} °C on"
            yield self._found(Severity.WARNING, "temperature", what)

    def _ask(self, test: str, call: Callable[[], T]) -> T | None:
        """The answer of a call; None if the GPU does not have what is asked for.

        Raises:
            _Unusable: the GPU answers nothing more.
        """
        try:
            return call()
        except self._nvml.NVMLError as error:
            number = _number(error)
            if number == GPU_IS_LOST:
                raise _Unusable("it has fallen off the bus", Remedy.REBOOT) from None
            if number == RESET_REQUIRED:
                what = "it has to be reset before it can be used"
                raise _Unusable(what, Remedy.RESET) from None
            if number not in _SILENT and all(each.test != test for each in self._unclear):
                what = "the driver does not tell it"
                self._unclear.append(self._found(Severity.UNKNOWN, test, what, _words(error)))
            return None

    def _found(
        self,
        severity: Severity,
        test: str,
        what: str,
        told: str = "",
        remedy: Remedy = Remedy.CHECK,
    ) -> Finding:
        device = self._device
        return Finding(CHECK, severity, what, device.index, device.uuid, test, told, remedy)


def _number(error: Exception) -> int | None:
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) else None


def _text(told: str | bytes) -> str:
    return told.decode(errors="replace") if isinstance(told, bytes) else told


def _words(error: Exception) -> str:
    return f"{error} (NVML error {_number(error)})"
