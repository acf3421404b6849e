"""Amounts of one agent in one 64-bit word, so that one comparison tells whether a request may fit.

Each amount has a field of a few bits and a guard bit above it. A request is a word of the same
layout without guard bits. When it is subtracted from an agent's word, the guard bits that remain
tell which amounts suffice: a bit-parallel comparison (source: Lamport 1975). Amounts are cut to the
bits of their field, so the comparison errs on one side only: it may accept an agent that lacks a
little room, and never rejects one that has room.

The lowest bits are marks, which no subtraction changes because a request has none: ``OPEN``,
``PLAIN``, and ``MARKS`` more for the caller that compares.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from muster.core.resources import GPU_WHOLE

Words: TypeAlias = NDArray[np.uint64]

MAX_DIMENSIONS = 128  # named resources of one group
MARKS = 7
_DIMENSION_BITS = (10, 10, 6, 5, 5)  # of the first dimensions; others are not in words
_WHOLE_BITS = 6  # the number of wholly free devices; the highest value stands for more too
_LARGEST_BITS, _LARGEST_SHIFT = 6, 4  # free milli of the freest device, in steps of 16
_MOST_WHOLE = (1 << _WHOLE_BITS) - 1
_PACKED = len(_DIMENSION_BITS)

OPEN = 1 << MARKS
"""The mark of an agent that takes new work; the word of any other is 0."""

PLAIN = OPEN << 1
"""The mark of an agent without devices."""


def _layout(bits: Sequence[int]) -> tuple[list[int], int]:
    """Positions of the fields above the marks, and all guards."""
    positions, position, guards = [], MARKS + 2, 0
    for width in bits:
        positions.append(position)
        position += width
        guards |= 1 << position
        position += 1
    assert position <= 64, "the fields do not fit in a word"
    return positions, guards


_POSITIONS, GUARDS = _layout((*_DIMENSION_BITS, _WHOLE_BITS, _LARGEST_BITS))
_WHOLE_AT, _LARGEST_AT = _POSITIONS[_PACKED:]

WANTED = GUARDS | OPEN
"""The bits that are left of an agent's word when a request that may fit is subtracted."""

NOWHERE = -1
"""The word of a request that is larger than any agent."""

_NO_FIELD = 63  # shifts every amount to 0


class Packing:
    """How amounts are cut to the bits of their fields: by the largest amount that an agent has of
    each dimension. When that amount grows, earlier words cannot be compared any more.

    ``shifts`` and ``positions`` turn an amount of each dimension into its part of a word.
    """

    def __init__(self) -> None:
        self.shifts = [_NO_FIELD] * MAX_DIMENSIONS
        self.positions = [0] * MAX_DIMENSIONS
        self.positions[:_PACKED] = _POSITIONS[:_PACKED]
        self._largest = [0] * _PACKED + [1 << 63] * (MAX_DIMENSIONS - _PACKED)

    def copy(self) -> "Packing":
        twin = Packing()
        twin.shifts, twin._largest = self.shifts.copy(), self._largest.copy()
        return twin

    def make_room(self, capacity: Sequence[int]) -> None:
        """Make fields that hold an agent's capacity; to be called before its words are made."""
        for dimension, amount in enumerate(capacity[:_PACKED]):
            if amount > self._largest[dimension]:
                self._largest[dimension] = (1 << amount.bit_length()) - 1  # few grow, and all fit
                self.shifts[dimension] = max(0, amount.bit_length() - _DIMENSION_BITS[dimension])

    def request(self, requested: Sequence[tuple[int, int]], devices: int, milli: int) -> int:
        """The word of a request, or ``NOWHERE``.

        Args:
            requested: (dimension, amount) pairs.
            devices, milli: how many devices, and how much of each.
        """
        word = 0
        shifts, positions, largest = self.shifts, self.positions, self._largest
        for dimension, amount in requested:
            if amount > largest[dimension]:
                return NOWHERE
            word |= amount >> shifts[dimension] << positions[dimension]
        if milli == GPU_WHOLE:
            return word | min(devices, _MOST_WHOLE) << _WHOLE_AT
        return word | milli >> _LARGEST_SHIFT << _LARGEST_AT

    def devices(self, whole: int, largest: int, *, plain: bool) -> int:
        """An open agent's word without its dimensions.

        Args:
            whole: the number of wholly free devices.
            largest: free milli of the freest device.
            plain: whether the agent has no devices.
        """
        word = WANTED | min(whole, _MOST_WHOLE) << _WHOLE_AT
        word |= largest >> _LARGEST_SHIFT << _LARGEST_AT
        return word | PLAIN if plain else word

    def agents(
        self,
        free: NDArray[np.int64],
        whole: NDArray[np.int64],
        largest: NDArray[np.int64],
        plain: NDArray[np.bool_],
        is_open: NDArray[np.bool_],
    ) -> Words:
        """The words of many agents; ``free`` has a row for each dimension."""
        words = plain.astype(np.uint64) << np.uint64(MARKS + 1)
        words |= np.uint64(WANTED)
        words |= np.minimum(whole, _MOST_WHOLE).astype(np.uint64) << np.uint64(_WHOLE_AT)
        words |= (largest >> _LARGEST_SHIFT).astype(np.uint64) << np.uint64(_LARGEST_AT)
        for dimension, amounts in enumerate(free[:_PACKED]):
            part = (amounts >> self.shifts[dimension]).astype(np.uint64)
            words |= part << np.uint64(self.positions[dimension])
        words[~is_open] = 0
        return words
