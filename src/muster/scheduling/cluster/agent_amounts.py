"""One agent's amounts in plain Python, which is faster than numpy on a few numbers."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from muster.core.resources import GPU_WHOLE
from muster.scheduling.cluster.bulk import Shares
from muster.scheduling.cluster.packing import Packing

STEPS = 1e6
"""Steps of a utilisation of 1: a millionth each."""


@dataclass(frozen=True, slots=True)
class KindAmounts:
    """The capacity of agents of one kind; its lists may be shorter than the columns have rows.

    Args:
        capacity: by dimension; 0 where the agent has none.
        inverse: of the capacity; 0 also for the number of kernels, which is no resource and no part
            of an agent's utilisation.
        models: codes of the devices' models.
        device_milli: all devices together.
        kinds: the number of kinds of resources that it has.
    """

    capacity: list[int]
    inverse: list[float]
    models: list[int]
    device_milli: int
    kinds: int

    @staticmethod
    def of(
        capacity: list[int], models: list[int], devices: int, kernels: int | None = None
    ) -> "KindAmounts":
        """
        Args:
            kernels: the dimension that is the number of kernels; None if there is none.
        """
        inverse = [1.0 / amount if amount else 0.0 for amount in capacity]
        if kernels is not None:
            inverse[kernels] = 0.0
        kinds = len(inverse) - inverse.count(0.0) + (devices > 0)
        return KindAmounts(capacity, inverse, models, devices * GPU_WHOLE, kinds)


class AgentAmounts:
    """The amounts of one agent, in as few objects as possible, because reading memory takes most of
    the time of a decision.

    ``open``, ``whole`` and ``largest`` are derived from ``amounts``, and valid while ``settled`` is
    set.

    Args:
        amounts: free amounts of each dimension, then of each device by index.
        dimensions: the number of dimensions.
        settled, devices_settled: whether derived fields are valid; cleared by a change of amounts,
            or of shares of devices.
        open: whether the agent accepts work and no amount is negative.
        whole, largest: the number of wholly free devices, and the free milli of the freest.
    """

    __slots__ = (
        "_device_held",
        "accepting",
        "amounts",
        "devices_settled",
        "dimensions",
        "largest",
        "machine",
        "open",
        "settled",
        "whole",
    )

    def __init__(
        self, machine: KindAmounts, amounts: "array[int]", dimensions: int, *, accepting: bool
    ) -> None:
        self.machine = machine
        self.amounts = amounts
        self.dimensions = dimensions
        self.accepting = accepting
        self.settled = self.devices_settled = self.open = False
        self.whole = self.largest = 0
        self._device_held = 0.0

    @property
    def devices(self) -> list[int]:
        """Free milli by device."""
        return self.amounts[self.dimensions :].tolist()

    def copy(self) -> "AgentAmounts":
        twin = AgentAmounts(
            self.machine, self.amounts[:], self.dimensions, accepting=self.accepting
        )
        twin.settled, twin.devices_settled = self.settled, self.devices_settled
        twin.open, twin.whole, twin.largest = self.open, self.whole, self.largest
        twin._device_held = self._device_held
        return twin

    def move(self, requested: Sequence[tuple[int, int]], shares: Shares, copies: int) -> None:
        """Give back amounts ``copies`` times, or take them where negative; ``shares`` once.

        Args:
            requested: (dimension, amount) pairs.
        """
        amounts = self.amounts
        for dimension, amount in requested:
            amounts[dimension] += amount * copies
        if shares:
            first = self.dimensions
            for share in shares:
                amounts[first + share.index] += share.milli if copies > 0 else -share.milli
            self.devices_settled = False
        self.settled = False

    def settle(self) -> None:
        """Compute the derived fields."""
        self.open = self.accepting and min(self.amounts) >= 0
        if not self.devices_settled:
            devices = self.amounts[self.dimensions :].tolist()
            if devices:
                self.whole, self.largest = devices.count(GPU_WHOLE), max(devices)
                milli = self.machine.device_milli
                self._device_held = (milli - sum(devices)) / milli if milli else 0.0
            self.devices_settled = True
        self.settled = True

    def measure(self, packing: Packing) -> tuple[int, int]:
        """The utilisation, and the amounts as a word, which is 0 if the agent is not open.

        ``Columns`` does the same arithmetic for many agents, in the same order, so that both agree
        to the last bit.
        """
        machine, held = self.machine, 0.0
        word = packing.devices(self.whole, self.largest, plain=not machine.device_milli)
        shifts, positions = packing.shifts, packing.positions
        of_dimension = zip(machine.capacity, self.amounts, machine.inverse, shifts, positions)  # noqa: B905
        for has, left, inverse, shift, position in of_dimension:  # the capacity is the shortest
            held += (has - left) * inverse
            word |= left >> shift << position
        held += self._device_held
        steps = math.floor(held / machine.kinds * STEPS + 0.5) if machine.kinds else 0
        return steps, word if self.open else 0
