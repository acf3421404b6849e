"""The identity of a boot: from the operating system, or from a file that lives in memory."""

from pathlib import Path

import pytest

from muster.agent.boot import UnknownBoot, boot_id, machine_id


def test_boot_id_is_that_of_the_kernel() -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_boot_id_without_the_kernels_lasts_as_long_as_memory(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    first = boot_id(absent, tmp_path)
    assert boot_id(absent, tmp_path) == first
    for path in tmp_path.iterdir():
        path.unlink()
    assert boot_id(absent, tmp_path) != first


def test_boot_id_that_cannot_be_known_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(UnknownBoot):
        boot_id(tmp_path / "absent", tmp_path / "nowhere")


def test_machine_without_an_id_has_none(tmp_path: Path) -> None:
    assert machine_id(tmp_path / "absent") == ""
    (tmp_path / "machine-id").write_text("3d12\n")
    assert machine_id(tmp_path / "machine-id") == "3d12"
