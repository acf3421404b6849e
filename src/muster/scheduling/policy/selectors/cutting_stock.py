"""The worth of a free piece of a GPU to fractions that will come: a cutting-stock problem.

Fractions are cut out of GPUs as lengths out of rods. The dual prices of the linear programme that
serves the mix of fractions with the fewest GPUs give the worth of room for each fraction, and the
best content of a piece the worth of the piece (source: Gilmore 1961).
"""

from collections.abc import Mapping

import numpy as np

from muster.core.resources import GPU_WHOLE
from muster.scheduling.cluster.columns import Floats, Ints

UNIT_MILLI = 10
"""The unit of lengths: sizes of fractions are rounded up to it, pieces down."""

_UNITS = GPU_WHOLE // UNIT_MILLI
_NEGLIGIBLE = 1e-6
_MOST_PIVOTS = 1000


def piece_values(weights: Mapping[int, float]) -> Floats:
    """The worth of a piece by its size in milli, 0 to 1000; a whole GPU's is 1000.

    Args:
        weights: how often each size (in milli, below 1000) is requested; if this is empty, a piece
            is worth its size.
    """
    amounts: dict[int, float] = {}
    for milli, amount in weights.items():
        if amount > 0:
            size = -(-milli // UNIT_MILLI)
            amounts[size] = amounts.get(size, 0.0) + amount
    if not amounts:
        return np.arange(GPU_WHOLE + 1, dtype=np.float64)
    sizes = sorted(amounts)
    best, _ = _best_contents(sizes, _prices(sizes, np.array([amounts[each] for each in sizes])))
    # Rounded, so that pieces of equal worth compare as equal.
    worth = np.round(best / best[_UNITS] * GPU_WHOLE, 6)
    return np.repeat(worth, UNIT_MILLI)[: GPU_WHOLE + 1]


def _prices(sizes: list[int], amounts: Floats) -> Floats:
    """The worth in GPUs of room for one of each size.

    A simplex method over ways to cut one GPU; a knapsack problem finds a better way, until none is
    left.
    """
    # The basis has a column for each way to cut: at first, into pieces of one size.
    whole = np.array([_UNITS // size for size in sizes], np.float64)
    inverse = np.diag(1.0 / whole)
    gpus = inverse @ amounts  # GPUs cut in each way of the basis
    for _ in range(_MOST_PIVOTS):
        prices: Floats = inverse.sum(axis=0)
        best, last = _best_contents(sizes, prices)
        if best[_UNITS] <= 1 + _NEGLIGIBLE:
            break
        change = inverse @ _contents(sizes, last)
        grows = change > 1e-9
        ratios = np.full(len(sizes), np.inf)
        ratios[grows] = gpus[grows] / change[grows]
        leaving = int(ratios.argmin())
        pivot = inverse[leaving] / change[leaving]
        inverse -= np.outer(change, pivot)
        inverse[leaving] = pivot
        step = ratios[leaving]
        gpus = np.maximum(gpus - change * step, 0.0)
        gpus[leaving] = step
    return prices


def _best_contents(sizes: list[int], prices: Floats) -> tuple[Floats, list[int]]:
    """For each number of units of room: the highest worth of sizes that fit into it, and the index
    of one of these sizes; -1 where the last unit stays empty."""
    best, last = [0.0] * (_UNITS + 1), [-1] * (_UNITS + 1)
    priced = list(zip(sizes, prices.tolist(), range(len(sizes)), strict=True))
    for room in range(1, _UNITS + 1):
        most, which = best[room - 1], -1
        for size, price, index in priced:
            if size > room:
                break  # sizes ascend
            worth = best[room - size] + price
            if worth > most + 1e-12:
                most, which = worth, index
        best[room], last[room] = most, which
    return np.array(best), last


def _contents(sizes: list[int], last: list[int]) -> Ints:
    """How many of each size the best content of a whole GPU has."""
    counts = np.zeros(len(sizes), np.int64)
    room = _UNITS
    while room > 0:
        index = last[room]
        if index < 0:
            room -= 1
        else:
            counts[index] += 1
            room -= sizes[index]
    return counts
