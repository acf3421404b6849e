"""How much one wake does, by the time that wakes took."""

from hypothesis import given
from hypothesis import strategies as st

from muster.control.engine.wake_share import (
    FIRST,
    LEAST,
    LONGEST_BESIDE_PEOPLE_S,
    LONGEST_S,
    MOST,
    PEOPLE_S,
    WakeShare,
)

BOUND = 4_000


class Processor:
    """A processor whose time is moved by hand."""

    def __init__(self) -> None:
        self.used_s = 0.0
        self.share = WakeShare(lambda: self.used_s)

    def wake(self, cost_s: float, now: float = 0.0, *, was_full: bool = True) -> None:
        self.share.begin()
        self.used_s += cost_s
        self.share.end(now, was_full=was_full)


def settled(cost_of_row_s: float, *, people: bool = False, wakes: int = 60) -> WakeShare:
    """The share after wakes that were all full, each of its rows costing so much."""
    processor = Processor()
    for second in range(wakes):
        if people:
            processor.share.asked(float(second))
        processor.wake(cost_of_row_s * processor.share.of(BOUND), float(second))
    return processor.share


def test_wakes_use_all_of_their_bounds_where_time_is_not_known() -> None:
    share = WakeShare()
    share.begin()
    share.end(0.0, was_full=True)
    assert share.of(BOUND) == BOUND


def test_wake_after_a_long_one_is_shorter_at_once() -> None:
    processor = Processor()
    processor.wake(2 * LONGEST_S)
    assert processor.share.part == FIRST / 2


def test_wakes_grow_only_while_there_is_more_to_do() -> None:
    processor = Processor()
    processor.wake(0.001, was_full=False)
    assert processor.share.part == FIRST
    processor.wake(0.001)
    assert processor.share.part > FIRST


@given(st.floats(1e-6, 1e-2), st.booleans())
def test_full_wakes_come_to_take_about_as_long_as_they_may(cost_s: float, people: bool) -> None:
    aim_s = LONGEST_BESIDE_PEOPLE_S if people else LONGEST_S
    share = settled(cost_s, people=people)
    took_s = cost_s * share.of(BOUND)
    if share.part in (LEAST, MOST):
        return
    assert aim_s / 2 < took_s <= 1.3 * aim_s


def test_people_who_asked_a_while_ago_are_not_there_any_more() -> None:
    processor = Processor()
    processor.share.asked(0.0)
    processor.wake(0.9 * LONGEST_S, PEOPLE_S)
    assert processor.share.part == FIRST
    processor.wake(0.9 * LONGEST_S, PEOPLE_S / 2)
    assert processor.share.part < FIRST


def test_part_of_a_bound_is_never_nothing() -> None:
    share = settled(1.0)
    assert share.of(1) == share.of(3) == 1
    assert share.of(0) == 0
