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


def settled(cost_of_row_s: float, *, people: bool = False, wakes: int = 60) -> WakeShare:
    """The share after wakes that were all full, each of its rows costing so much."""
    share = WakeShare(is_measured=True)
    for second in range(wakes):
        if people:
            share.asked(float(second))
        share.took(cost_of_row_s * share.of(BOUND), float(second), was_full=True)
    return share


def test_wakes_use_all_of_their_bounds_where_time_is_not_known() -> None:
    share = WakeShare(is_measured=False)
    share.took(10.0, 0.0, was_full=True)
    assert share.of(BOUND) == BOUND


def test_wake_after_a_long_one_is_shorter_at_once() -> None:
    share = WakeShare(is_measured=True)
    share.took(2 * LONGEST_S, 0.0, was_full=True)
    assert share.part == FIRST / 2


def test_wakes_grow_only_while_there_is_more_to_do() -> None:
    share = WakeShare(is_measured=True)
    share.took(0.001, 0.0, was_full=False)
    assert share.part == FIRST
    share.took(0.001, 0.0, was_full=True)
    assert share.part > FIRST


@given(st.floats(1e-6, 1e-2), st.booleans())
def test_full_wakes_come_to_take_about_as_long_as_they_may(cost_s: float, people: bool) -> None:
    aim_s = LONGEST_BESIDE_PEOPLE_S if people else LONGEST_S
    share = settled(cost_s, people=people)
    took_s = cost_s * share.of(BOUND)
    if share.part in (LEAST, MOST):
        return
    assert aim_s / 2 < took_s <= 1.3 * aim_s


def test_people_who_asked_a_while_ago_are_not_there_any_more() -> None:
    share = WakeShare(is_measured=True)
    share.asked(0.0)
    share.took(LONGEST_S, PEOPLE_S, was_full=True)
    assert share.part == FIRST
    share.took(LONGEST_S, PEOPLE_S / 2, was_full=True)
    assert share.part < FIRST


def test_part_of_a_bound_is_never_nothing() -> None:
    share = settled(1.0)
    assert share.of(1) == share.of(3) == 1
    assert share.of(0) == 0
