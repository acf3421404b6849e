"""GPUs as NVML reports them, and the partitions of those that are in MIG mode; none where there is
no driver."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.agent.mig import partitions_of, profile
from muster.core.resources import Device, is_partition

log = logging.getLogger(__name__)

_DRIVER_SIGNS = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/proc/driver/nvidia"))


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a machine, and the driver's version."""

    devices: tuple[Device, ...] = ()
    driver: str = ""


def find_gpus() -> Gpus:
    """All GPUs of this machine, in the order of their PCI addresses; in place of one in MIG mode
    its partitions.

    A driver that does not work causes a warning, and no failed start of the agent.
    """
    if not any(sign.exists() for sign in _DRIVER_SIGNS):
        return Gpus()  # the import below would cost 12 MiB
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.warning("no GPUs: the NVIDIA driver does not answer: %s", error)
        return Gpus()
    try:
        return Gpus(tuple(_devices(pynvml)), _text(pynvml.nvmlSystemGetDriverVersion()))
    except pynvml.NVMLError as error:
        log.warning("no GPUs: they cannot be listed: %s", error)
        return Gpus()
    finally:
        pynvml.nvmlShutdown()


def _devices(nvml: Any) -> Iterator[Device]:
    """The devices that work can be given, numbered in the order in which they are found."""
    number = 0
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        partitions = partitions_of(nvml, gpu)
        if partitions is None:
            yield _device(nvml, number, gpu, _model(nvml, gpu))
            number += 1
            continue
        if not partitions:
            log.warning("GPU %d is in MIG mode and has no partitions: it can run nothing", index)
        for partition in partitions:
            yield _device(nvml, number, partition, _model_of_partition(nvml, gpu, partition))
            number += 1


def _device(nvml: Any, number: int, handle: Any, model: str) -> Device:
    memory_bytes = nvml.nvmlDeviceGetMemoryInfo(handle).total
    return Device(number, model, _text(nvml.nvmlDeviceGetUUID(handle)), memory_bytes)


def _model(nvml: Any, handle: Any) -> str:
    return _text(nvml.nvmlDeviceGetName(handle)).removeprefix("NVIDIA ").removeprefix("Tesla ")


def _model_of_partition(nvml: Any, gpu: Any, partition: Any) -> str:
    """The model of a partition: that of the GPU, and the kind of partition. Newer drivers name it
    so themselves."""
    named = _model(nvml, partition)
    if is_partition(named):
        return named
    has = nvml.nvmlDeviceGetAttributes_v2(partition)
    kind = profile(
        has.gpuInstanceSliceCount,
        has.computeInstanceSliceCount,
        has.memorySizeMB,
        nvml.nvmlDeviceGetMemoryInfo(gpu).total,
    )
    return f"{_model(nvml, gpu)} MIG {kind}"


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
