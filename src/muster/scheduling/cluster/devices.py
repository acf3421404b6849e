"""The choice of an agent's devices for kernels."""

from functools import cache, lru_cache
from heapq import heapify, heapreplace

import numpy as np

from muster.core.resources import GPU_WHOLE, DeviceShare
from muster.scheduling.cluster.columns import Columns, Ints, Need, Shares


@cache
def share(index: int, milli: int) -> DeviceShare:
    """A share; equal shares are one object, so that a decision makes none."""
    return DeviceShare(index, milli)


@lru_cache(maxsize=1 << 16)
def shares_of(indexes: tuple[int, ...], milli: int) -> Shares:
    """Shares of these devices; equal choices are one object."""
    return tuple(share(index, milli) for index in indexes)


def choose(
    devices: list[tuple[int, int]], need: Need, number: int, *, fullest: bool
) -> list[Shares]:
    """The devices for each of ``number`` kernels, which fit.

    Whole devices go from the lowest index on. A fraction goes to the fullest device that has it, or
    to the emptiest; among equals to the lowest index.

    Args:
        devices: that may be taken, as ``Need.devices_in`` gives them.
    """
    milli, count = need.milli, need.devices
    if milli == GPU_WHOLE:
        whole = [share(index, milli) for _, index in devices[: count * number]]
        return [tuple(whole[at : at + count]) for at in range(0, count * number, count)]
    if number == 1:
        _, index = min(devices) if fullest else min((-left, index) for left, index in devices)
        return [(share(index, milli),)]
    found: list[Shares] = []
    if fullest:  # a device stays the fullest until it has too little
        for left, index in sorted(devices):
            found += [(share(index, milli),)] * (left // milli)
        return found[:number]
    heap = [(-left, index) for left, index in devices]
    heapify(heap)
    for _ in range(number):
        left, index = heap[0]
        found.append((share(index, milli),))
        heapreplace(heap, (left + milli, index))
    return found


def choose_all(columns: Columns, need: Need, slots: Ints, number: Ints, *, fullest: bool) -> Ints:
    """The devices that ``choose`` would give to ``number`` kernels in each of ``slots``: their
    indexes, slot by slot, and in each slot kernel by kernel."""
    if not need.milli:
        return np.empty(0, np.int64)
    free = columns.device_free[slots]
    may = free >= need.milli
    if need.allowed is not None:
        may &= np.array(need.allowed, np.bool_)[columns.device_model[slots]]
    if need.milli == GPU_WHOLE:
        may &= may.cumsum(axis=1) <= (number * need.devices)[:, None]
        return np.nonzero(may)[1]
    copies = np.where(may, free // need.milli, 0)
    if fullest:
        order = np.argsort(np.where(may, free, GPU_WHOLE + 1), axis=1, kind="stable")
        copies = np.take_along_axis(copies, order, axis=1)
        before = copies.cumsum(axis=1) - copies
        copies = np.clip(number[:, None] - before, 0, copies)
        return np.repeat(order.reshape(-1), copies.reshape(-1))
    copies = np.minimum(copies, number[:, None])
    places, before = repeat(np.arange(copies.size), copies.reshape(-1))
    row, device = np.divmod(places, copies.shape[1])
    left = free.reshape(-1)[places] - before * need.milli
    order = np.lexsort((device, -left, row))
    row, device = row[order], device[order]
    rank = np.arange(row.size) - np.searchsorted(row, row)
    return device[rank < number[row]]


def repeat(values: Ints, copies: Ints) -> tuple[Ints, Ints]:
    """Each value repeated ``copies`` times, and beside each repetition its number, from 0."""
    repeated = np.repeat(values, copies)
    first = np.repeat(copies.cumsum() - copies, copies)
    return repeated, np.arange(repeated.size) - first
