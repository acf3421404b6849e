"""The consequences of outcomes of creations for the next ones of a pool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.autoscaling.standing import (
    CONSEQUENCES,
    GOOD,
    MAX_TOLD,
    CreateOutcome,
    OutcomeScope,
    PoolStanding,
    breaks,
)

FAILING = st.sampled_from(sorted(CONSEQUENCES))
MIDDLE = 0.5  # of chance: no jitter


def sentence(standing: PoolStanding, now: float = 0.0) -> str | None:
    closed = standing.closed("a", "h100", now)
    return None if closed is None else closed.sentence()


def test_pool_without_stock_asks_again_after_three_minutes_then_less_and_less_often() -> None:
    once = GOOD.after(CreateOutcome.STOCK_OUT, 0, MIDDLE, "InsufficientInstanceCapacity")
    assert sentence(once) == (
        "pool a asks again in 3m00s: its provider has no such machines now: "
        "InsufficientInstanceCapacity"
    )
    assert sentence(once, 180) is None
    twice = once.after(CreateOutcome.STOCK_OUT, 180, MIDDLE)
    assert twice.closed_until == 180 + 360
    for _ in range(40):
        twice = twice.after(CreateOutcome.STOCK_OUT, 1000, MIDDLE)
    assert twice.closed_until == 1000 + 1800


def test_quota_closes_all_pools_that_share_it() -> None:
    assert CONSEQUENCES[CreateOutcome.QUOTA].scope is OutcomeScope.QUOTA
    used_up = GOOD.after(CreateOutcome.QUOTA, 0, MIDDLE)
    assert sentence(used_up) == "pools of quota h100 ask again in 5m00s: it is used up"


def test_throttling_and_want_of_stock_are_no_fault_of_the_pool() -> None:
    standing = GOOD
    for _ in range(5):
        standing = standing.after(CreateOutcome.THROTTLED, 0, MIDDLE)
        standing = standing.after(CreateOutcome.STOCK_OUT, 0, MIDDLE)
    assert (standing.failures, standing.at_once) == (0, None)
    assert standing.made() == PoolStanding(closed_until=standing.closed_until)


def test_pool_whose_slices_do_not_boot_makes_one_at_a_time_until_one_is_ready() -> None:
    failing = GOOD.after(CreateOutcome.NOT_BOOTED, 0, MIDDLE)
    assert failing.at_once is None
    failing = failing.after(CreateOutcome.NOT_BOOTED, 60, MIDDLE)
    assert failing.at_once == 1
    assert sentence(failing, 60) == "pool a asks again in 2m00s, after 2 failed requests"
    assert failing.made().at_once == 1, "whether it boots is not known yet"
    assert failing.ready() == GOOD


def test_another_outcome_begins_with_its_own_first_wait() -> None:
    standing = GOOD
    for _ in range(4):
        standing = standing.after(CreateOutcome.UNKNOWN, 0, MIDDLE)
    assert standing.after(CreateOutcome.CREDENTIALS, 500, MIDDLE).closed_until == 560


def test_long_words_of_a_provider_are_cut() -> None:
    assert len(GOOD.after(CreateOutcome.UNKNOWN, 0, MIDDLE, "x" * 10**6).told) == MAX_TOLD


@given(st.lists(st.tuples(FAILING, st.floats(0, 1000), st.floats(0, 1)), max_size=30))
def test_closed_times_are_bounded_and_never_shortened(
    outcomes: list[tuple[CreateOutcome, float, float]],
) -> None:
    standing, now = GOOD, 0.0
    for outcome, later_s, chance in outcomes:
        now += later_s
        before = standing.closed_until
        standing = standing.after(outcome, now, chance)
        assert before <= standing.closed_until <= max(before, now + 1.2 * 1800)
        assert standing.closed("a", None, now) is not None
        assert standing.closed("a", None, standing.closed_until) is None


@pytest.mark.parametrize(
    ("silent", "machines", "expected"),
    [(1, 1, False), (1, 2, False), (2, 2, True), (2, 9, True), (2, 10, False), (3, 10, True)],
)
def test_breaker_opens_above_a_fifth_and_at_least_two(
    silent: int, machines: int, expected: bool
) -> None:
    assert breaks(silent, machines) is expected
