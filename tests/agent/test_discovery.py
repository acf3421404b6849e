"""The resources of a machine: declared, or found and limited by its cgroups."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import cgroup_limits
from muster.agent.config import AgentConfig
from muster.agent.discovery import discover, parse_gpus
from muster.core.errors import InvalidSpec
from muster.core.resources import MAX_DEVICES, Device


def config(directory: Path, **fields: object) -> AgentConfig:
    return AgentConfig(directory, "127.0.0.1:1", "a1", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("4xH100", ["H100"] * 4),
        ("2xA100,1xT4", ["A100", "A100", "T4"]),
        (" 1 x RTX 4090 , 1xT4", ["RTX 4090", "T4"]),
        ("2", ["gpu", "gpu"]),
        ("0", []),
        ("none", []),
        ("", []),
    ],
)
def test_declared_gpus_are_numbered_devices(text: str, models: list[str]) -> None:
    assert parse_gpus(text) == tuple(Device(n, model) for n, model in enumerate(models))


@pytest.mark.parametrize("text", ["H100", "4x", "-1xT4", "2xA100,,1xT4", "1.5xT4", "4xH100;", "x4"])
def test_declaration_that_cannot_be_understood_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidSpec, match="such as 4, 4xH100"):
        parse_gpus(text)


def test_absurd_number_of_gpus_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=f"at most {MAX_DEVICES}"):
        parse_gpus(f"{MAX_DEVICES - 4}xT4,5xH100")


@given(st.text("0123456789xT4, -.", max_size=20))
def test_any_declaration_is_devices_or_refused_as_such(text: str) -> None:
    with suppress(InvalidSpec):
        assert [device.index for device in parse_gpus(text)] == list(range(len(parse_gpus(text))))


def test_declared_resources_replace_what_is_found(tmp_path: Path) -> None:
    declared = config(
        tmp_path,
        cpu_milli=64_000,
        memory_bytes=2**40,
        disk_bytes=2**41,
        gpus="8xH100",
        extra={"licence": 2000},
        attributes={"rack": "r7", "arch": "riscv64"},
    )
    machine = discover(declared)
    assert machine.capacity.as_dict() == {
        "cpu": 64_000,
        "memory": 2**40,
        "disk": 2**41,
        "gpu": 8000,
        "licence": 2000,
    }
    assert machine.attributes["rack"] == "r7"
    assert machine.attributes["arch"] == "riscv64"
    assert machine.attributes["gpu_model"] == "H100"
    assert machine.attributes["hostname"] == os.uname().nodename


def test_declared_devices_have_the_declared_memory(tmp_path: Path) -> None:
    machine = discover(config(tmp_path, gpus="2xH100", gpu_memory_bytes=80 * 2**30))
    assert machine.devices == tuple(Device(n, "H100", memory_bytes=80 * 2**30) for n in (0, 1))


def test_found_resources_are_those_of_the_machine(tmp_path: Path) -> None:
    machine = discover(config(tmp_path))
    assert 0 < machine.capacity.cpu_milli <= 1000 * len(os.sched_getaffinity(0))
    assert 2**20 < machine.capacity.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * 2**12
    assert machine.capacity.gpu_milli == 1000 * len(machine.devices)


def test_extra_resource_with_a_strange_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="lower-case"):
        discover(config(tmp_path, gpus="none", extra={"My Licence": 1000}))


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    return tmp_path / "membership"


def limit(path: Path, value: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value)


def test_limits_of_cgroup_v2_are_those_of_every_level(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/slice/unit\n")
    limit(tmp_path / "slice" / "cpu.max", "150000 100000\n")
    limit(tmp_path / "slice" / "unit" / "cpu.max", "max 100000\n")
    limit(tmp_path / "slice" / "memory.max", "max\n")
    limit(tmp_path / "slice" / "unit" / "memory.max", "1073741824\n")
    assert list(cgroup_limits.cpu_milli(tmp_path, membership)) == [1500]
    assert list(cgroup_limits.memory_bytes(tmp_path, membership)) == [2**30]


def test_limits_of_cgroup_v1_are_found_by_controller(tmp_path: Path, membership: Path) -> None:
    membership.write_text("4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n")
    limit(tmp_path / "cpu" / "cpu.cfs_quota_us", "50000\n")
    limit(tmp_path / "cpu" / "cpu.cfs_period_us", "100000\n")
    limit(tmp_path / "memory" / "docker" / "abc" / "memory.limit_in_bytes", "4096\n")
    assert list(cgroup_limits.cpu_milli(tmp_path, membership)) == [500]
    assert list(cgroup_limits.memory_bytes(tmp_path, membership)) == [4096]


def test_machine_without_cgroups_has_no_limits(tmp_path: Path) -> None:
    assert list(cgroup_limits.cpu_milli(tmp_path, tmp_path / "absent")) == []
    assert list(cgroup_limits.memory_bytes(tmp_path, tmp_path / "absent")) == []
