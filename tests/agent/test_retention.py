"""Old logs go by age, and by size the oldest first; what is alive stays."""

import os
from pathlib import Path

import pytest

from muster.agent.retention import expired
from muster.core.ids import KernelId
from muster.wire.messages import KernelKey

NOW = 1_700_000_000.0
BLOCK = 4096


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "kernels").mkdir()
    return tmp_path


def key(kernel: str) -> KernelKey:
    return KernelId(kernel), 1


def log(directory: Path, name: str, age_s: float, size_bytes: int = 1) -> None:
    path = directory / "logs" / name
    path.write_bytes(b"x" * size_bytes)
    os.utime(path, (NOW - age_s, NOW - age_s))


def old(directory: Path, max_bytes: int = 2**40, live: set[KernelKey] = frozenset()) -> list[str]:  # type: ignore[assignment]
    found = expired(directory, (), NOW, 100.0, max_bytes, live.__contains__)
    return [kernel for (kernel, _generation), _places in found]


def test_young_logs_are_kept(directory: Path) -> None:
    log(directory, "krn-a.1.log", 99)
    assert old(directory) == []


def test_logs_past_their_age_are_removed_with_all_their_files(directory: Path) -> None:
    log(directory, "krn-a.1.log", 200)
    log(directory, "krn-b.1.log", 50)
    log(directory, "krn-b.1.log.1", 500)
    assert old(directory) == ["krn-a"]


def test_oldest_logs_are_removed_until_the_rest_fit(directory: Path) -> None:
    for age_s, name in enumerate(["krn-c", "krn-b", "krn-a"]):
        log(directory, f"{name}.1.log", age_s, size_bytes=3 * BLOCK)
    assert old(directory, max_bytes=7 * BLOCK) == ["krn-a"]
    assert old(directory, max_bytes=5 * BLOCK) == ["krn-a", "krn-b"]


def test_logs_of_live_kernels_are_kept_whatever_their_age_and_size(directory: Path) -> None:
    log(directory, "krn-a.1.log", 1000, size_bytes=10 * BLOCK)
    log(directory, "krn-b.1.log", 50)
    assert old(directory, max_bytes=BLOCK, live={key("krn-a")}) == ["krn-b"]


def test_scratch_directory_without_a_log_goes_by_its_age(directory: Path) -> None:
    scratch = directory / "kernels" / "krn-a.1"
    scratch.mkdir()
    os.utime(scratch, (NOW - 200, NOW - 200))
    assert old(directory) == ["krn-a"]


def test_files_that_are_no_logs_are_left_alone(directory: Path) -> None:
    log(directory, "notes.txt", 1000)
    log(directory, "krn-a.log", 1000)
    assert old(directory) == []


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A directory of scratch directories, which is a user's to fill."""
    place = tmp_path / "users" / "200000" / "scratch"
    place.mkdir(parents=True)
    return place


@pytest.mark.parametrize(
    "name", ["x.²", ".5", "two words.1", b"\xff.1", "x.-1", "x.1_0", "x." + "9" * 200, "x\n.1"]
)
def test_name_that_a_user_has_chosen_is_left_alone(
    directory: Path, scratch: Path, name: str | bytes
) -> None:
    os.mkdir(os.path.join(os.fsencode(scratch), os.fsencode(name)))  # noqa: PTH102, PTH118
    found = expired(directory, [scratch], NOW + 1e9, 100.0, 2**40, lambda _: False)
    assert found == []


def test_files_of_a_user_take_no_room_from_the_logs_of_others(
    directory: Path, scratch: Path
) -> None:
    log(directory, "krn-a.1.log", 50)
    (scratch / "krn-b.1").write_bytes(b"x" * 100 * BLOCK)
    os.utime(scratch / "krn-b.1", (NOW, NOW))

    found = expired(directory, [scratch], NOW, 100.0, 10 * BLOCK, lambda _: False)

    assert found == []


def test_scratch_directory_is_looked_for_where_it_was_found(directory: Path, scratch: Path) -> None:
    log(directory, "krn-a.1.log", 200)
    log(directory, "krn-b.1.log", 300)
    (scratch / "krn-b.1").mkdir()
    os.utime(scratch / "krn-b.1", (NOW - 300, NOW - 300))

    found = expired(directory, [scratch], NOW, 100.0, 2**40, lambda _: False)

    assert found == [(key("krn-b"), (scratch,)), (key("krn-a"), ())]
