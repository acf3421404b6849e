"""Times, sizes, arrays and moments as Slurm's people write them, by what Slurm 22.05 makes of
them."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.cli.sbatch import amounts
from muster.cli.sbatch.header import SbatchError

NOW = datetime(2026, 11, 29, 12, 30, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("60", 60),
        ("1:30", 2),
        ("90:00", 90),
        ("00:00:40", 1),
        ("24:00:00", 1440),
        ("1-2", 26 * 60),
        ("1-2:3", 26 * 60 + 3),
        ("0-00:01", 1),
        ("0-0:1:00", 1),
        ("2-00:00:00", 2880),
        ("UNLIMITED", None),
        ("infinite", None),
        ("0-0", None),
    ],
)
def test_times(text: str, minutes: int | None) -> None:
    assert amounts.minutes(text) == minutes


DAYS, HOURS, SIXTY = st.integers(0, 300), st.integers(0, 23), st.integers(0, 59)


@given(DAYS, HOURS, SIXTY, SIXTY)
def test_every_form_of_a_time_is_the_same_time(d: int, h: int, m: int, s: int) -> None:
    seconds = ((d * 24 + h) * 60 + m) * 60 + s
    upward = -(-seconds // 60) or None
    assert amounts.minutes(f"{d}-{h}:{m:02}:{s:02}") == upward
    assert amounts.minutes(f"{d * 24 + h}:{m:02}:{s:02}") == upward
    assert amounts.minutes(f"{seconds // 60}:{s}") == upward
    assert amounts.minutes(f"{d}-{h}:{m}") == ((d * 24 + h) * 60 + m or None)
    assert amounts.minutes(f"{d}-{h}") == ((d * 24 + h) * 60 or None)


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100", 100 * MIB),
        ("2GB", 2048 * MIB),
        ("2Gb", 2048 * MIB),
        ("1gb", 1024 * MIB),
        ("100mb", 100 * MIB),
        ("64K", 65536),
        ("1T", 1024 * 1024 * MIB),
        ("0", 0),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert amounts.size("mem", text) == size


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((amounts.minutes, text) for text in ("25h", "1d", "", "1:2:3:4", "1-", "-5", "1.5", "٣")),
        *((lambda text: amounts.size("mem", text), text) for text in ("1.5G", "3gigs", "", "-1")),
        *((amounts.array, text) for text in ("", "3-1", "1-4%", "a", "1,,2", "0-9:0", "10000000")),
        *((lambda text: amounts.number("ntasks", text), text) for text in ("=4", "0", "x", "-1")),
        *((lambda text: amounts.begin(text, NOW), text) for text in ("soon", "25:00", "now+1eon")),
        (lambda text: amounts.begin(text, NOW), "2027-02-30"),
    ],
)
def test_amounts_that_are_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(SbatchError):
        read(text)


@pytest.mark.parametrize(
    ("text", "indexes", "at_once", "step"),
    [
        ("1-4%2", [1, 2, 3, 4], 2, 1),
        ("0-4:2", [0, 2, 4], None, 2),
        ("7", [7], None, 1),
        ("1,3,5", [1, 3, 5], None, 2),
        ("1-3,7%0", [1, 2, 3, 7], None, 1),
        ("0-9:4,3", [0, 3, 4, 8], None, 1),
    ],
)
def test_arrays(text: str, indexes: list[int], at_once: int | None, step: int) -> None:
    found = amounts.array(text)
    assert [found.indexes[at] for at in range(len(found.indexes))] == indexes
    assert (found.at_once, found.step) == (at_once, step)


PARTS = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9))


@given(st.lists(PARTS, min_size=1, max_size=6), st.integers(1, 99))
def test_array_has_the_indexes_of_its_parts(parts: list[tuple[int, int, int]], most: int) -> None:
    texts = [f"{first}-{first + more}:{step}" for first, more, step in parts]
    expected = {
        index for first, more, step in parts for index in range(first, first + more + 1, step)
    }
    found = amounts.array(f"{','.join(texts)}%{most}")
    assert [found.indexes[at] for at in range(len(found.indexes))] == sorted(expected)
    assert found.at_once == most


def test_gpus() -> None:
    assert amounts.gpus("gpus", "2") == (2, "")
    assert amounts.gpus("gpus", "a100:2") == (2, "a100")
    assert amounts.gres("gpu") == (1, "", [])
    assert amounts.gres("gpu:2") == (2, "", [])
    assert amounts.gres("gpu:v100") == (1, "v100", [])
    assert amounts.gres("gpu:v100:4(S:0),nvme:1") == (4, "v100", ["nvme:1"])


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", None),
        ("today", None),
        ("now+90", NOW + timedelta(seconds=90)),
        ("now+2hours", NOW + timedelta(hours=2)),
        ("now+1week", NOW + timedelta(weeks=1)),
        ("16:00", NOW.replace(hour=16, minute=0)),
        ("08:15:30", NOW.replace(day=30, hour=8, minute=15, second=30)),
        ("noon", NOW.replace(day=30, hour=12, minute=0)),
        ("tomorrow", NOW + timedelta(days=1)),
        ("2027-01-31", NOW.replace(year=2027, month=1, day=31, hour=0, minute=0)),
        ("2027-01-31T08:00", NOW.replace(year=2027, month=1, day=31, hour=8, minute=0)),
    ],
)
def test_begin(text: str, moment: datetime | None) -> None:
    assert amounts.begin(text, NOW) == moment
