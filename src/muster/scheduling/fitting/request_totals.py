"""The sum of kernels' requests by agent, and the choice of devices that spares most."""

from collections.abc import Sequence

import numpy as np

from muster.core.resources import GPU_WHOLE, KERNELS, DeviceShare, Resources
from muster.scheduling.cluster.columns import Columns, Ints, Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.workload import KernelPlacement, WorkloadClass


class RequestTotals:
    """The sum of kernels' requests on each agent.

    ``amounts`` is slots × dimensions, ``device_milli`` is slots × device indexes.
    """

    def __init__(
        self, snapshot: Snapshot, workload: WorkloadClass, kernels: Sequence[KernelPlacement]
    ) -> None:
        columns = snapshot.columns
        slots = np.array([snapshot.slot(kernel.agent_id) for kernel in kernels], np.int64)
        self.slots, entries = np.unique(slots, return_inverse=True)
        self.amounts: Ints = np.zeros((self.slots.size, len(columns.dimensions)), np.int64)
        for request, indexes in workload.requests:
            np.add.at(self.amounts, entries[list(indexes)], columns.amounts(request))
        self.device_milli: Ints = np.zeros(
            (self.slots.size, columns.device_free.shape[1]), np.int64
        )
        for entry, kernel in zip(entries.tolist(), kernels, strict=True):
            for share in kernel.shares:
                self.device_milli[entry, share.index] += share.milli

    def is_within(self, amounts: Ints, device_milli: Ints) -> bool:
        """Whether these amounts suffice for the sum; a negative amount never does."""
        enough = (amounts[self.slots] >= self.amounts).all()
        return bool(enough and (device_milli[self.slots] >= self.device_milli).all())

    def is_free(self, columns: Columns) -> bool:
        """Whether the sum could be taken from the free amounts now."""
        return self.is_within(columns.free, columns.device_free)


def on_devices(
    snapshot: Snapshot,
    workload: WorkloadClass,
    kernels: tuple[KernelPlacement, ...],
    room: Columns,
    given: Ints,
) -> tuple[KernelPlacement, ...]:
    """The kernels on the same agents, but on other devices: among the devices that have room
    according to ``room``, those with the most ``given`` room, so that as little as possible has to
    be kept free or waited for.

    Args:
        given: slots × device indexes, in milli.
    """
    chosen = list(kernels)
    indexes_of: dict[int, list[int]] = {}
    for index, kernel in enumerate(kernels):
        if kernel.shares:
            indexes_of.setdefault(snapshot.slot(kernel.agent_id), []).append(index)
    for slot, wanted in indexes_of.items():
        wanted.sort(key=lambda index: -workload.kernels[index].gpu_milli)
        requests = [workload.kernels[index] for index in wanted]
        shares = _devices(room, slot, requests, given[slot].tolist())
        if shares is not None:  # otherwise the selector's devices stay
            for index, devices in zip(wanted, shares, strict=True):
                chosen[index] = KernelPlacement(kernels[index].agent_id, devices)
    return tuple(chosen)


def _devices(
    room: Columns, slot: int, requests: Sequence[Resources], given: Sequence[int]
) -> list[Shares] | None:
    """Devices for each of ``requests``, all in one slot; None if the greedy choice fails."""
    used = [0] * len(given)
    chosen: list[Shares] = []
    for request in requests:
        milli = min(request.gpu_milli, GPU_WHOLE)
        free = [
            (max(0, used[device] + milli - given[device]), device)
            for left, device in room.devices_for(request, slot)
            if left >= used[device] + milli
        ]
        if len(free) < request.gpu_devices:
            return None
        devices = [device for _, device in sorted(free)[: request.gpu_devices]]
        for device in devices:
            used[device] += milli
        chosen.append(tuple(DeviceShare(device, milli) for device in sorted(devices)))
    return chosen


def resources(columns: Columns, amounts: Ints, gpu_milli: int = 0) -> Resources:
    """The amounts of each dimension, and of all devices together, as Resources for people."""
    named = dict(zip(columns.dimensions, amounts.tolist(), strict=True))
    kernels = named.pop(KERNELS, 0)
    return Resources.with_extra(
        named.pop("cpu"),
        named.pop("memory"),
        named.pop("disk"),
        gpu_milli,
        named,
        kernels=kernels,
    )
