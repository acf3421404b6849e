"""The files that a kernel keeps in its scratch directory are measured, and bounded."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.supervisor.driver import Driver
from tests.patience import until

from muster.agent.supervisor import disk_usage
from muster.agent.supervisor.disk_usage import MAX_DEPTH, Walk

MIB = 1 << 20


def measured(path: Path, limit_bytes: int = MIB) -> str:
    return Walk(limit_bytes, math.inf).measure(str(path))


def test_tree_within_its_limit_is_fine(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x" * (MIB // 2))

    assert measured(tmp_path) == ""


def test_tree_above_its_limit_is_told(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x" * (MIB // 2))

    assert measured(tmp_path) == "more than 1 MiB"


def test_file_with_several_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (MIB // 2))
    for name in ("b", "c", "d"):
        (tmp_path / name).hardlink_to(tmp_path / "a")

    assert measured(tmp_path) == ""


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "file").write_bytes(b"x" * (2 * MIB))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "link").symlink_to(tmp_path / "large")
    (tmp_path / "other").symlink_to(tmp_path / "large")

    assert measured(scratch) == ""
    assert measured(tmp_path / "other") == ""


def test_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    assert measured(tmp_path) == ""
    assert measured(tmp_path / "fifo") == ""


def test_tree_that_is_too_deep_is_told(tmp_path: Path) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(MAX_DEPTH + 2):
            os.mkdir("d")  # noqa: PTH102 - a path of all of them is too long
            os.chdir("d")
    finally:
        os.chdir(before)

    assert measured(tmp_path, 100 * MIB) == f"directories more than {MAX_DEPTH} deep"


def test_tree_of_too_many_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_usage, "MAX_FILES", 10)
    for number in range(11):
        (tmp_path / str(number)).touch()

    assert measured(tmp_path) == "more than 10 files"


def test_walk_that_takes_too_long_says_nothing(tmp_path: Path) -> None:
    for number in range(1001):
        (tmp_path / str(number)).touch()

    assert Walk(MIB * 100, 0.0).measure(str(tmp_path)) == ""


def test_trees_for_which_no_time_is_left_are_not_told_to_be_fine(tmp_path: Path) -> None:
    """A user whose tree takes long to walk must not have the trees of others go unmeasured."""
    script = (
        "import sys; from muster.agent.supervisor import disk_usage; disk_usage._TIME_S = -1.0; "
        "disk_usage.main(sys.argv[1:])"
    )
    trees = [str(MIB), str(tmp_path)] * 2
    run = subprocess.run(
        [sys.executable, "-c", script, *trees], capture_output=True, check=True, timeout=30
    )
    assert run.stdout == b""


def test_kernel_that_keeps_more_than_it_may_is_killed(supervisor: Driver) -> None:
    fill = "head -c 4000000 /dev/zero > file; sleep 60"
    supervisor.start("modest", command=["sh", "-c", fill], disk_bytes=16 * MIB)
    supervisor.start("greedy", command=["sh", "-c", fill], disk_bytes=MIB)

    end = supervisor.ended("greedy")
    assert (end["reason"], end["detail"]) == ("disk_limit", "more than 1 MiB")
    assert supervisor.status("modest") == "running"


def test_scratch_directories_of_other_users_are_forgotten_too(
    supervisor: Driver, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    (place / "k.1").mkdir(parents=True)
    (place / "k.1" / "file").touch()
    (place / "k.1" / "link").symlink_to(tmp_path)
    (place / "other.1").mkdir()

    keys = [{"id": "k", "generation": 1}]
    supervisor.say(op="forget", kernels=keys, places=[str(place)])

    until(lambda: not (place / "k.1").exists())
    assert (place / "other.1").exists()
