"""Facts that the watch of a machine's health keeps over restarts and reboots."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent.health.memory import (
    FILE,
    LONGEST_AWAY_S,
    MAX_BYTES,
    MAX_GPUS,
    WatchMemory,
    encoded,
    load_memory,
    write_memory,
)
from muster.core.health.kernel_log import XidEvent
from muster.core.health.remedy import Remedy
from muster.wire.messages import Sighting

NOON = 1_700_000_000.0
ADDRESS = "0000:1b:00"


def full() -> WatchMemory:
    return WatchMemory(
        boot="boot-1",
        began_s=5.0,
        clock_s=105.0,
        time_s=NOON,
        read_to=77,
        xids={ADDRESS: (XidEvent(ADDRESS, 79, "words", 50.0, 3, 7, "python"),)},
        gpus={"GPU-0": ADDRESS},
        missing={"GPU-0": "boot-0"},
        standing={"0/ecc": 60.0},
        last_seq=9,
        untold=(Sighting(9, Remedy.RESET, "Xid 95", (0,), True, "boot-1", NOON),),
    )


def test_memory_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_memory(tmp_path, encoded(full()))
    assert load_memory(tmp_path, NOON) == full()
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "damaged",
    [b"", b"{", b"[]", b'{"xids": {"a": 7}}', b"\xff\xfe", b'{"last_seq": "no"}', b"[" * 100_000],
)
def test_damaged_file_counts_as_none_and_numbers_still_rise(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / FILE).write_bytes(damaged)
    memory = load_memory(tmp_path, NOON)
    assert memory == WatchMemory(last_seq=int(1000 * NOON))


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b" " * (MAX_BYTES + 1))
    assert load_memory(tmp_path, NOON).boot == ""


def test_file_that_was_written_half_is_never_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_memory(tmp_path, encoded(full()))

    def fail(_: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="full"):
        write_memory(tmp_path, encoded(WatchMemory()))
    assert load_memory(tmp_path, NOON) == full()


def test_memory_is_bounded() -> None:
    memory = WatchMemory(
        xids={f"0000:{n:02x}:00": (XidEvent("a", 79, "x" * 300, 1.0),) * 500 for n in range(500)},
        gpus={f"GPU-{n}": ADDRESS for n in range(500)},
        missing={f"GPU-{n}": "b" for n in range(500)},
        standing={str(n): 1.0 for n in range(5000)},
    )
    assert len(encoded(memory)) < MAX_BYTES
    assert len(memory.gpus) == MAX_GPUS
    assert set(memory.missing) <= set(memory.gpus)


def test_clock_goes_on_over_a_reboot_by_the_time_of_day() -> None:
    memory = full()
    memory.enter("boot-2", boot_s=30.0, time_s=NOON + 600.0)
    assert memory.began_s == 105.0 + 600.0 - 30.0
    assert (memory.read_to, memory.standing) == (None, {})
    assert memory.xids, "Xids are remembered over reboots"


def test_same_boot_changes_nothing() -> None:
    memory = full()
    memory.enter("boot-1", boot_s=500.0, time_s=NOON + 400.0)
    assert memory == full()


def test_clock_of_a_fresh_memory_is_that_of_the_boot() -> None:
    memory = WatchMemory()
    memory.enter("boot-1", boot_s=300.0, time_s=NOON)
    assert memory.clock_s - memory.began_s == 300.0


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 1e6),  # of uptime when the boot was entered
            st.floats(0.0, 1e6),  # of uptime more when it was written last
            st.floats(-1e9, 1e10),  # the time of day jumps
        ),
        max_size=20,
    )
)
def test_clock_never_goes_back_nor_far_ahead_however_the_time_of_day_jumps(
    boots: list[tuple[float, float, float]],
) -> None:
    memory, clock_s = WatchMemory(), 0.0
    for nth, (boot_s, more_s, time_s) in enumerate(boots):
        memory.enter(f"boot-{nth}", boot_s, time_s)
        assert clock_s <= memory.began_s
        assert memory.clock_s <= clock_s + LONGEST_AWAY_S + boot_s + 1.0
        memory.note_time(boot_s + more_s, time_s + more_s)
        clock_s = memory.clock_s
