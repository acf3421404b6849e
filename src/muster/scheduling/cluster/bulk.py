"""Amounts of many agents at once, as arrays."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from muster.core.resources import KERNELS, DeviceShare, Resources

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Array = TypeVar("Array", Ints, Floats, Flags)
Shares: TypeAlias = tuple[DeviceShare, ...]


@dataclass(frozen=True, slots=True)
class Bulk:
    """Amounts in many slots, to be moved together; a slot may be named more than once.

    Args:
        slots: to which the columns of ``amounts`` belong.
        amounts: dimensions × entries.
        device_slots, devices, device_milli: shares of devices, one entry each, in slots that
            ``slots`` name too.
    """

    slots: Ints
    amounts: Ints
    device_slots: Ints
    devices: Ints
    device_milli: Ints

    def shares(self) -> Iterator[tuple[int, DeviceShare]]:
        """The shares of devices, each with its slot."""
        shares = (self.devices.tolist(), self.device_milli.tolist())
        yield from zip(self.device_slots.tolist(), map(DeviceShare, *shares), strict=True)


def doubled(rows: Array, fill: int = 0) -> Array:
    """The columns with as many new slots, which hold ``fill``."""
    return np.concatenate((rows, np.full_like(rows, fill)), axis=-1)


def with_rows(rows: Ints, count: int, fill: int) -> Ints:
    """The columns with ``count`` more dimensions or devices, which hold ``fill``."""
    return np.vstack((rows, np.full((count, rows.shape[1]), fill, np.int64)))


def by_device(shares: Shares) -> Iterable[tuple[int, int]]:
    """Milli by device index; a device may be named twice."""
    milli: dict[int, int] = {}
    for share in shares:
        milli[share.index] = milli.get(share.index, 0) + share.milli
    return milli.items()


def of_resources(capacity: Ints, dimensions: Mapping[str, int]) -> Ints:
    """A copy of capacities by dimension with 0 for the number of kernels, which is no resource and
    so no part of utilisation and size."""
    amounts = capacity.copy()
    kernels = dimensions.get(KERNELS)
    if kernels is not None:
        amounts[kernels] = 0
    return amounts


def amounts_by_dimension(
    request: Resources, dimensions: Mapping[str, int]
) -> list[tuple[int, int]] | None:
    """(dimension, amount) of each resource in the request; None where one of them has no
    dimension.

    Args:
        dimensions: by name; cpu, memory and disk are the first three.
    """
    plain = (request.cpu_milli, request.memory_bytes, request.disk_bytes)
    requested = [(dimension, amount) for dimension, amount in enumerate(plain) if amount]
    named = (*request.extra, *([(KERNELS, request.kernels)] if request.kernels else ()))
    for name, amount in named:
        dimension = dimensions.get(name)
        if dimension is None:
            return None
        requested.append((dimension, amount))
    return requested
