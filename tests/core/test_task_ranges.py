"""Ranges of task indexes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.task_ranges import MAX_RANGES, TaskRanges

INDEXES = st.sets(st.integers(0, 60), min_size=1)


@given(INDEXES)
def test_ranges_hold_exactly_the_indexes_that_they_were_made_of(indexes: set[int]) -> None:
    ranges = TaskRanges.of((index, index) for index in indexes)
    ordered = sorted(indexes)
    assert [ranges[position] for position in range(len(ranges))] == ordered
    assert [index for index in range(70) if index in ranges] == ordered
    assert TaskRanges.parse(str(ranges)) == ranges
    assert TaskRanges.parse(ranges.in_steps()) == ranges
    assert len(ranges.in_steps()) <= len(str(ranges))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0-860:4", "0-860:4"),
        ("0-9:3,20-30,41-47:2", "0-9:3,20-30,41-47:2"),
        ("1,3", "1,3"),
        ("1,3,4,9", "1,3-4,9"),
        ("0,2,4,7,10,13", "0-4:2,7-13:3"),
        ("7", "7"),
    ],
)
def test_people_read_equal_steps_as_they_are_written(text: str, shown: str) -> None:
    assert TaskRanges.parse(text).in_steps() == shown


@given(INDEXES, st.integers(0, 70))
def test_ranges_after_a_position_hold_the_rest(indexes: set[int], position: int) -> None:
    ranges = TaskRanges.of((index, index) for index in indexes)
    rest = [index for first, last in ranges.after(position) for index in range(first, last + 1)]
    assert rest == sorted(indexes)[position:]


def test_ranges_that_touch_or_overlap_become_one() -> None:
    assert str(TaskRanges.parse("7, 1-3,4, 2-5")) == "1-5,7"


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("0-100:25", [0, 25, 50, 75, 100]),
        ("0-99 : 25", [0, 25, 50, 75]),
        ("1-7:3,2", [1, 2, 4, 7]),
        ("4-6:1", [4, 5, 6]),
        ("5-6:9", [5]),
    ],
)
def test_range_with_a_step_holds_every_so_manieth_index(text: str, indexes: list[int]) -> None:
    ranges = TaskRanges.parse(text)
    assert [ranges[position] for position in range(len(ranges))] == indexes
    assert TaskRanges.parse(str(ranges)) == ranges


WRONG = ["", "1,", "a", "-1", "3-1", "1-2-3", "123456789", "1.5", "²"]
WRONG_STEPS = ["1-9:", "1-9:0", "1-9:-2", "1-9:a", "1-9:2:3", "4:2", ":2"]


@pytest.mark.parametrize("text", WRONG + WRONG_STEPS)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        TaskRanges.parse(text)


def test_too_many_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        TaskRanges.parse(",".join(str(2 * number) for number in range(MAX_RANGES + 1)))
    with pytest.raises(ValueError, match="at most"):
        TaskRanges.parse("0-9999999:2")
    assert len(TaskRanges.parse(f"0-{2 * MAX_RANGES - 1}:2")) == MAX_RANGES


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(0, 70))
def test_indexes_below_one_are_counted(indexes: set[int], index: int) -> None:
    ranges = TaskRanges.of((each, each) for each in indexes)
    assert ranges.below(index) == sum(each < index for each in indexes)
