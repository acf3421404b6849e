"""GPUs as NVML tells of them; a stand-in for NVML, because test machines have none."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.agent import gpus
from muster.agent.gpus import Gpus, find_gpus
from muster.core.resources import Device


class NVMLError(Exception):
    pass


class Nvml:
    """Two GPUs, old style (bytes) and new."""

    NVMLError = NVMLError
    names = (b"Tesla T4", "NVIDIA H200")

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.1"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return self.names[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=2**34)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that looks as if it had the driver."""
    monkeypatch.setattr(gpus, "_DRIVER_SIGNS", (tmp_path,))


@pytest.mark.usefixtures("driver")
def test_gpus_are_those_that_nvml_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    assert find_gpus() == Gpus(
        (Device(0, "T4", "GPU-0", 2**34), Device(1, "H200", "GPU-1", 2**34)), "570.1"
    )


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount"])
def test_driver_that_does_not_work_is_no_gpus_and_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    def fail() -> None:
        raise NVMLError("Driver/library version mismatch")

    nvml = Nvml()
    setattr(nvml, broken, fail)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert find_gpus() == Gpus()
    assert "version mismatch" in caplog.text


def test_machine_without_a_driver_has_no_gpus_and_does_not_ask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpus, "_DRIVER_SIGNS", (tmp_path / "absent",))
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it would fail
    assert find_gpus() == Gpus()
