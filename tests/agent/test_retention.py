"""Old files go by age, and logs by the share of their owner; what is alive stays."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import scratch_sizes
from muster.agent.config import AgentConfig
from muster.agent.removed_outputs import MAX_REMEMBERED, RemovedOutputs
from muster.agent.retention import (
    above_share,
    equal_share,
    left_by_kernels,
    owner_of_log,
    remove_logs,
    too_old,
)
from muster.agent.scratch_sizes import ScratchSizes
from muster.agent.tidying import Tidying
from muster.core.ids import KernelId
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_files import OutputTooOld
from muster.wire.messages import KernelKey

NOW = 1_700_000_000.0
BLOCK = 4096
NONE: frozenset[KernelKey] = frozenset()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "kernels").mkdir()
    return tmp_path


def key(kernel: str) -> KernelKey:
    return KernelId(kernel), 1


def log(directory: Path, name: str, age_s: float, size_bytes: int = 1, owner: str = "") -> None:
    path = directory / "logs" / name
    path.write_bytes(b"x" * size_bytes)
    os.utime(path, (NOW - age_s, NOW - age_s))
    if owner:
        link = path.with_name(f"{name}.owner")
        link.symlink_to(owner)
        os.utime(link, (NOW - age_s, NOW - age_s), follow_symlinks=False)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "logs").iterdir())


def old(directory: Path, live: frozenset[KernelKey] = NONE) -> list[str]:
    found = left_by_kernels(directory, ())
    return [kernel for kernel, _ in too_old(found, NOW, 100.0, live.__contains__)]


def above(directory: Path, max_bytes: int, live: frozenset[KernelKey] = NONE) -> list[str]:
    """The kernels whose logs are above the share of their owners."""
    found = left_by_kernels(directory, ())

    def owner(key: KernelKey) -> str:
        return owner_of_log(directory / "logs", key)

    return [each.key[0] for each in above_share(found, max_bytes, owner, live.__contains__)]


def test_young_logs_are_kept(directory: Path) -> None:
    log(directory, "krn-a.1.log", 99)
    assert old(directory) == []


def test_logs_past_their_age_are_removed_with_all_their_files(directory: Path) -> None:
    log(directory, "krn-a.1.log", 200)
    log(directory, "krn-b.1.log", 50)
    log(directory, "krn-b.1.log.1", 500)
    assert old(directory) == ["krn-a"]


def test_owner_with_the_most_loses_its_oldest_however_young(directory: Path) -> None:
    log(directory, "krn-a.1.log", 90, 2 * BLOCK, owner="d/p/ada")
    for age_s, name in enumerate(["krn-e", "krn-d", "krn-c", "krn-b"]):
        log(directory, f"{name}.1.log", age_s, 4 * BLOCK, owner="d/p/mallory")
    assert above(directory, 18 * BLOCK) == []
    assert above(directory, 12 * BLOCK) == ["krn-b", "krn-c"]
    assert above(directory, 8 * BLOCK) == ["krn-b", "krn-c", "krn-d"]


def test_live_logs_of_one_owner_cost_no_other_its_own(directory: Path) -> None:
    log(directory, "krn-a.1.log", 90, 2 * BLOCK, owner="d/p/ada")
    log(directory, "krn-b.1.log", 10, 40 * BLOCK, owner="d/p/mallory")
    live = frozenset({key("krn-b")})
    assert above(directory, 10 * BLOCK, live) == []


def test_logs_of_unknown_owners_count_as_one_owners(directory: Path) -> None:
    log(directory, "krn-a.1.log", 90, 4 * BLOCK, owner="d/p/ada")
    log(directory, "krn-b.1.log", 80, 4 * BLOCK)
    log(directory, "krn-c.1.log", 70, 4 * BLOCK)
    assert above(directory, 8 * BLOCK) == ["krn-b"]


def test_logs_of_live_kernels_are_kept_whatever_their_age_and_size(directory: Path) -> None:
    log(directory, "krn-a.1.log", 1000, size_bytes=10 * BLOCK)
    log(directory, "krn-b.1.log", 50)
    live = frozenset({key("krn-a")})
    assert (old(directory, live), above(directory, BLOCK, live)) == ([], ["krn-b"])


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(0, 5000))
def test_equal_share_leaves_small_owners_all_they_have(amounts: list[int], limit: int) -> None:
    share = equal_share(amounts, limit)
    assert sum(min(amount, share) for amount in amounts) <= max(limit, 0)
    assert share >= min(limit // len(amounts), max(amounts))


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
    assert left_by_kernels(directory, [scratch]) == {}


def test_files_of_a_user_take_no_room_from_the_logs_of_others(
    directory: Path, scratch: Path
) -> None:
    log(directory, "krn-a.1.log", 50)
    (scratch / "krn-b.1").write_bytes(b"x" * 100 * BLOCK)
    assert sum(each.log_bytes for each in left_by_kernels(directory, [scratch]).values()) == BLOCK


# -- tidying ---------------------------------------------------------------------------------------


def tidying(
    directory: Path,
    max_bytes: int = 2**40,
    scratch_bytes: int = 2**40,
    live: frozenset[KernelKey] = NONE,
) -> tuple[Tidying, RemovedOutputs]:
    config = AgentConfig(
        directory,
        "host:1",
        "a",
        logs_max_age_s=100.0,
        logs_max_bytes=max_bytes,
        kept_scratch_max_bytes=scratch_bytes,
    )
    removed = RemovedOutputs(directory / "removed-outputs")
    return Tidying(config, removed, live.__contains__), removed


def test_scratch_directory_is_looked_for_where_it_was_found(directory: Path, scratch: Path) -> None:
    log(directory, "krn-a.1.log", 200)
    log(directory, "krn-b.1.log", 300)
    (scratch / "krn-b.1").mkdir()
    os.utime(scratch / "krn-b.1", (NOW - 300, NOW - 300))
    tidy, _ = tidying(directory)
    assert tidy.run([scratch], NOW) == [(key("krn-b"), (scratch,)), (key("krn-a"), ())]


def test_log_above_a_share_goes_and_the_scratch_directory_stays(directory: Path) -> None:
    log(directory, "krn-a.1.log", 50, 4 * BLOCK, owner="d/p/ada")
    log(directory, "krn-b.1.log", 50, 8 * BLOCK, owner="d/p/mallory")
    (directory / "kernels" / "krn-b.1").mkdir()
    tidy, removed = tidying(directory, max_bytes=8 * BLOCK)
    assert tidy.run((), NOW) == []
    assert names(directory) == ["krn-a.1.log", "krn-a.1.log.owner", "krn-b.1.log.owner"]
    assert (directory / "kernels" / "krn-b.1").is_dir()
    told = removed.of(key("krn-b"))
    assert told is not None
    assert told.sentence() == (
        "its output was removed at 2023-11-14T22:13:20+00:00, because output of its owner took "
        "32KiB on its machine, more than the share of 16KiB, and the oldest goes first"
    )
    assert removed.of(key("krn-a")) is None


def leave(place: Path, kernel: str, age_s: float, blocks: int) -> Path:
    """Have a kernel leave a scratch directory with a file of so many blocks in it."""
    scratch = place / f"{kernel}.1"
    (scratch / "deep").mkdir(parents=True)
    (scratch / "deep" / "weights").write_bytes(b"x" * blocks * BLOCK)
    os.utime(scratch, (NOW - age_s, NOW - age_s))
    return scratch


def left(place: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in place.iterdir())


def test_owner_with_the_most_scratch_loses_its_oldest_and_keeps_the_output(
    directory: Path,
) -> None:
    kernels = directory / "kernels"
    for kernel, age_s, owner in (("krn-a", 90, "d/p/ada"), ("krn-b", 80, "d/p/mallory")):
        log(directory, f"{kernel}.1.log", age_s, owner=owner)
        leave(kernels, kernel, age_s, 100)
    log(directory, "krn-c.1.log", 70, owner="d/p/mallory")
    leave(kernels, "krn-c", 70, 200)
    assert tidying(directory, scratch_bytes=420 * BLOCK)[0].run((), NOW) == []
    assert left(kernels) == ["krn-a", "krn-b", "krn-c"]
    assert tidying(directory, scratch_bytes=350 * BLOCK)[0].run((), NOW) == []
    assert left(kernels) == ["krn-a", "krn-c"]
    assert len([name for name in names(directory) if name.endswith(".log")]) == 3


def test_scratch_of_a_kernel_that_runs_neither_goes_nor_counts(directory: Path) -> None:
    kernels = directory / "kernels"
    leave(kernels, "krn-a", 90, 500)
    leave(kernels, "krn-b", 80, 50)
    live = frozenset({key("krn-a")})
    tidying(directory, scratch_bytes=100 * BLOCK, live=live)[0].run((), NOW)
    assert left(kernels) == ["krn-a", "krn-b"]
    tidying(directory, scratch_bytes=10 * BLOCK, live=live)[0].run((), NOW)
    assert left(kernels) == ["krn-a"]


def test_owner_of_scratch_is_known_once_its_log_was_removed(directory: Path) -> None:
    kernels = directory / "kernels"
    for kernel, owner in (("krn-a", "d/p/ada"), ("krn-b", "d/p/mallory")):
        log(directory, f"{kernel}.1.log", 50, 4 * BLOCK, owner=owner)
    leave(kernels, "krn-a", 50, 10)
    leave(kernels, "krn-b", 40, 100)
    tidy, _ = tidying(directory, max_bytes=0, scratch_bytes=80 * BLOCK)
    tidy.run((), NOW)
    assert names(directory) == ["krn-a.1.log.owner", "krn-b.1.log.owner"]
    assert left(kernels) == ["krn-a"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root's kernels run as other users")
def test_scratch_of_another_user_is_that_users(directory: Path, scratch: Path) -> None:
    other = scratch.parents[1] / "200001" / "scratch"
    other.mkdir(parents=True)
    for place, uid, kernel, blocks in (
        (scratch, 200_000, "krn-a", 50),
        (other, 200_001, "krn-b", 60),
        (other, 200_001, "krn-c", 70),
    ):
        os.chown(leave(place, kernel, 50, blocks), uid, uid)
    tidying(directory, scratch_bytes=150 * BLOCK)[0].run([scratch, other], NOW)
    assert left(scratch) == ["krn-a"]
    assert len(left(other)) == 1


def test_tree_is_measured_once_and_again_after_a_while(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, scratch = ScratchSizes(), leave(directory / "kernels", "krn-a", 50, 10)

    def measured() -> int:
        found = left_by_kernels(directory, ())
        sizes.measure(found, NONE.__contains__)
        return found[key("krn-a")].scratch_bytes // BLOCK

    first = measured()
    (scratch / "more").write_bytes(b"x" * 10 * BLOCK)
    assert measured() == first
    monkeypatch.setattr(scratch_sizes, "AGAIN_S", 0.0)
    assert measured() >= first + 10


def test_why_an_output_was_removed_is_known_over_a_restart(directory: Path) -> None:
    log(directory, "krn-a.1.log", 200)
    tidying(directory)[0].run((), NOW)
    with (directory / "removed-outputs").open("a") as file:
        file.write('["krn-b", 1, "OUTPUT_TOO')  # cut off by a crash
    told = tidying(directory)[1].of(key("krn-a"))
    assert told is not None
    assert told.code is ReasonCode.OUTPUT_TOO_OLD


def test_number_of_remembered_outputs_has_a_bound(directory: Path) -> None:
    file = directory / "removed-outputs"
    removed = RemovedOutputs(file)
    why = OutputTooOld(at="now", kept_s=1.0)
    for start in range(0, 3 * MAX_REMEMBERED, 10_000):
        removed.note({key(f"krn-{number}"): why for number in range(start, start + 10_000)})
    assert removed.of(key("krn-0")) is None
    assert removed.of(key(f"krn-{3 * MAX_REMEMBERED - 1}")) == why
    with file.open() as lines:
        assert sum(1 for _ in lines) <= 2 * MAX_REMEMBERED


def test_files_of_one_kernel_are_removed_alone(directory: Path) -> None:
    for name in ("krn-a.1.log", "krn-a.1.log.1", "krn-a.1.log.start", "krn-a.2.log"):
        log(directory, name, 1)
    remove_logs(directory / "logs", [key("krn-a")])
    assert names(directory) == ["krn-a.2.log"]
