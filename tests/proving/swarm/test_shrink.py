"""Shrinking keeps the steps that matter, and no others."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from proving.swarm.shrink import shrink
from proving.swarm.steps import Step


@given(st.integers(1, 60), st.sets(st.integers(0, 59), max_size=5))
def test_exactly_the_steps_that_matter_are_left(count: int, matter: set[int]) -> None:
    steps = [Step(str(number)) for number in range(count)]
    needed = {str(number) for number in matter if number < count} or {"0"}

    def fails(left: Sequence[Step]) -> bool:
        return needed <= {step.name for step in left}

    assert {step.name for step in shrink(steps, fails, most_tries=10_000)} == needed


def test_no_more_is_tried_than_allowed() -> None:
    tried = []

    def fails(left: Sequence[Step]) -> bool:
        tried.append(left)
        return False

    steps = [Step(str(number)) for number in range(100)]
    assert shrink(steps, fails, most_tries=7) == steps
    assert len(tried) == 7
