"""The amounts of a group's agents: capacity, free amounts, and their changes.

An agent is known here by its *slot*. All amounts are kept by column, one dimension or device of all
agents side by side. A change of one agent is made in its ``AgentAmounts``, which is written to the
columns when these are read next. Decisions ask ``Columns``, in ``columns``.
"""

import copy
from array import array
from collections.abc import Sequence
from typing import Self

import numpy as np

from muster.core.errors import LimitExceeded
from muster.core.resources import GPU_WHOLE, KERNELS, MAX_DEVICES, Device, Resources
from muster.scheduling.cluster.agent_amounts import STEPS, AgentAmounts, KindAmounts
from muster.scheduling.cluster.bulk import (
    Bulk,
    Flags,
    Ints,
    Shares,
    amounts_by_dimension,
    doubled,
    of_resources,
    with_rows,
)
from muster.scheduling.cluster.packing import MAX_DIMENSIONS, Packing

_DIMENSIONS = ("cpu", "memory", "disk")
_FIRST_SLOTS = 16
_MOST_CHANGES = 4096  # remembered changes, and four for each agent
_BY_SLOT = (
    *("_capacity", "_free", "_device_capacity", "_device_free", "_device_model", "_device_count"),
    *("_present", "_accepting", "_returning", "_open", "_whole_free", "_largest_free", "_steps"),
)
_FEW = 8  # slots that are written, and told apart, one by one


class ColumnStore:
    """Dimensions are cpu, memory and disk, then extras and the number of kernels (where it counts)
    in the order they appeared. GPUs are not a dimension but individual devices of 1000 milli each:
    ``gpu_milli`` of a capacity or a request is ignored in favour of devices and shares.

    Derived values are computed anew when free amounts change, so that taking and giving back leaves
    no trace.

    ``capacity_version`` goes up when an agent's capacity changes.
    """

    def __init__(self) -> None:
        self._count = 0
        self._dimensions = {name: dimension for dimension, name in enumerate(_DIMENSIONS)}
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
        self._returning: Flags = np.zeros(slots, np.bool_)
        # Derived:
        self._open: Flags = np.zeros(slots, np.bool_)  # accepting, and no amount is negative
        self._whole_free: Ints = np.zeros(slots, np.int64)
        self._largest_free: Ints = np.zeros(slots, np.int64)
        self._steps: Ints = np.zeros(slots, np.int64)  # utilisation
        self._known = 0  # the number of agents
        self._with_devices = 0  # the number of agents with devices
        # One by one:
        self._machines: list[KindAmounts] = []  # by slot; equal machines are one object
        self._kinds: dict[tuple[tuple[int, ...], tuple[int, ...]], KindAmounts] = {}
        self._agents: list[AgentAmounts | None] = []  # by slot; None until it is needed
        self._changes: list[int] = []  # slots as they changed, from the mark _changes_from on
        self._changes_from = 0
        self._written = 0  # the mark up to which changes are in the columns
        self._packing = Packing()
        self._last_requested: tuple[Resources, list[tuple[int, int]] | None] = (Resources(), [])
        self.capacity_version = 0

    @property
    def slots(self) -> int:
        """The number of slots, vacant ones included."""
        return self._count

    def agent(self, slot: int) -> AgentAmounts:
        """One agent's entries, derived ones included; must not be changed."""
        agent = self._agents[slot] or self._load(slot)
        if not agent.settled:
            agent.settle()
        return agent

    def measure(self, slot: int) -> tuple[int, int]:
        """The utilisation in millionths, and the amounts as a word (see ``packing``)."""
        return self.agent(slot).measure(self._packing)

    @property
    def changes_mark(self) -> int:
        """The present point, for a later ``changed_since``."""
        return self._changes_from + len(self._changes)

    def changed_since(self, mark: int) -> list[int] | None:
        """The slots whose entries may have changed since ``mark``, some repeatedly; None if that is
        too long ago to tell."""
        self._forget_changes()
        if mark < self._changes_from:
            return None
        return self._changes[mark - self._changes_from :]

    def slots_changed_since(self, mark: int) -> Ints | None:
        """``changed_since`` with each slot once: all slots if ``mark`` is too long ago, None if
        none has changed."""
        if mark == self.changes_mark:
            return None
        changed = self.changed_since(mark)
        if changed is None or len(changed) > self._count:
            return np.arange(self._count)
        return np.array(list(set(changed)), np.int64)

    # Changes

    def append_slots(self, count: int) -> int:
        """So many new slots, without agents; the answer is the first of them."""
        first = self._count
        while first + count > self._present.size:
            self._double()
        self._count += count
        self._agents += [None] * count
        self._machines += [_NOTHING] * count
        self.capacity_version += 1
        return first

    def make_rows(self, resources: Resources, device_indexes: Sequence[int]) -> None:
        """Make rows for these resources and devices; to be called before their amounts are used.

        Raises:
            LimitExceeded: more devices or kinds of resources than a group can have.
        """
        names = [*(name for name, _ in resources.extra), *([KERNELS] if resources.kernels else ())]
        missing = [name for name in names if name not in self._dimensions]
        if any(not 0 <= index < MAX_DEVICES for index in device_indexes):
            raise LimitExceeded(
                f"device indexes go from 0 to {MAX_DEVICES - 1}, not {list(device_indexes)}"
            )
        if (kinds := len(self._dimensions) + len(missing)) > MAX_DIMENSIONS:
            raise LimitExceeded(
                f"the agents of a group have at most {MAX_DIMENSIONS} kinds of resources in all; "
                f"with {', '.join(missing[:5])} of this one there would be {kinds}"
            )
        devices = max(device_indexes, default=-1) + 1 - len(self._device_free)
        if not missing and devices <= 0:
            return
        self._write()
        self._agents = [None] * self._count
        if missing:
            for name in missing:
                self._dimensions[name] = len(self._dimensions)
            self._last_requested = Resources(), []
            self._capacity = with_rows(self._capacity, len(missing), 0)
            self._free = with_rows(self._free, len(missing), 0)
        if devices > 0:
            self._device_capacity = with_rows(self._device_capacity, devices, 0)
            self._device_free = with_rows(self._device_free, devices, 0)
            self._device_model = with_rows(self._device_model, devices, -1)

    def expect(self, capacity: Resources, devices: Sequence[Device]) -> None:
        """``make_rows`` for agents of this kind, whose coming changes no Need from now on."""
        self.make_rows(capacity, [device.index for device in devices])
        self._machine(capacity, devices)
        self.capacity_version += 1

    def set_agents(
        self,
        slots: range,
        capacity: Resources,
        devices: Sequence[Device],
        accepting: bool,
        returning: bool = False,
    ) -> None:
        """Set the capacity of the agents in ``slots``, which are alike; room that is held on them
        stays held."""
        its = slice(slots.start, slots.stop)
        if any(self._agents[its]):
            self._write()
        machine = self._machine(capacity, devices)
        amounts = np.array(machine.capacity, np.int64)
        models = np.array(machine.models, np.int64)
        milli = (models >= 0) * GPU_WHOLE
        count, with_devices = len(slots), int(np.count_nonzero(self._device_count[its]))
        self._free[:, its] += amounts[:, None] - self._capacity[:, its]
        self._capacity[:, its] = amounts[:, None]
        self._device_free[:, its] += milli[:, None] - self._device_capacity[:, its]
        self._device_capacity[:, its] = milli[:, None]
        self._device_model[:, its] = models[:, None]
        self._with_devices += bool(devices) * count - with_devices
        self._device_count[its] = len(devices)
        self._known += count - int(np.count_nonzero(self._present[its]))
        self._present[its] = True
        self._accepting[its] = accepting
        self._returning[its] = returning
        if any(machine is not each for each in self._machines[its]):
            self._machines[its] = [machine] * count
            self.capacity_version += 1
        self._agents[its] = [None] * count
        self._changes += slots

    def accept(self, slots: range, *, accepting: bool) -> None:
        """Have the agents in ``slots`` take new work, or none."""
        self._accepting[slots.start : slots.stop] = accepting
        for agent in self._agents[slots.start : slots.stop]:
            if agent is not None:
                agent.accepting, agent.settled = accepting, False
        self._changes += slots

    def adopt(self, slot: int, agent: AgentAmounts) -> None:
        """Have ``agent``, of the same capacity, be the agent in ``slot``."""
        self._agents[slot] = agent
        self._accepting[slot] = agent.accepting
        self._changes.append(slot)

    def clear(self, slot: int) -> None:
        """Empty ``slot``, whose agent has left, with all room held on it."""
        self.set_agents(range(slot, slot + 1), Resources(), (), accepting=False)
        self._free[:, slot] = 0
        self._device_free[:, slot] = 0
        self._known -= 1
        self._present[slot] = False
        self._agents[slot] = None
        self._changes.append(slot)

    def move(self, slot: int, request: Resources, shares: Shares, copies: int) -> None:
        """Give back ``request`` ``copies`` times, or take it where negative; ``shares`` once."""
        self.move_requested(slot, self._requested(request) or [], shares, copies)

    def move_requested(
        self, slot: int, requested: list[tuple[int, int]], shares: Shares, copies: int
    ) -> None:
        """``move``, with the ``requested`` amounts of a ``Need``."""
        (self._agents[slot] or self._load(slot)).move(requested, shares, copies)
        self._changes.append(slot)

    def move_all(self, bulk: Bulk, copies: int = 1) -> None:
        """Give back all of ``bulk``, or take it where ``copies`` is -1."""
        if bulk.slots.size <= _FEW:
            self._move_few(bulk, copies)
            return
        self._write()
        for free, amounts in zip(self._free, bulk.amounts, strict=True):
            np.add.at(free, bulk.slots, amounts * copies)
        where = (bulk.devices, bulk.device_slots)
        np.add.at(self._device_free, where, bulk.device_milli * copies)
        slots = np.unique(bulk.slots)
        self._derive(slots)
        self._written_to(slots)

    def _move_few(self, bulk: Bulk, copies: int) -> None:
        for slot, moved in zip(bulk.slots.tolist(), bulk.amounts.T.tolist(), strict=True):
            self.move_requested(slot, [*enumerate(moved)], (), copies)
        for slot, share in bulk.shares():
            self.move_requested(slot, [], (share,), copies)

    def amounts(self, request: Resources) -> Ints:
        """The amount of each dimension in ``request``."""
        amounts = np.zeros(len(self._dimensions), np.int64)
        for dimension, amount in self._requested(request) or ():
            amounts[dimension] = amount
        return amounts

    def copy(self) -> Self:
        """A copy to try on; its agents must not be changed."""
        self._write()
        twin = self._twin()
        twin._free = self._free.copy()
        twin._device_free = self._device_free.copy()
        twin._open = self._open.copy()
        twin._whole_free = self._whole_free.copy()
        twin._largest_free = self._largest_free.copy()
        twin._steps = self._steps.copy()
        return twin

    def detached(self) -> Self:
        """A copy whose agents may be changed."""
        twin = self.copy()
        own = vars(twin)
        for name in _BY_SLOT:
            own[name] = own[name].copy()
        return twin

    def with_returning(self) -> Self:
        """A copy in which returning agents take work too."""
        twin = self.copy()
        twin._accepting = self._accepting | self._returning
        twin._open[self._returning] = self._least_free(self._returning) >= 0
        return twin

    def emptied(self, *, all_accept: bool) -> Self:
        """A copy in which no room is held and returning agents are back; with ``all_accept`` silent
        ones take work too."""
        twin = self._twin()
        twin._free = self._capacity.copy()
        twin._device_free = self._device_capacity.copy()
        twin._accepting = self._present if all_accept else self._accepting | self._returning
        twin._open = twin._accepting.copy()
        twin._whole_free = self._device_count.copy()
        twin._largest_free = np.minimum(self._device_count, 1) * GPU_WHOLE
        twin._steps = np.zeros_like(self._steps)
        return twin

    # Inside

    def _requested(self, request: Resources) -> list[tuple[int, int]] | None:
        """(dimension, amount) of each resource in the request; None where no agent has one of them.
        The last answer is remembered: kernels of a gang or a job share one request object."""
        last, known = self._last_requested
        if request is not last:
            known = amounts_by_dimension(request, self._dimensions)
            self._last_requested = request, known
        return known

    def _agent(self, slot: int) -> AgentAmounts:
        return self._agents[slot] or self._load(slot)

    def _load(self, slot: int) -> AgentAmounts:
        amounts = array("q", self._free[:, slot].tobytes() + self._device_free[:, slot].tobytes())
        accepting = bool(self._accepting[slot])
        agent = AgentAmounts(self._machines[slot], amounts, len(self._free), accepting=accepting)
        self._agents[slot] = agent
        return agent

    def _machine(self, capacity: Resources, devices: Sequence[Device]) -> KindAmounts:
        """The kind of an agent; rows for its resources and devices are there."""
        amounts = self.amounts(capacity).tolist()
        models = [-1] * len(self._device_capacity)
        for device in devices:
            models[device.index] = self._model_codes.setdefault(
                device.model, len(self._model_codes)
            )
        key = tuple(amounts), tuple(models)
        machine = self._kinds.get(key)
        if machine is None:
            if len(self._kinds) > 2 * self._count + _FEW:  # most are in use no longer
                self._kinds.clear()
            machine = KindAmounts.of(amounts, models, len(devices), self._dimensions.get(KERNELS))
            self._kinds[key] = machine
            self._packing.make_room(amounts)
        return machine

    def _write(self) -> None:
        """Write the amounts of changed agents from their ``AgentAmounts`` to the columns."""
        mark = self.changes_mark
        if mark == self._written:
            return
        changed = set(self._changes[self._written - self._changes_from :])
        self._written = mark
        agents = [self._agent(slot) for slot in changed]
        self._forget_changes()
        first = len(self._free)
        if len(changed) > _FEW:
            slots = np.array(list(changed), np.int64)
            amounts = np.frombuffer(b"".join([agent.amounts for agent in agents]), np.int64)
            amounts = amounts.reshape(len(agents), -1).T
            self._free[:, slots] = amounts[:first]
            self._device_free[:, slots] = amounts[first:]
            self._derive(slots)
            return
        for slot, agent in zip(changed, agents, strict=True):
            if not agent.settled:
                agent.settle()
            self._free[:, slot] = agent.amounts[:first]
            self._device_free[:, slot] = agent.amounts[first:]
            self._whole_free[slot] = agent.whole
            self._largest_free[slot] = agent.largest
            self._steps[slot], _ = agent.measure(self._packing)
            self._open[slot] = agent.open

    def _forget_changes(self) -> None:
        """Forget the older half of the remembered changes, if they are too many."""
        if len(self._changes) > _MOST_CHANGES + 4 * self._count:
            self._write()
            forgotten = len(self._changes) // 2
            del self._changes[:forgotten]
            self._changes_from += forgotten

    def _written_to(self, slots: Ints) -> None:
        """Note that the columns of ``slots`` are newer than their ``AgentAmounts``."""
        agents, changed = self._agents, slots.tolist()
        for slot in changed:
            agents[slot] = None
        if len(changed) <= max(_FEW, self._count // 4):
            self._changes += changed
        else:  # too many to be worth telling apart
            self._changes, self._changes_from = [], self.changes_mark + 1
        self._written = self.changes_mark

    def _derive(self, slots: Ints) -> None:
        """Compute the derived columns of many slots (see ``AgentAmounts``)."""
        free, devices = self._free[:, slots], self._device_free[:, slots]
        if len(devices):
            self._whole_free[slots] = (devices == GPU_WHOLE).sum(axis=0)
            self._largest_free[slots] = devices.max(axis=0)
        self._open[slots] = (self._least_free(slots) >= 0) & self._accepting[slots]
        self._steps[slots] = self._steps_of(slots, free, devices.sum(axis=0))

    def _least_free(self, slots: Ints | Flags) -> Ints:
        least: Ints = self._free[:, slots].min(axis=0)
        if len(self._device_free):
            np.minimum(least, self._device_free[:, slots].min(axis=0), out=least)
        return least

    def _steps_of(self, slots: Ints, free: Ints, device_free: Ints) -> Ints:
        """The utilisation of ``slots`` in millionths, if ``free`` of each dimension and
        ``device_free`` of all devices together were free."""
        capacity = of_resources(self._capacity[:, slots], self._dimensions)
        held, kinds = np.zeros(slots.size), (capacity > 0).sum(axis=0)
        for has, left in zip(capacity, free, strict=True):
            inverse = np.divide(1.0, has, out=np.zeros(slots.size), where=has > 0)
            held += (has - left) * inverse
        has = self._device_count[slots] * GPU_WHOLE
        held += np.where(has > 0, (has - device_free) / np.maximum(has, 1), 0.0)
        kinds += has > 0
        steps = np.floor(held / np.maximum(kinds, 1) * STEPS + 0.5).astype(np.int64)
        return np.where(kinds > 0, steps, 0)

    def _twin(self) -> Self:
        """A shallow copy without the ``AgentAmounts`` of single agents."""
        twin = copy.copy(self)
        twin._agents = [None] * self._count
        twin._dimensions, twin._model_codes = self._dimensions.copy(), self._model_codes.copy()
        twin._machines, twin._kinds = self._machines.copy(), self._kinds.copy()
        twin._packing = self._packing.copy()
        twin._changes, twin._changes_from = [], self.changes_mark + 1
        twin._written = twin.changes_mark
        return twin

    def _double(self) -> None:
        own = vars(self)
        for name in _BY_SLOT:
            own[name] = doubled(own[name], -1 if name == "_device_model" else 0)


_NOTHING = KindAmounts.of([], [], 0)
