"""A disk counts as full once nothing can be relied on there, whatever the reason."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.agent import disk
from muster.agent.disk import DiskProbe, is_full


@contextmanager
def no_file_may_grow() -> Iterator[None]:
    """Writing fails as with a quota that is used up, while the file system has room."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_disk_is_full_as_long_as_nothing_can_be_written(tmp_path: Path) -> None:
    assert not is_full(tmp_path)
    with no_file_may_grow():
        assert is_full(tmp_path)
    assert not is_full(tmp_path)
    assert not list(tmp_path.iterdir())


def test_directory_that_is_gone_counts_as_full(tmp_path: Path) -> None:
    assert is_full(tmp_path / "gone")


def test_disk_that_hangs_counts_as_full_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "HANGING_S", 0.0)
    answers = threading.Event()
    probe = DiskProbe(lambda: not answers.wait(60.0))
    assert probe.is_full()
    assert probe.is_full(), "and nobody waits for it a second time"
    answers.set()
    while probe.is_full():
        pass


def test_disk_that_is_slow_counts_as_it_did_before() -> None:
    answers = threading.Event()
    probe = DiskProbe(lambda: answers.wait(60.0))
    assert not probe.is_full()
    answers.set()
    while not probe.is_full():
        pass
