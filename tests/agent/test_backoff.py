"""Waits between tries: longer and longer, up to a limit, never all at once."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent.backoff import Backoff


@given(st.integers(), st.integers(1, 2000))
def test_wait_grows_to_its_limit_and_keeps_at_least_half_of_it(seed: int, tries: int) -> None:
    backoff = Backoff(random.Random(seed), first_s=0.1, longest_s=5.0)
    for number in range(tries):
        ceiling_s = min(5.0, 0.1 * 2 ** min(number, 10))
        assert ceiling_s / 2 <= backoff.next_s() <= ceiling_s


@pytest.mark.parametrize(("at_most_s", "longest_s"), [(0.4, 0.4), (0.01, 0.1)])
def test_wait_is_no_longer_than_it_may_be_but_never_none(
    at_most_s: float, longest_s: float
) -> None:
    backoff = Backoff(random.Random(1), first_s=0.1)
    waits_s = [backoff.next_s(at_most_s) for _ in range(10)][2:]
    assert min(waits_s) >= longest_s / 2
    assert max(waits_s) <= longest_s


def test_wait_is_short_again_after_a_reset() -> None:
    backoff = Backoff(random.Random(1))
    for _ in range(10):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 0.1
