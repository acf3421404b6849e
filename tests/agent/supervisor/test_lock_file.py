"""A lock on a file is one process's, and says whose it is."""

import fcntl
import os
from pathlib import Path

import pytest

from muster.agent.supervisor.lock_file import Taken, holder_of, is_held, take


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_lock_is_held_until_its_descriptor_is_closed(path: Path) -> None:
    lock = take(path)
    assert is_held(path)
    os.close(lock)
    assert not is_held(path)
    os.close(take(path))


def test_lock_that_is_held_names_its_holder_to_whoever_would_take_it(path: Path) -> None:
    lock = take(path)
    try:
        assert holder_of(path) == os.getpid()
        with pytest.raises(Taken) as taken:
            take(path)
        assert taken.value.holder == os.getpid()
        assert path.read_text() == str(os.getpid())
    finally:
        os.close(lock)


def test_process_that_has_held_a_lock_is_no_holder(path: Path) -> None:
    path.write_text("123456")
    assert holder_of(path) is None
    assert not is_held(path)


def test_holder_that_has_not_written_its_id_yet_is_not_known(path: Path) -> None:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_held(path)
        assert holder_of(path) is None


def test_file_that_is_not_there_is_held_by_nobody_and_not_made_by_asking(path: Path) -> None:
    assert not is_held(path)
    assert holder_of(path) is None
    assert not path.exists()


def test_lock_is_for_its_owner_only(path: Path) -> None:
    os.close(take(path))
    assert path.stat().st_mode & 0o777 == 0o600
