"""Partitions of GPUs (MIG devices), which NVML has beside the GPUs that they are parts of (source:
NVML), and their names (source: MIG User Guide).

A GPU in MIG mode runs nothing by itself: each of its partitions is a device with memory and
processors of its own, and a UUID, by which alone CUDA can be told to use it.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Protocol

from muster.core.resources import Device, is_partition

ENABLED = 1
"""NVML's number of the mode in which a GPU is partitioned."""
NOT_FOUND = 6
"""NVML's error where there is no partition with an index."""
_EIGHTHS = 8
_GIB, _MIB = 1 << 30, 1 << 20


class MigNvml(Protocol):
    """The calls of NVML about partitions, under its own names."""

    @property
    def NVMLError(self) -> type[Exception]:
        """The errors that all calls raise, with NVML's number as their first argument."""

    def nvmlDeviceGetMigMode(self, device: Any) -> Sequence[int]: ...

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any) -> int: ...

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: int) -> Any: ...


def partitions_of(nvml: MigNvml, gpu: Any) -> list[Any] | None:
    """The handles of a GPU's partitions; None if the GPU is used as a whole.

    Raises:
        NVMLError: the driver does not tell one of them.
    """
    try:
        mode, *_ = nvml.nvmlDeviceGetMigMode(gpu)
    except nvml.NVMLError:  # a GPU or a driver without this mode
        return None
    if mode != ENABLED:
        return None
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except nvml.NVMLError as error:
            if error.args[:1] != (NOT_FOUND,):
                raise
    return found


def profile(
    instance_slices: int, compute_slices: int, memory_mib: int, gpu_memory_bytes: int
) -> str:
    """The name of a partition's kind, such as 1g.5gb, or 1c.3g.20gb of a part of an instance.

    Args:
        instance_slices: of the GPU instance, in which the partition is.
        compute_slices: of the partition itself.
        memory_mib: of the partition, which is told as that many eighths of the GPU's memory.
        gpu_memory_bytes: of the whole GPU.
    """
    eighths = ceil(_EIGHTHS * memory_mib * _MIB / max(gpu_memory_bytes, 1))
    gb = round(eighths / _EIGHTHS * ceil(gpu_memory_bytes / _GIB))
    part = f"{compute_slices}c." if compute_slices != instance_slices else ""
    return f"{part}{instance_slices}g.{gb}gb"


def cuda_names(devices: Sequence[Device]) -> Mapping[int, str]:
    """The names by which CUDA is told of devices, by their indexes, where numbers will not do: on a
    machine with partitions, which are not counted with the GPUs. Empty elsewhere."""
    if not any(is_partition(device.model) for device in devices):
        return {}
    return {device.index: device.uuid for device in devices if device.uuid}
