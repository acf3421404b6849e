"""GPUs as NVML reports them; none where there is no driver."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.core.resources import Device

log = logging.getLogger(__name__)

_DRIVER_SIGNS = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/proc/driver/nvidia"))


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a machine, and the driver's version."""

    devices: tuple[Device, ...] = ()
    driver: str = ""


def find_gpus() -> Gpus:
    """All GPUs of this machine, in the order of their PCI addresses.

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
        devices = [_device(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        return Gpus(tuple(devices), _text(pynvml.nvmlSystemGetDriverVersion()))
    except pynvml.NVMLError as error:
        log.warning("no GPUs: they cannot be listed: %s", error)
        return Gpus()
    finally:
        pynvml.nvmlShutdown()


def _device(nvml: Any, index: int) -> Device:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return Device(
        index,
        _text(nvml.nvmlDeviceGetName(handle)).removeprefix("NVIDIA ").removeprefix("Tesla "),
        _text(nvml.nvmlDeviceGetUUID(handle)),
        nvml.nvmlDeviceGetMemoryInfo(handle).total,
    )


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
