"""GPUs as NVML tells of them; a stand-in for NVML, because test machines have none."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.agent.health.recorded import Recorded

from muster.agent import discovery, gpus
from muster.agent.config import AgentConfig
from muster.agent.discovery import discover
from muster.agent.gpus import Gpus, find_gpus
from muster.agent.mig import cuda_names, profile
from muster.core.resources import Device, is_model, is_partition


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

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        raise NVMLError(3)


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


# Partitions

PARTITIONS = (
    Device(
        0,
        "A100-SXM4-40GB MIG 3g.20gb",
        "MIG-33333333-0000-0000-0000-000000000000",
        20937965568,
    ),
    Device(1, "A100-SXM4-40GB MIG 1g.5gb", "MIG-11111111-0000-0000-0000-000000000000", 5100273664),
    Device(2, "A100-SXM4-40GB MIG 1g.5gb", "MIG-22222222-0000-0000-0000-000000000000", 5100273664),
)
WHOLE = Device(3, "A100-SXM4-40GB", "GPU-bbbbbbbb-0000-0000-0000-000000000000", 42505076736)


@pytest.mark.usefixtures("driver")
def test_partitions_stand_in_place_of_their_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Recorded("a100-mig.json"))
    assert find_gpus() == Gpus((*PARTITIONS, WHOLE), "570.1")


@pytest.mark.usefixtures("driver")
def test_machine_tells_its_kinds_of_partitions_as_an_attribute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Recorded("a100-mig.json"))
    found = discover(AgentConfig(tmp_path, "127.0.0.1:1", "a"))
    assert found.attributes["gpu_mig"] == "3g.20gb,1g.5gb"
    assert found.capacity.gpu_milli == 4000
    assert "gpu_mig" in discovery.FOUND_ATTRIBUTES


@pytest.mark.usefixtures("driver")
def test_gpu_in_mig_mode_without_partitions_is_none_and_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nvml = Recorded("a100-mig.json")
    nvml.gpus[0]["partitions"] = [None, None]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    (device,) = find_gpus().devices
    assert device.uuid == WHOLE.uuid
    assert "GPU 0 is in MIG mode and has no partitions" in caplog.text


def test_devices_are_named_to_cuda_where_there_are_partitions() -> None:
    names = cuda_names((*PARTITIONS, WHOLE))
    assert names == {each.index: each.uuid for each in (*PARTITIONS, WHOLE)}
    assert cuda_names((Device(0, "H100", "GPU-0"),)) == {}


@pytest.mark.parametrize(
    ("slices", "memory_mib", "gpu_mib", "name"),
    [
        ((1, 1), 4864, 40536, "1g.5gb"),
        ((3, 3), 19968, 40536, "3g.20gb"),
        ((3, 1), 19968, 40536, "1c.3g.20gb"),
        ((1, 1), 9984, 81559, "1g.10gb"),
        ((7, 7), 81559, 81559, "7g.80gb"),
        ((1, 1), 16384, 143771, "1g.18gb"),
    ],
)
def test_kind_of_a_partition_is_named_as_nvidia_does(
    slices: tuple[int, int], memory_mib: int, gpu_mib: int, name: str
) -> None:
    assert profile(*slices, memory_mib, gpu_mib << 20) == name


@pytest.mark.parametrize(
    ("model", "wanted", "meets"),
    [
        ("A100-SXM4-40GB MIG 1g.5gb", "MIG 1g.5gb", True),
        ("A100-SXM4-40GB MIG 1g.5gb", "a100 mig", True),
        ("A100-SXM4-40GB MIG 3g.20gb", "MIG 1g.5gb", False),
        ("A100-SXM4-40GB MIG 1g.5gb", "A100", False),  # nobody who asks for an A100 means a slice
        ("A100-SXM4-40GB", "A100", True),
        ("A100-SXM4-40GB", "A100 MIG", False),
    ],
)
def test_partition_is_met_by_names_with_mig_alone(model: str, wanted: str, meets: bool) -> None:
    assert is_model(model, wanted) is meets
    assert is_partition(model) is ("MIG" in model)
