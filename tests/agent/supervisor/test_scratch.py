"""Scratch directories that are handed from kernel to kernel."""

import os
from pathlib import Path

import pytest

from muster.agent.supervisor.scratch import ScratchDirectories


@pytest.fixture
def scratch(tmp_path: Path) -> ScratchDirectories:
    return ScratchDirectories(str(tmp_path))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def settled(scratch: ScratchDirectories, name: str) -> int:
    """Make a directory that has been empty for long, and release it; returns its inode."""
    path = Path(scratch.create(name))
    os.utime(path, (1_000_000_000, 1_000_000_000))
    scratch.release(str(path))
    return path.stat().st_ino


def test_directory_left_empty_becomes_the_next_kernels(
    scratch: ScratchDirectories, tmp_path: Path
) -> None:
    inode = settled(scratch, "a")

    for name in ("b", "c"):
        path = Path(scratch.create(name))
        assert path.stat().st_ino == inode
        assert names(tmp_path) == [name]
        scratch.release(str(path))

    scratch.remove_spare()
    assert names(tmp_path) == []


@pytest.mark.parametrize("for_long", [True, False])
def test_directory_with_a_file_is_kept_and_not_handed_on(
    scratch: ScratchDirectories, tmp_path: Path, for_long: bool
) -> None:
    if for_long:
        settled(scratch, "a")
    path = Path(scratch.create("b"))
    (path / "file").touch()
    scratch.release(str(path))

    scratch.create("c")

    assert names(tmp_path) == ["b", "c"]
    assert names(path) == ["file"]
    assert names(tmp_path / "c") == []


def test_directory_of_an_earlier_try_is_used_again(
    scratch: ScratchDirectories, tmp_path: Path
) -> None:
    settled(scratch, "spare")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()

    path = scratch.create("a")
    assert names(Path(path)) == ["file"]
    scratch.release(path)

    assert names(tmp_path) == ["a"]


def test_only_a_few_are_kept(scratch: ScratchDirectories, tmp_path: Path) -> None:
    for path in [scratch.create(str(number)) for number in range(100)]:
        scratch.release(path)

    assert len(names(tmp_path)) == 16
