"""The journal's file: what is in it after appends, compaction and a death in between."""

import os
from pathlib import Path

import pytest

from muster.agent.supervisor.journal import Journal, Replay
from muster.agent.supervisor.kernel import Event, OwnKernel, Status

PADDING = "x" * 1000


def opened(path: Path) -> tuple[Journal, Replay]:
    journal, replay = Journal.open(str(path / "journal"), "boot")
    journal.begin()
    journal.write()
    return journal, replay


def running(name: str, pid: int) -> OwnKernel:
    return OwnKernel((name, 1), shape="s", status=Status.RUNNING, pid=pid, born_ticks=(5, 6))


def event(name: str, kind: str) -> Event:
    return {"kernel": name, "generation": 1, "kind": kind, "at": 1.0, "detail": PADDING}


def read_all(journal: Journal, after_seq: int) -> list[int]:
    """The last numbers of all batches after one."""
    seqs: list[int] = []
    offset = 0
    while True:
        batches, next_offset = journal.read(offset, after_seq)
        seqs += [batch.last_seq for batch in batches]
        if next_offset == offset:
            return seqs
        offset = next_offset


def test_nothing_is_sendable_before_it_is_written(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.record([event("a", "ended"), event("b", "started")], running("b", 7))

    (batch,) = journal.write()

    assert batch.last_seq == 2
    assert journal.write() == []
    assert read_all(journal, 0) == [2], "events of one moment stay one batch"


def test_what_waits_for_room_is_bounded_and_on_file_once_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = opened(tmp_path)
    kernel = running("a", 7)
    journal.accept([kernel])
    journal.write()
    full = os.open("/dev/full", os.O_RDWR)
    file, journal._fd = journal._fd, full
    monkeypatch.setattr("muster.agent.supervisor.journal._MAX_PENDING", 3)
    for name in "bcdef":
        journal.record([event(name, "ended")])
        assert [batch.last_seq for batch in journal.write()] == [journal.last_seq]
    journal.acknowledge(3)
    journal.write()
    assert len(journal._pending) <= 3
    journal._fd = file
    os.close(full)
    journal.compact_if_due([kernel])
    assert not journal.failing

    reopened, replay = opened(tmp_path)

    assert [found["kernel"] for found in replay.unacknowledged] == ["e", "f"]
    assert list(replay.survivors) == [("a", 1)]
    assert read_all(reopened, 3) == [4, 5]


def test_kernel_is_a_survivor_from_its_acceptance_to_its_end(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    kernels = [running(name, pid) for name, pid in (("a", 7), ("b", 8), ("c", 9))]
    journal.accept(kernels)
    journal.record([event("a", "started")], kernels[0])
    journal.record([event("a", "ended"), event("b", "started")], kernels[1])
    journal.write()

    _, replay = opened(tmp_path)

    assert {key: survivor.pid for key, survivor in replay.survivors.items()} == {
        ("b", 1): 8,
        ("c", 1): 0,
    }
    assert replay.survivors["b", 1].born_ticks == (5, 6)
    assert [event["seq"] for event in replay.unacknowledged] == [1, 2, 3]
    assert (replay.next_seq, replay.boot_id) == (4, "boot")


def test_failed_creation_is_no_survivor_until_it_is_accepted_again(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.accept([running("a", 7)])
    journal.record([event("a", "create_failed")])
    journal.write()
    assert not opened(tmp_path)[1].survivors

    journal.accept([running("a", 7)])
    journal.write()

    assert set(opened(tmp_path)[1].survivors) == {("a", 1)}


def test_compaction_keeps_the_living_and_the_unacknowledged(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    alive, queued = running("alive", 7), OwnKernel(("queued", 1), shape="s")
    journal.accept([alive, queued])
    journal.record([event("alive", "started")], alive)
    for _ in range(5000):
        journal.record([event("gone", "ended")])
    journal.acknowledge(4990)
    journal.write()
    size_before = (tmp_path / "journal").stat().st_size

    journal.compact_if_due([alive, queued])

    assert journal.compactions == 1
    assert (tmp_path / "journal").stat().st_size < size_before / 100
    assert read_all(journal, 0) == list(range(4991, 5002))
    journal.record([event("alive", "ended")])
    journal.write()
    _, replay = opened(tmp_path)
    assert {key: survivor.pid for key, survivor in replay.survivors.items()} == {("queued", 1): 0}
    assert [event["seq"] for event in replay.unacknowledged] == list(range(4991, 5003))
    assert (replay.next_seq, replay.acked_seq) == (5003, 4990)


def test_journal_with_nothing_left_in_it_shrinks_early(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    for _ in range(100):
        journal.record([event("gone", "ended")])
    journal.write()
    journal.compact_if_due([])
    assert journal.compactions == 0, "somebody still waits for these"

    journal.acknowledge(100)
    journal.write()
    journal.compact_if_due([])

    assert (tmp_path / "journal").stat().st_size < 200
    assert opened(tmp_path)[1].next_seq == 101


def test_batch_larger_than_one_read_is_read_whole(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.record([event("a", "ended") for _ in range(1000)])
    journal.record([event("b", "ended")])
    journal.write()

    assert read_all(journal, 0) == [1000, 1001]
    assert read_all(journal, 1000) == [1001]


def test_line_that_is_not_json_does_not_hide_those_around_it(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.record([event("a", "ended")])
    journal.write()
    with (tmp_path / "journal").open("a") as file:
        file.write('{"events":[\n[1]\n')
    journal, _ = opened(tmp_path)
    journal.record([event("b", "ended")])
    journal.write()

    _, replay = opened(tmp_path)

    assert [event["seq"] for event in replay.unacknowledged] == [1, 2]
    assert read_all(journal, 0) == [1, 2]
