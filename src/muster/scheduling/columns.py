"""What agents have and what of it is free, as numpy columns with one entry an agent.

A decision looks at all agents at once (DESIGN section 4), so amounts are kept by column. An agent
is known here by its *slot*, the index into every column.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from muster.core.errors import MusterError
from muster.core.resources import GPU_WHOLE, Device, DeviceShare, Resources

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Array = TypeVar("Array", Ints, Floats, Flags)
Shares: TypeAlias = tuple[DeviceShare, ...]

MAX_DEVICES = 128  # device indexes of one agent
MAX_DIMENSIONS = 128  # named resources of one group
_DIMENSIONS = ("cpu", "memory", "disk")
_FIRST_SLOTS = 16


class Columns:
    """Capacity and free amounts of a group's agents, in canonical units (``core.resources``).

    Dimensions are cpu, memory and disk, then extras in the order they appeared. GPUs are not a
    dimension but individual devices of 1000 milli each: ``gpu_milli`` of a capacity or of what is
    taken is not looked at, devices and shares are.

    What is derived from free amounts is derived anew whenever they change, so that taking and
    giving back leaves no trace.
    """

    def __init__(self) -> None:
        self._count = 0
        self._rows = {name: row for row, name in enumerate(_DIMENSIONS)}
        self._model_codes: dict[str, int] = {}
        # Rows are dimensions or devices, columns are slots: one dimension of all agents lies
        # together. There are more columns than slots, so that growth is amortised.
        dimensions, slots = len(_DIMENSIONS), _FIRST_SLOTS
        self._capacity: Ints = np.zeros((dimensions, slots), np.int64)
        self._free: Ints = np.zeros((dimensions, slots), np.int64)
        self._device_capacity: Ints = np.zeros((0, slots), np.int64)
        self._device_free: Ints = np.zeros((0, slots), np.int64)
        self._device_model: Ints = np.full((0, slots), -1, np.int64)
        self._device_count: Ints = np.zeros(slots, np.int64)
        self._present: Flags = np.zeros(slots, np.bool_)
        self._accepting: Flags = np.zeros(slots, np.bool_)
        # Derived by _derive:
        self._open: Flags = np.zeros(slots, np.bool_)  # accepting, and no amount is negative
        self._whole_free: Ints = np.zeros(slots, np.int64)
        self._largest_free: Ints = np.zeros(slots, np.int64)
        self._utilisation: Floats = np.zeros(slots, np.float64)
        self._size: Floats | None = None  # None while capacities have changed since

    # What selectors and explanations read: read-only views, one row or entry a slot

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the columns of ``capacity`` and ``free``."""
        return tuple(self._rows)

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
        return self._view(self._free)

    @property
    def device_capacity(self) -> Ints:
        """Slots × device indexes: 1000 where there is a device, else 0."""
        return self._view(self._device_capacity)

    @property
    def device_free(self) -> Ints:
        """Slots × device indexes, in milli; may be negative as ``free`` may."""
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
        return self._view(self._whole_free)

    @property
    def largest_free(self) -> Ints:
        """Free milli of the freest device by slot."""
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
    def utilisation(self) -> Floats:
        """The part that is held, averaged over the kinds of resources that the agent has.

        In steps of a millionth: what differs by less is equally full.
        """
        return self._view(self._utilisation)

    @property
    def size(self) -> Floats:
        """Total capacity from 0 to 1: the mean over all kinds of resources, relative to the
        largest of the group."""
        if self._size is None:
            capacity = np.vstack((self.capacity.T, self.device_count))
            largest = capacity.max(axis=1, keepdims=True, initial=1)
            self._size = (capacity / largest).mean(axis=0)
        return self._view(self._size)

    # Where a request fits

    def fitting(self, request: Resources) -> Ints:
        """The slots of all agents that have room for ``request`` now, ascending."""
        asked = self._asked(request)
        if asked is None:
            return np.empty(0, np.int64)
        count = self._count
        mask = self._open[:count].copy()
        for row, amount in asked:
            mask &= self._free[row, :count] >= amount
        if request.gpu_milli >= GPU_WHOLE:
            mask &= self._whole_free[:count] >= request.gpu_devices
        elif request.gpu_milli:
            mask &= self._largest_free[:count] >= request.gpu_milli
        return np.flatnonzero(mask)

    def copies(self, request: Resources, slots: Ints, limit: int) -> Ints:
        """How often ``request`` fits in each of ``slots``, at most ``limit``; not above 0 where it
        does not fit once.

        Exact, whichever devices are chosen: a share makes room for just one less on its device.
        """
        asked = self._asked(request)
        count = np.full(slots.size, 0 if asked is None else limit, np.int64)
        for row, amount in asked or ():
            np.minimum(count, self._free[row, slots] // amount, out=count)
        if request.gpu_milli >= GPU_WHOLE:
            np.minimum(count, self._whole_free[slots] // request.gpu_devices, out=count)
        elif request.gpu_milli:
            shares = self._device_free[:, slots] // request.gpu_milli
            np.minimum(count, shares.sum(axis=0), out=count)
        return count

    def fits_at(self, slot: int, request: Resources, shares: Shares, copies: int) -> bool:
        """Whether ``copies`` of ``request`` and ``shares`` once are free in ``slot``."""
        asked = self._asked(request)
        if asked is None:
            return False
        free = self._free
        if any(free[row, slot] < amount * copies for row, amount in asked):
            return False
        devices = self._device_free
        return not shares or all(
            index < len(devices) and devices[index, slot] >= milli
            for index, milli in _by_device(shares)
        )

    def holds_at(self, slot: int, request: Resources, shares: Shares) -> bool:
        """Whether so much is held in ``slot``."""
        asked = self._asked(request)
        if asked is None:
            return False
        free, capacity = self._free, self._capacity
        if any(capacity[row, slot] - free[row, slot] < amount for row, amount in asked):
            return False
        free, capacity = self._device_free, self._device_capacity
        return not shares or all(
            index < len(free) and capacity[index, slot] - free[index, slot] >= milli
            for index, milli in _by_device(shares)
        )

    # Changes

    def append_slot(self) -> int:
        """A new slot, without an agent."""
        slot = self._count
        if slot == self._present.size:
            self._double()
        self._count += 1
        self._size = None
        return slot

    def make_rows(self, resources: Resources, device_indexes: Sequence[int]) -> None:
        """Have rows for what is named; must come before amounts of it.

        Raises:
            MusterError: more devices or kinds of resources than a group can have.
        """
        missing = [name for name, _ in resources.extra if name not in self._rows]
        if any(not 0 <= index < MAX_DEVICES for index in device_indexes):
            raise MusterError(
                f"device indexes go from 0 to {MAX_DEVICES - 1}, not {list(device_indexes)}"
            )
        if len(self._rows) + len(missing) > MAX_DIMENSIONS:
            raise MusterError(
                f"a group knows at most {MAX_DIMENSIONS} kinds of resources; {', '.join(missing)} "
                "would be too many"
            )
        if missing:
            for name in missing:
                self._rows[name] = len(self._rows)
            self._capacity = _with_rows(self._capacity, len(missing), 0)
            self._free = _with_rows(self._free, len(missing), 0)
        devices = max(device_indexes, default=-1) + 1 - len(self._device_free)
        if devices > 0:
            self._device_capacity = _with_rows(self._device_capacity, devices, 0)
            self._device_free = _with_rows(self._device_free, devices, 0)
            self._device_model = _with_rows(self._device_model, devices, -1)

    def set_agent(
        self, slot: int, capacity: Resources, devices: Sequence[Device], accepting: bool
    ) -> None:
        """Say what the agent in ``slot`` has; what is held of it stays held."""
        amounts = np.zeros(len(self._rows), np.int64)
        for row, amount in self._asked(capacity) or ():
            amounts[row] = amount
        milli = np.zeros(len(self._device_capacity), np.int64)
        models = np.full(len(self._device_capacity), -1, np.int64)
        for device in devices:
            milli[device.index] = GPU_WHOLE
            models[device.index] = self._model_codes.setdefault(
                device.model, len(self._model_codes)
            )
        self._free[:, slot] += amounts - self._capacity[:, slot]
        self._capacity[:, slot] = amounts
        self._device_free[:, slot] += milli - self._device_capacity[:, slot]
        self._device_capacity[:, slot] = milli
        self._device_model[:, slot] = models
        self._device_count[slot] = len(devices)
        self._present[slot] = True
        self._accepting[slot] = accepting
        self._size = None
        self._derive(slot)

    def clear(self, slot: int) -> None:
        """The agent has left ``slot``, with all that was held of it."""
        self.set_agent(slot, Resources(), (), accepting=False)
        self._free[:, slot] = 0
        self._device_free[:, slot] = 0
        self._present[slot] = False
        self._derive(slot)

    def move(self, slot: int, request: Resources, shares: Shares, copies: int) -> None:
        """Give back ``request`` ``copies`` times, or take it where negative; ``shares`` once."""
        for row, amount in self._asked(request) or ():
            self._free[row, slot] += amount * copies
        for share in shares:
            self._device_free[share.index, slot] += share.milli if copies > 0 else -share.milli
        self._derive(slot)

    def emptied(self, *, all_accept: bool) -> "Columns":
        """A copy in which nothing is held; with ``all_accept`` silent agents take work too."""
        twin = copy.copy(self)
        twin._free = self._capacity.copy()
        twin._device_free = self._device_capacity.copy()
        twin._accepting = self._present if all_accept else self._accepting
        twin._open = twin._accepting.copy()
        twin._whole_free = self._device_count.copy()
        twin._largest_free = np.minimum(self._device_count, 1) * GPU_WHOLE
        twin._utilisation = np.zeros_like(self._utilisation)
        return twin

    # Inside

    def _view(self, rows: Array) -> Array:
        view = rows[..., : self._count].T
        view.flags.writeable = False
        return view

    def _asked(self, request: Resources) -> list[tuple[int, int]] | None:
        """(row, amount) of each dimension asked for; None if one has no row."""
        asked = []
        if request.cpu_milli:
            asked.append((0, request.cpu_milli))
        if request.memory_bytes:
            asked.append((1, request.memory_bytes))
        if request.disk_bytes:
            asked.append((2, request.disk_bytes))
        for name, amount in request.extra:
            row = self._rows.get(name)
            if row is None:
                return None
            asked.append((row, amount))
        return asked

    def _derive(self, slot: int) -> None:
        """Set an agent's derived entries. In plain Python: numpy is slower on a few numbers."""
        free = self._free[:, slot].tolist()
        devices = self._device_free[:, slot].tolist()
        lowest = min(free)
        held, kinds = 0.0, 0
        for has, left in zip(self._capacity[:, slot].tolist(), free, strict=True):
            if has:
                held += (has - left) / has
                kinds += 1
        if devices:
            lowest = min(lowest, *devices)
            self._whole_free[slot] = devices.count(GPU_WHOLE)
            self._largest_free[slot] = max(devices)
            has = int(self._device_count[slot]) * GPU_WHOLE
            if has:
                held += (has - sum(devices)) / has
                kinds += 1
        self._open[slot] = lowest >= 0 and self._accepting[slot]
        self._utilisation[slot] = round(held / kinds, 6) if kinds else 0.0

    def _double(self) -> None:
        self._capacity = _doubled(self._capacity)
        self._free = _doubled(self._free)
        self._device_capacity = _doubled(self._device_capacity)
        self._device_free = _doubled(self._device_free)
        self._device_model = _doubled(self._device_model, -1)
        self._device_count = _doubled(self._device_count)
        self._present = _doubled(self._present)
        self._accepting = _doubled(self._accepting)
        self._open = _doubled(self._open)
        self._whole_free = _doubled(self._whole_free)
        self._largest_free = _doubled(self._largest_free)
        self._utilisation = _doubled(self._utilisation)


def _doubled(rows: Array, fill: int = 0) -> Array:
    return np.concatenate((rows, np.full_like(rows, fill)), axis=-1)


def _with_rows(rows: Ints, count: int, fill: int) -> Ints:
    return np.vstack((rows, np.full((count, rows.shape[1]), fill, np.int64)))


def _by_device(shares: Shares) -> Iterable[tuple[int, int]]:
    """Milli by device index; a device may be named twice."""
    milli: dict[int, int] = {}
    for share in shares:
        milli[share.index] = milli.get(share.index, 0) + share.milli
    return milli.items()
