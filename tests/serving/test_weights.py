"""The weights of replicas from the parts of their revisions."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.serving.weights import MAX_WEIGHT, of_replicas


@pytest.mark.parametrize(
    ("percent", "in_traffic", "expected"),
    [
        ({}, {1: 3, 2: 1}, {1: 1, 2: 1}),
        ({2: 10}, {1: 3, 2: 1}, {1: 3, 2: 1}),
        ({2: 10}, {1: 10, 2: 1}, {1: 9, 2: 10}),
        ({1: 90, 2: 10}, {1: 10, 2: 1}, {1: 9, 2: 10}),
        ({2: 50}, {1: 2, 2: 1, 3: 2}, {1: 1, 2: 4, 3: 1}),  # others share the rest, all alike
        ({2: 0}, {1: 2, 2: 2}, {1: 1, 2: 0}),
        ({2: 100}, {1: 2, 2: 2}, {1: 0, 2: 1}),
        ({2: 100}, {1: 2, 2: 0}, {1: 1}),  # others take the part of one without replicas
        ({2: 10}, {2: 2}, {2: 1}),
        ({2: 0}, {2: 2}, {2: 1}),
        ({2: 10}, {}, {}),
        ({2: 1}, {1: 9999, 2: 1}, {1: 1, 2: 101}),
        ({2: 100}, {1: 9999, 2: 9998}, {1: 0, 2: 1}),
        ({2: 1}, {1: 1, 2: 10_000}, {1: 10_000, 2: 1}),
    ],
)
def test_weights(percent: dict[int, int], in_traffic: dict[int, int], expected: object) -> None:
    assert of_replicas(percent, in_traffic) == expected


@pytest.mark.parametrize("percent", [{1: 60, 2: 50}, {1: -1}, {1: -10, 2: 100}])
def test_parts_that_do_not_add_up_are_refused(percent: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="100 %"):
        of_replicas(percent, {1: 1, 2: 1})


@given(
    st.integers(0, 100),
    st.dictionaries(st.integers(1, 4), st.integers(0, 10_000), max_size=4),
)
def test_new_revision_gets_its_part_as_near_as_bounded_weights_allow(
    part: int, in_traffic: dict[int, int]
) -> None:
    weights = of_replicas({2: part}, in_traffic)
    assert set(weights) == {revision for revision, count in in_traffic.items() if count}
    assert all(0 <= weight <= MAX_WEIGHT for weight in weights.values())
    assert not weights or any(weights.values())
    others = sum(count for revision, count in in_traffic.items() if revision != 2)
    if 0 < part < 100 and others and in_traffic.get(2):
        (other,) = {weight for revision, weight in weights.items() if revision != 2}
        exact = Fraction(part * others, (100 - part) * in_traffic[2])
        if max(exact.numerator, exact.denominator) <= MAX_WEIGHT:
            assert Fraction(weights[2], other) == exact
        elif 1 <= max(exact, 1 / exact) <= MAX_WEIGHT:
            assert exact / 2 <= Fraction(weights[2], other) <= exact * 2
