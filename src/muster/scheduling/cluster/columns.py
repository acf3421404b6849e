"""Capacity and free amounts of agents, as numpy columns with one entry an agent.

A decision looks at all agents at once (design: The snapshot), so amounts are kept by column. An
agent is known here by its *slot*, the index into every column. ``Columns`` answers the questions of
decisions; ``column_store``, its base, keeps the numbers current.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from muster.core.resources import GPU_WHOLE, KERNELS, Device, Resources, is_model, is_partition
from muster.scheduling.cluster.agent_amounts import STEPS, AgentAmounts
from muster.scheduling.cluster.bulk import (
    Array,
    Bulk,
    Flags,
    Floats,
    Ints,
    Shares,
    by_device,
    of_resources,
)
from muster.scheduling.cluster.column_store import ColumnStore
from muster.scheduling.cluster.packing import MAX_DIMENSIONS, NOWHERE, Words

__all__ = [
    "MAX_DIMENSIONS",
    "Bulk",
    "Columns",
    "Flags",
    "Floats",
    "Ints",
    "Need",
    "Shares",
]

_MOST_WISHES = 1000  # remembered combinations of models


@dataclass(slots=True)
class Need:
    """A request in terms of the columns for which it was made.

    Args:
        requested: (dimension, amount) of each resource in the request.
        devices, milli: how many devices, and how much of each; 0 and 0 for none.
        allowed: whether devices may be taken, by the code of their model; the last entry is for "no
            device". None if all may.
        word: see ``packing``.
    """

    request: Resources
    requested: list[tuple[int, int]]
    devices: int
    milli: int
    allowed: list[bool] | None
    word: int

    def has_room(self, agent: AgentAmounts) -> bool:
        """Whether an agent has room for one kernel now."""
        if not agent.settled:
            agent.settle()
        if not agent.open:
            return False
        amounts = agent.amounts
        for dimension, amount in self.requested:
            if amounts[dimension] < amount:
                return False
        if not self.milli:
            return True
        enough = (
            agent.whole >= self.devices if self.milli == GPU_WHOLE else agent.largest >= self.milli
        )
        return enough and (self.allowed is None or len(self.devices_in(agent)) >= self.devices)

    def room(self, agent: AgentAmounts, limit: int) -> int:
        """How many kernels fit on an agent, at most ``limit``; at least one must fit."""
        amounts = agent.amounts
        for dimension, amount in self.requested:
            limit = min(limit, amounts[dimension] // amount)
        if self.milli == GPU_WHOLE:
            return min(limit, len(self.devices_in(agent)) // self.devices)
        if self.milli:
            return min(limit, sum(left // self.milli for left, _ in self.devices_in(agent)))
        return limit

    def devices_in(self, agent: AgentAmounts) -> list[tuple[int, int]]:
        """Free milli and index of each device from which a share may be taken, by index: wholly
        free ones for whole devices, else devices with enough free."""
        free, models = agent.devices, agent.machine.models
        milli, allowed = self.milli, self.allowed
        if allowed is None:
            return [(left, index) for index, left in enumerate(free) if left >= milli]
        return [
            (left, index)
            for index, left in enumerate(free)
            if left >= milli and allowed[models[index]]
        ]


class Columns(ColumnStore):
    """Capacity and free amounts of a group's agents, in canonical units (``core.resources``)."""

    def __init__(self) -> None:
        super().__init__()
        # By the models asked for, and whether a part of a device is.
        self._allowed_of: dict[tuple[tuple[str, ...], bool], list[bool]] = {}
        self._partitions_of, self._has_partitions = 0, False
        self._size: Floats = np.zeros(0)
        self._size_version = -1

    def detached(self) -> Self:
        twin = super().detached()
        twin._allowed_of = {}  # the copies' codes of models may differ
        twin._partitions_of = 0
        return twin

    def empty(self, capacity: Resources, devices: Sequence[Device]) -> AgentAmounts:
        """The amounts of an agent of this kind, on which nothing is held and which takes work; rows
        for its resources and devices are there."""
        machine = self._machine(capacity, devices)
        milli = [GPU_WHOLE * (model >= 0) for model in machine.models]
        amounts = array("q", machine.capacity + milli)
        return AgentAmounts(machine, amounts, len(self._free), accepting=True)

    # For selectors and explanations: read-only views, one row or entry a slot

    @property
    def rows(self) -> tuple[int, int]:
        """How many dimensions and devices there are."""
        return len(self._free), len(self._device_free)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the columns of ``capacity`` and ``free``."""
        return tuple(self._dimensions)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of device models; ``device_model`` holds indexes into this."""
        return tuple(self._model_codes)

    @property
    def capacity(self) -> Ints:
        """Slots × dimensions."""
        return self._view(self._capacity)

    @property
    def free(self) -> Ints:
        """Slots × dimensions; negative where agents reported more than there was room for."""
        self._write()
        return self._view(self._free)

    @property
    def device_capacity(self) -> Ints:
        """Slots × device indexes: 1000 where there is a device, else 0."""
        return self._view(self._device_capacity)

    @property
    def device_free(self) -> Ints:
        """Slots × device indexes, in milli; may be negative as ``free`` may."""
        self._write()
        return self._view(self._device_free)

    @property
    def device_model(self) -> Ints:
        """Slots × device indexes: index into ``models``, -1 where there is no device."""
        return self._view(self._device_model)

    @property
    def device_count(self) -> Ints:
        """Devices by slot."""
        return self._view(self._device_count)

    @property
    def whole_free(self) -> Ints:
        """Wholly free devices by slot."""
        self._write()
        return self._view(self._whole_free)

    @property
    def largest_free(self) -> Ints:
        """Free milli of the freest device by slot."""
        self._write()
        return self._view(self._largest_free)

    @property
    def present(self) -> Flags:
        """Whether the slot has an agent."""
        return self._view(self._present)

    @property
    def accepting(self) -> Flags:
        """Whether the slot's agent takes new work."""
        return self._view(self._accepting)

    @property
    def returning(self) -> Flags:
        """Whether the slot's agent takes no new work now, but will in a moment."""
        return self._view(self._returning)

    @property
    def utilisation(self) -> Floats:
        """The held part, averaged over the kinds of resources that the agent has; the number of
        kernels is no resource.

        It is in steps of a millionth: agents that differ by less are equally full.
        """
        self._write()
        return self._view(self._steps / STEPS)

    @property
    def size(self) -> Floats:
        """Total capacity from 0 to 1: the mean over all kinds of resources, relative to the largest
        of the group; in steps of a millionth. The number of kernels is no resource."""
        if self._size_version != self.capacity_version:
            capacity = of_resources(self._capacity[:, : self._count], self._dimensions)
            capacity = np.vstack((capacity, self.device_count))
            largest = capacity.max(axis=1, keepdims=True, initial=1)
            self._size = np.floor((capacity / largest).mean(axis=0) * STEPS + 0.5) / STEPS
            self._size_version = self.capacity_version
        return self._view(self._size)

    @property
    def device_indexes(self) -> int:
        """The number of device indexes: one more than the largest ever named."""
        return len(self._device_capacity)

    @property
    def is_mixed(self) -> bool:
        """Whether some agents have devices and others have none."""
        return 0 < self._with_devices < self._known

    # Where a request fits

    def need(self, request: Resources) -> Need | None:
        """``request`` in terms of these columns; None if no agent, even an empty one, has enough.

        The Need is valid until an agent's capacity changes.
        """
        requested = self._requested(request)
        if requested is None:
            return None
        gpu, allowed = request.gpu_milli, None
        devices, milli = (gpu // GPU_WHOLE, GPU_WHOLE) if gpu >= GPU_WHOLE else (int(gpu > 0), gpu)
        if self._chooses(request):
            allowed = self._allowed_codes(request)
        word = self._packing.request(requested, devices, milli)
        return None if word == NOWHERE else Need(request, requested, devices, milli, allowed, word)

    def fitting(self, request: Resources) -> Ints:
        """The slots of all agents that have room for ``request`` now, ascending."""
        requested = self._requested(request)
        if requested is None:
            return np.empty(0, np.int64)
        self._write()
        count = self._count
        mask = self._open[:count].copy()
        for dimension, amount in requested:
            mask &= self._free[dimension, :count] >= amount
        if self._chooses(request):
            slots = np.flatnonzero(mask)
            return slots[self.copies(request, slots, 1) > 0]
        if request.gpu_milli >= GPU_WHOLE:
            mask &= self._whole_free[:count] >= request.gpu_devices
        elif request.gpu_milli:
            mask &= self._largest_free[:count] >= request.gpu_milli
        return np.flatnonzero(mask)

    def copies(self, request: Resources, slots: Ints, limit: int) -> Ints:
        """How often ``request`` fits in each of ``slots``, at most ``limit``; not above 0 where it
        does not fit once.

        The number is exact whichever devices are chosen: each share taken leaves room for exactly
        one share less on its device.
        """
        requested = self._requested(request)
        self._write()
        count = np.full(slots.size, 0 if requested is None else limit, np.int64)
        for dimension, amount in requested or ():
            np.minimum(count, self._free[dimension, slots] // amount, out=count)
        if not request.gpu_milli:
            return count
        if request.gpu_milli >= GPU_WHOLE:
            whole = self._whole_free[slots]
            if self._chooses(request):
                free = self._device_free[:, slots] == GPU_WHOLE
                whole = (free & self._allowed(request, slots)).sum(axis=0)
            np.minimum(count, whole // request.gpu_devices, out=count)
        else:
            shares = self._device_free[:, slots] // request.gpu_milli
            if self._chooses(request):
                shares *= self._allowed(request, slots)
            np.minimum(count, shares.sum(axis=0), out=count)
        return count

    def uncounted(self) -> "Columns":
        """A copy in which no agent holds too many kernels, to try on requests that do not count
        toward their number."""
        twin, dimension = self.copy(), self._dimensions[KERNELS]
        twin._free[dimension] = twin._capacity[dimension]
        twin._open = twin._accepting & (twin._least_free(twin._accepting | True) >= 0)
        return twin

    def has_room(self, slot: int, need: Need) -> bool:
        """Whether the agent in ``slot`` has room for one kernel now."""
        return need.has_room(self._agents[slot] or self._load(slot))

    def room(self, slot: int, need: Need, limit: int) -> int:
        """How many kernels fit in ``slot``, at most ``limit``; at least one must fit."""
        return need.room(self._agents[slot] or self._load(slot), limit)

    def fits_at(self, slot: int, request: Resources, shares: Shares, copies: int) -> bool:
        """Whether ``copies`` of ``request`` and ``shares`` once are free in ``slot``."""
        requested = self._requested(request)
        if requested is None:
            return False
        free, devices = self._agent(slot).amounts, len(self._device_free)
        first = len(self._free)
        return all(free[dimension] >= amount * copies for dimension, amount in requested) and all(
            0 <= index < devices and free[first + index] >= milli
            for index, milli in by_device(shares)
        )

    def holds_at(self, slot: int, request: Resources, shares: Shares) -> bool:
        """Whether ``request`` and ``shares`` are held in ``slot``, and so can be given back."""
        requested = self._requested(request)
        if requested is None:
            return False
        free, devices = self._agent(slot).amounts, len(self._device_free)
        first = len(self._free)
        has, device_has = self._capacity, self._device_capacity
        return all(has[index, slot] - free[index] >= amount for index, amount in requested) and all(
            0 <= index < devices and device_has[index, slot] - free[first + index] >= milli
            for index, milli in by_device(shares)
        )

    def devices_for(self, request: Resources, slot: int) -> list[tuple[int, int]]:
        """Free milli and index of each device in ``slot`` that ``request`` may have a share of, by
        index: wholly free devices for a request of whole ones, else devices with enough free."""
        need = self.need(request)
        return [] if need is None else need.devices_in(self.agent(slot))

    # For orders of agents

    def all_steps(self) -> Ints:
        """The utilisation of all slots in millionths."""
        self._write()
        return self._steps[: self._count]

    def words(self) -> Words:
        """The words of all slots."""
        self._write()
        count = self._count
        return self._packing.agents(
            self._free[:, :count],
            self._whole_free[:count],
            self._largest_free[:count],
            self._device_count[:count] == 0,
            self._open[:count],
        )

    def step(self, slots: Ints, need: Need) -> Floats:
        """An estimate of the utilisation that one kernel adds in each of ``slots``, in
        millionths."""
        capacity = of_resources(self._capacity[:, slots], self._dimensions)
        held, kinds = np.zeros(slots.size), (capacity > 0).sum(axis=0)
        for dimension, amount in need.requested:
            has = capacity[dimension]
            held += np.divide(amount, has, out=np.zeros(slots.size), where=has > 0)
        devices = self._device_count[slots]
        held += np.where(devices > 0, need.devices * need.milli / np.maximum(devices, 1) / 1e3, 0.0)
        steps: Floats = held / np.maximum(kinds + (devices > 0), 1) * STEPS
        return steps

    def steps_after(self, slots: Ints, need: Need, kernels: Ints) -> Ints:
        """The utilisation that each of ``slots`` would have, in millionths, with ``kernels`` more
        kernels."""
        self._write()
        free = self._free[:, slots]
        for dimension, amount in need.requested:
            free[dimension] -= amount * kernels
        devices = self._device_free[:, slots].sum(axis=0) - kernels * need.devices * need.milli
        return self._steps_of(slots, free, devices)

    # Inside

    def _view(self, rows: Array) -> Array:
        view = rows[..., : self._count].T
        view.flags.writeable = False
        return view

    def _chooses(self, request: Resources) -> bool:
        """Whether not every device will do for the request: it allows some models alone, or is for
        a part of a device, which partitions of GPUs do not give."""
        if not request.gpu_milli:
            return False
        return bool(request.gpu_models) or (request.gpu_milli < GPU_WHOLE and self.has_partitions)

    @property
    def has_partitions(self) -> bool:
        """Whether some devices are partitions of GPUs."""
        known = len(self._model_codes)
        if self._partitions_of != known:
            self._partitions_of = known
            self._has_partitions = any(map(is_partition, self._model_codes))
        return self._has_partitions

    def usable(self, request: Resources, slots: Ints) -> Flags:
        """Devices × ``slots``: whether the request may be given the device, or a part of it."""
        if not self._chooses(request):
            return self._device_model[:, slots] >= 0
        return self._allowed(request, slots)

    def _allowed(self, request: Resources, slots: Ints) -> Flags:
        """Devices × ``slots``: whether it is of a model that the request allows."""
        codes = np.array(self._allowed_codes(request), np.bool_)
        return codes[self._device_model[:, slots]]

    def _allowed_codes(self, request: Resources) -> list[bool]:
        """For each model's code whether the request allows it; the last entry, for "no device", is
        false."""
        known, models = self._model_codes, request.gpu_models
        is_part = request.gpu_milli < GPU_WHOLE
        wish = models, is_part
        codes = self._allowed_of.get(wish)
        if codes is None or len(codes) != len(known) + 1:
            codes = [
                (not models or any(is_model(model, wanted) for wanted in models))
                and not (is_part and is_partition(model))
                for model in known
            ]
            codes.append(False)
            if len(self._allowed_of) >= _MOST_WISHES:
                self._allowed_of.clear()
            self._allowed_of[wish] = codes
        return codes
