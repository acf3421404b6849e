"""The worth of pieces of a GPU, against trying every way to cut."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.scheduling.policy.selectors.cutting_stock import UNIT_MILLI, _prices, piece_values

UNITS = 1000 // UNIT_MILLI
mixes = st.dictionaries(st.integers(12, 99), st.integers(1, 50), min_size=1, max_size=3)


def ways_to_cut(sizes: list[int], room: int) -> list[tuple[int, ...]]:
    """Every way to have pieces of these sizes in so much room."""
    counts = product(*(range(room // size + 1) for size in sizes))
    return [each for each in counts if sum(n * s for n, s in zip(each, sizes, strict=True)) <= room]


def fewest_gpus(sizes: list[int], amounts: list[int]) -> float:
    """How many GPUs must be cut at least: the best vertex of the linear programme."""
    best = float("inf")
    for chosen in combinations(ways_to_cut(sizes, UNITS), len(sizes)):
        ways = np.array(chosen, float).T
        if abs(np.linalg.det(ways)) > 1e-9:
            gpus = np.linalg.solve(ways, amounts)
            if gpus.min() >= -1e-9:
                best = min(best, float(gpus.sum()))
    return best


@settings(max_examples=40, deadline=None)
@given(mixes)
def test_prices_pay_for_as_many_gpus_as_are_needed_and_no_way_to_cut_is_worth_more_than_one(
    mix: dict[int, int],
) -> None:
    sizes = sorted(mix)
    amounts = [mix[size] for size in sizes]
    prices = _prices(sizes, np.array(amounts, float))
    worth = [float(np.dot(each, prices)) for each in ways_to_cut(sizes, UNITS)]
    assert max(worth) <= 1 + 1e-5
    assert float(prices @ amounts) == pytest.approx(fewest_gpus(sizes, amounts), rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(mixes, st.integers(0, 1000))
def test_a_piece_is_worth_its_best_content(mix: dict[int, int], milli: int) -> None:
    sizes = sorted(mix)
    prices = _prices(sizes, np.array([mix[size] for size in sizes], float))
    asked = {size * UNIT_MILLI: float(amount) for size, amount in mix.items()}

    def best(room: int) -> float:
        return max(float(np.dot(each, prices)) for each in ways_to_cut(sizes, room))

    expected = 1000 * best(milli // UNIT_MILLI) / best(UNITS)
    assert piece_values(asked)[milli] == pytest.approx(expected, abs=1e-4)


@settings(deadline=None)
@given(st.dictionaries(st.integers(1, 999), st.floats(0, 1e9), max_size=40))
def test_values_go_up_from_nothing_to_a_whole_gpu(asked: dict[int, float]) -> None:
    values = piece_values(asked)
    assert (values[0], values[1000], values.size) == (0, 1000, 1001)
    assert (np.diff(values) >= 0).all()


def test_without_any_fraction_a_piece_is_worth_its_size() -> None:
    assert piece_values({}).tolist() == list(range(1001))


def test_a_piece_that_nothing_fits_in_is_worth_nothing() -> None:
    values = piece_values({470: 1.0})
    assert (values[469], values[470], values[939], values[940]) == (0, 500, 500, 1000)


def test_room_beside_a_large_fraction_is_worth_something_once_more_want_it_than_there_is() -> None:
    alone, few, many = ({810: 10.0} | small for small in ({}, {190: 5.0}, {190: 20.0}))
    assert piece_values(alone)[190] == 0
    assert piece_values(few)[190] == 0
    assert piece_values(many)[190] > 0
