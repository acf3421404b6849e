"""The identity of a boot: from the operating system, or from a file that lives in memory."""

from pathlib import Path

import pytest

from muster.agent.boot import BOOT_FILE, UnknownBoot, boot_id, boot_within, machine_id
from muster.agent.supervisor import clock
from muster.core.ids import system_boot


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


def test_boot_of_a_part_of_a_machine_lasts_until_it_has_another_name(tmp_path: Path) -> None:
    before_s = clock.now_s()
    first = boot_within(tmp_path, "first")
    assert before_s <= first.began_s <= clock.now_s()
    assert boot_within(tmp_path, "first") == first

    second = boot_within(tmp_path, "second")

    assert second.id != first.id
    assert second.began_s >= first.began_s
    assert len({first.id, second.id, boot_id()}) == 3
    assert system_boot(first.id) == system_boot(second.id) == boot_id() == system_boot(boot_id())


@pytest.mark.parametrize("text", ["", "[]", '{"id": 1}', '{"id": "other", "began_s": 0}'])
def test_boot_that_cannot_be_read_counts_as_over(tmp_path: Path, text: str) -> None:
    before_s = clock.now_s()
    (tmp_path / BOOT_FILE).write_text(text)
    assert boot_within(tmp_path, "first").began_s >= before_s


def test_boot_that_cannot_be_kept_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(UnknownBoot, match="cannot keep the boot"):
        boot_within(tmp_path / "nowhere", "first")
