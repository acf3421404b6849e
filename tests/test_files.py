"""Files and directories get their modes whatever the umask is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.files import make_directory, write_once, write_whole


@pytest.fixture(params=[0o000, 0o022, 0o027, 0o077, 0o777])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_umask")
def test_directory_is_for_its_owner_and_its_new_parents_cannot_be_written_by_others(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o700)
    for _ in range(2):
        make_directory(tmp_path / "a/b/c")
    assert [mode(tmp_path / path) for path in ("a", "a/b", "a/b/c")] == [0o755, 0o755, 0o700]
    assert mode(tmp_path) == 0o700


@pytest.mark.usefixtures("_umask")
def test_directory_that_is_there_keeps_its_mode_and_a_file_is_none(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    make_directory(tmp_path)
    assert mode(tmp_path) == 0o750
    write_whole(tmp_path / "file", "text")
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "file")


@pytest.mark.usefixtures("_umask")
def test_directory_of_ours_that_others_may_write_gets_its_mode_again(tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    directory.chmod(0o777)
    make_directory(directory, is_set=True)
    assert mode(directory) == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "file", is_set=True)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("wanted", [0o600, 0o644])
def test_file_has_its_mode_whatever_the_former_one_had(tmp_path: Path, wanted: int) -> None:
    path = tmp_path / "file"
    for content in ("former", b"later"):
        write_whole(path, content, wanted)
        assert mode(path) == wanted
        path.chmod(0o666)
    assert path.read_text() == "later"
    assert [*tmp_path.iterdir()] == [path]


def test_file_that_cannot_be_written_leaves_the_former_one(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    (path / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_whole(path, "text")
    assert [*tmp_path.iterdir()] == [path]


def test_file_that_is_written_once_keeps_its_first_content(tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        write_once(tmp_path / "secret", content)
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]
    assert (tmp_path / "secret").read_bytes() == b"one"
    assert mode(tmp_path / "secret") == 0o600
