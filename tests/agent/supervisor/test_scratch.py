"""Scratch directories that are handed from kernel to kernel."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.supervisor.accounts import ADA, BOB

from muster.agent.supervisor.scratch import ScratchDirectories, Tenant, write_files
from muster.core.errors import InvalidSpec
from muster.core.specs import JobSpec, parse_spec


@pytest.fixture
def scratch() -> ScratchDirectories:
    return ScratchDirectories()


def made(scratch: ScratchDirectories, path: Path, owner: str = "a") -> Path:
    scratch.create(str(path), tenant(owner))
    return path


def tenant(owner: str, uid: int | None = None) -> Tenant:
    return Tenant(owner, os.getuid() if uid is None else uid, os.getgid() if uid is None else uid)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def settled(scratch: ScratchDirectories, path: Path, owner: str = "a") -> int:
    """Make a directory that has been empty for long, and release it; returns its inode."""
    made(scratch, path, owner)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    scratch.release(str(path), tenant(owner))
    return path.stat().st_ino


def test_directory_left_empty_becomes_the_next_of_its_owner(
    scratch: ScratchDirectories, tmp_path: Path
) -> None:
    inode = settled(scratch, tmp_path / "a")

    for name in ("b", "c"):
        path = made(scratch, tmp_path / name)
        assert path.stat().st_ino == inode
        assert names(tmp_path) == [name]
        scratch.release(str(path), tenant("a"))

    scratch.remove_spare()
    assert names(tmp_path) == []


@pytest.mark.parametrize("for_long", [True, False])
def test_directory_with_a_file_is_kept_and_not_handed_on(
    scratch: ScratchDirectories, tmp_path: Path, for_long: bool
) -> None:
    if for_long:
        settled(scratch, tmp_path / "a")
    path = made(scratch, tmp_path / "b")
    (path / "file").touch()
    scratch.release(str(path), tenant("a"))

    made(scratch, tmp_path / "c")

    assert names(tmp_path) == ["b", "c"]
    assert names(path) == ["file"]
    assert names(tmp_path / "c") == []


def test_directory_of_an_earlier_try_is_used_again(
    scratch: ScratchDirectories, tmp_path: Path
) -> None:
    settled(scratch, tmp_path / "spare")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()

    path = made(scratch, tmp_path / "a")
    assert names(path) == ["file"]
    scratch.release(str(path), tenant("a"))

    assert names(tmp_path) == ["a"]


def test_only_a_few_are_kept(scratch: ScratchDirectories, tmp_path: Path) -> None:
    for path in [made(scratch, tmp_path / str(number)) for number in range(100)]:
        scratch.release(str(path), tenant("a"))

    assert len(names(tmp_path)) == 64


def test_directory_left_empty_becomes_no_other_owners(
    scratch: ScratchDirectories, tmp_path: Path
) -> None:
    inode = settled(scratch, tmp_path / "a", owner="alice")

    assert made(scratch, tmp_path / "b", owner="bob").stat().st_ino != inode
    assert made(scratch, tmp_path / "c", owner="alice").stat().st_ino == inode


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give directories away")
def test_directory_is_its_users_and_becomes_no_other_users(
    scratch: ScratchDirectories, tmp_path: Path
) -> None:
    ada, moved = tenant("ada", ADA), tenant("ada", BOB)
    for path, owner in ((tmp_path / "a", ada), (tmp_path / "b", moved)):
        scratch.create(str(path), owner)
        assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (owner.uid, 0o700)
        scratch.release(str(path), owner)

    assert names(tmp_path) == ["a", "b"], "kept for the next of the same user"
    scratch.remove_spare()
    assert names(tmp_path) == []


def test_link_in_place_of_a_directory_is_not_taken_for_one(
    scratch: ScratchDirectories, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").symlink_to("elsewhere")

    with pytest.raises(FileExistsError):
        made(scratch, tmp_path / "a")


def test_link_that_a_kernel_left_for_its_directory_is_not_handed_on(
    scratch: ScratchDirectories, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = made(scratch, tmp_path / "a")
    path.rmdir()
    path.symlink_to("elsewhere")
    scratch.release(str(path), tenant("a"))

    assert made(scratch, tmp_path / "b").is_symlink() is False


@pytest.mark.parametrize("planted", ["link", "inner/link"])
def test_files_are_written_through_no_link(tmp_path: Path, planted: str) -> None:
    """An earlier try of the same kernel may have planted the link."""
    scratch, elsewhere = tmp_path / "scratch", tmp_path / "elsewhere"
    (scratch / "inner").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "module.py").write_text("untouched")
    (scratch / planted).symlink_to(elsewhere)
    (scratch / "module.py").symlink_to(elsewhere / "module.py")

    for name in (f"{planted}/new.py", "module.py"):
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            write_files(str(scratch), {name: "x"})

    assert names(elsewhere) == ["module.py"]
    assert (elsewhere / "module.py").read_text() == "untouched"


PARTS = st.sampled_from(["a", "b", "é", "", ".", "..", "\0", "x" * 255, "x" * 256])
PATHS = st.lists(PARTS, max_size=4).map("/".join)


@given(st.dictionaries(PATHS, st.just("text"), max_size=4))
def test_files_that_a_spec_accepts_are_written(files: dict[str, str]) -> None:
    try:
        accepted = parse_spec(JobSpec, {"command": ["x"], "files": files}).files
    except InvalidSpec:
        return
    with tempfile.TemporaryDirectory() as scratch:
        write_files(scratch, accepted)
        for path, text in accepted.items():
            assert (Path(scratch) / path).read_text() == text
