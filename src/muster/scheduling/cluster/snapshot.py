"""The agents of a scaling group as placement sees them, kept current by deltas (design: The
snapshot)."""

import copy
import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Any, TypeVar

from muster.core.errors import MusterError, NotFound
from muster.core.ids import AgentId
from muster.core.resources import Device, Resources
from muster.scheduling.cluster.attributes import AttributeColumns
from muster.scheduling.cluster.columns import Columns, Ints, Shares
from muster.scheduling.cluster.order import Ranking, SlotOrder, order_of
from muster.scheduling.workload import KernelPlacement, SetKey

Answer = TypeVar("Answer")

_MEMORY = 2000  # answers remembered at most; each may be as large as a column
_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


class OverCapacity(MusterError):
    """The amounts to take are not free; nothing was taken."""


class NotHeld(MusterError):
    """The amounts to give back exceed the held ones; nothing was given back."""


OUT_OF_DISK = "out of disk (DISK_FULL)"
"""The status, for people, of an agent without room on its disk."""
WITHHELD = "kept from work"
"""The beginning of the status of an agent whose slice is not ready, or is being deleted."""


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """The facts of an agent, apart from its amounts.

    Args:
        status: words that follow "the agent is"; an operator's may be among them.
        accepting: whether the agent takes new work; cordoned, draining and suspect agents do not.
        attributes: by which constraints choose agents.
        returning: whether the agent takes no new work only because its connection broke a moment
            ago: waiting sessions may count on its return.
    """

    id: AgentId
    name: str
    capacity: Resources
    devices: tuple[Device, ...]
    accepting: bool
    status: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    returning: bool = False


class Snapshot:
    """The agents of one group: their facts here, their amounts in ``columns``.

    An agent keeps its slot while it is known; the slot of a former agent is used again.

    ``version`` goes up with each change that may give a waiting session room. It does not go up
    when room is taken. While ``version`` is unchanged, sessions that lacked room still lack it.

    ``facts_version`` goes up when an agent comes, leaves, or has another name or other attributes,
    ``capacity_version`` with any change of an agent.

    ``is_trial`` says that no change of the snapshot will last, because the snapshot is a copy for
    trying placements, or is in a trial statement. Selectors do not learn from it.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.version = 0
        self.facts_version = 0
        self.capacity_version = 0
        self.is_trial = False
        # For round robin: the slot after the slot in which a statement last took room.
        self.next_slot = 0
        self.columns = Columns()
        self._facts: list[AgentFacts | None] = []  # by slot; None where the agent has left
        self._ids: list[AgentId] = []
        self._places: list[KernelPlacement | None] = []  # by slot, for kernels without devices
        self._slots: dict[AgentId, int] = {}
        self._vacant: list[int] = []  # a heap, so that the lowest slot is used again first
        self._names: dict[str, set[int]] = {}  # slots by name; names need not be unique
        self._attributes = AttributeColumns()
        self._sets: dict[SetKey, dict[int, int]] = {}  # kernels by slot
        self._memory: dict[Hashable, Any] = {}  # answers that are valid for ``_memory_version``
        self._memory_version = 0
        self._orders: dict[Ranking, SlotOrder] = {}
        self._emptied: dict[bool, tuple[Hashable, Snapshot]] = {}  # the state that each was made of

    def __len__(self) -> int:
        """The number of agents, accepting or not."""
        return len(self._slots)

    def facts(self, slot: int) -> AgentFacts:
        """The agent in ``slot``.

        Raises:
            NotFound: the slot is vacant.
        """
        facts = self._facts[slot]
        if facts is None:
            raise NotFound(f"no agent in slot {slot} of group {self.group}")
        return facts

    @property
    def ids(self) -> Sequence[AgentId]:
        """The agents' ids by slot; empty where a slot is vacant."""
        return self._ids

    def place(self, slot: int) -> KernelPlacement:
        """The place of a kernel without devices; one object for each slot."""
        place = self._places[slot]
        if place is None:
            place = self._places[slot] = KernelPlacement(self.facts(slot).id)
        return place

    def slot(self, agent_id: AgentId) -> int:
        """The agent's slot.

        Raises:
            NotFound: the group has no such agent.
        """
        slot = self._slots.get(agent_id)
        if slot is None:
            raise NotFound(f"no agent {agent_id} in group {self.group}")
        return slot

    def slots_among(self, agent_ids: Iterable[AgentId]) -> list[int]:
        """The slots of the ``agent_ids`` that the group has."""
        return [self._slots[agent_id] for agent_id in agent_ids if agent_id in self._slots]

    def slots_named(self, names: Iterable[str]) -> list[int]:
        """The slots of the group's agents that have one of ``names``."""
        return sorted(slot for name in names for slot in self._names.get(name, ()))

    @property
    def names(self) -> Iterable[str]:
        """The agents' names."""
        return self._names

    @property
    def attribute_names(self) -> set[str]:
        """The attributes that some agent has."""
        return {name for facts in self._facts if facts is not None for name in facts.attributes}

    def attribute(self, name: str) -> tuple[Ints, tuple[str, ...]]:
        """By slot the index of the agent's value of an attribute, -1 for none, and the values."""
        return self._attributes.column(name, self.columns.slots)

    def order(self, ranking: Ranking) -> SlotOrder:
        """All slots in an order that is kept current."""
        order = self._orders.get(ranking)
        if order is None:
            order = self._orders[ranking] = order_of(self.columns, ranking)
        return order

    def in_set(self, key: SetKey) -> Mapping[int, int]:
        """How many kernels of a set each slot holds; slots without any are absent."""
        return self._sets.get(key, {})

    def remembered(self, key: Hashable, find: Callable[[], Answer]) -> Answer:
        """The answer of ``find``, which is called again only after ``facts_version`` has moved."""
        if self._memory_version != self.facts_version or len(self._memory) >= _MEMORY:
            self._memory = {}
            self._memory_version = self.facts_version
        if key not in self._memory:
            self._memory[key] = find()
        answer: Answer = self._memory[key]
        return answer

    def __getstate__(self) -> dict[str, Any]:
        """The state for copies, each of which makes orders and copies of its own."""
        return vars(self) | {"_orders": {}, "_emptied": {}}

    def copy(self) -> "Snapshot":
        """A copy with all holdings, to try on; its agents must not be changed."""
        return self._trial(self.columns.copy())

    def with_returning(self) -> "Snapshot":
        """A copy in which returning agents are back, to try on; its agents must not be changed. The
        snapshot itself if no agent is returning."""
        if not self.columns.returning.any():
            return self
        return self._trial(self.columns.with_returning())

    def uncounted(self) -> "Snapshot":
        """A copy in which no agent holds too many kernels, to try on a class that is
        ``uncounted``."""
        return self._trial(self.columns.uncounted())

    def _trial(self, columns: Columns) -> "Snapshot":
        twin = copy.copy(self)
        twin.is_trial = True
        twin.columns = columns
        twin._sets = {key: dict(held) for key, held in self._sets.items()}
        return twin

    def emptied(self, *, all_accept: bool = False) -> "Snapshot":
        """A copy in which nothing is held and returning agents are back, to try on; its agents must
        not be changed, and what is tried is undone: until an agent changes it is the same copy, so
        that its orders are not made anew.

        Args:
            all_accept: whether every agent counts as accepting, silent ones included.
        """
        state = self.capacity_version, self.columns.rows, self.next_slot
        known, twin = self._emptied.get(all_accept, (None, self))
        if known != state:
            twin = copy.copy(self)
            twin.is_trial = True
            twin.columns = self.columns.emptied(all_accept=all_accept)
            twin._sets = {}
            self._emptied[all_accept] = state, twin
        return twin

    def extended(self, kinds: Iterable[Sequence[AgentFacts]]) -> "Snapshot":
        """A copy with more agents, to try on; only ``append``, ``columns.accept`` and
        ``columns.adopt`` may change its agents.

        Args:
            kinds: see ``append``.

        Raises:
            LimitExceeded: more devices or named resources than a group can have.
        """
        twin = self._trial(self.columns.detached())
        twin._facts, twin._ids, twin._places = [*self._facts], [*self._ids], [*self._places]
        twin._slots, twin._names = self._slots.copy(), self._names.copy()
        twin._attributes, twin._memory = self._attributes.copy(), {}
        for alike in kinds:
            twin.append(alike)
        return twin

    def append(self, alike: Sequence[AgentFacts]) -> range:
        """Add agents behind all others; the answer is their slots.

        Args:
            alike: agents that differ in id, name and attributes alone, at least one; their ids are
                new.

        Raises:
            LimitExceeded: more devices or named resources than a group can have.
        """
        columns, first, one = self.columns, self.columns.slots, alike[0]
        columns.make_rows(one.capacity, [device.index for device in one.devices])
        slots = range(columns.append_slots(len(alike)), first + len(alike))
        columns.set_agents(slots, one.capacity, one.devices, one.accepting, one.returning)
        self._facts += alike
        self._ids += [each.id for each in alike]
        self._places += [None] * len(alike)
        self._slots.update(zip(self._ids[first:], slots, strict=True))
        for facts, slot in zip(alike, slots, strict=True):
            self._names[facts.name] = {*self._names.get(facts.name, ()), slot}
        for attributes, some in groupby(alike, lambda facts: facts.attributes):
            its = range(first, first + len([*some]))
            self._attributes.put(its, attributes)
            first = its.stop
        self.facts_version += 1
        self.capacity_version += 1
        return slots

    # Deltas

    def upsert_agent(
        self,
        agent_id: AgentId,
        name: str,
        capacity: Resources,
        devices: tuple[Device, ...],
        accepting: bool,
        status: str,
        attributes: Mapping[str, str] = _NO_ATTRIBUTES,
        *,
        returning: bool = False,
    ) -> None:
        """Add or change an agent; room that is held on it stays held.

        Args:
            capacity: ``gpu_milli`` in it is ignored in favour of ``devices``.
            accepting: whether it takes new work.
            status: told to people if the agent takes no new work.
            attributes: by which constraints choose agents.
            returning: whether the agent took new work a moment ago (see ``AgentFacts``).

        Raises:
            MusterError: two devices share an index, or there are more devices or named resources
                than a group can have; nothing was changed.
        """
        attributes = dict(attributes)
        facts = AgentFacts(
            agent_id, name, capacity, devices, accepting, status, attributes, returning
        )
        slot = self._slots.get(agent_id)
        before = None if slot is None else self._facts[slot]
        if before == facts:
            return
        indexes = [device.index for device in devices]
        if len(set(indexes)) < len(indexes):
            raise MusterError(f"two devices of agent {name} have the same index: {indexes}")
        self.columns.make_rows(capacity, indexes)
        if slot is None:
            slot = self._new_slot(agent_id)
        self._facts[slot] = facts
        self._places[slot] = None
        self.columns.set_agents(range(slot, slot + 1), capacity, devices, accepting, returning)
        if before is None or (before.name, before.attributes) != (name, attributes):
            if before is not None:
                self._forget_name(slot, before.name)
            self._names.setdefault(name, set()).add(slot)
            self._attributes.put(range(slot, slot + 1), attributes)
            self.facts_version += 1
        self.capacity_version += 1
        self.version += 1

    def remove_agent(self, agent_id: AgentId) -> None:
        """Forget an agent with all room held on it; an unknown agent is ignored."""
        slot = self._slots.pop(agent_id, None)
        if slot is None:
            return
        facts = self._facts[slot]
        assert facts is not None, "a slot in use has no agent"
        self._facts[slot] = None
        self._ids[slot] = AgentId("")
        self._forget_name(slot, facts.name)
        self._attributes.put(range(slot, slot + 1), {})
        for key, held in list(self._sets.items()):
            held.pop(slot, None)
            if not held:
                del self._sets[key]
        self.facts_version += 1
        self.capacity_version += 1
        heapq.heappush(self._vacant, slot)
        self.columns.clear(slot)
        self.version += 1

    def take(
        self, agent_id: AgentId, resources: Resources, shares: Shares = (), *, force: bool = False
    ) -> None:
        """Hold ``resources`` of an agent, and ``shares`` of its devices.

        Args:
            force: whether to hold the amounts even if they do not fit, because an agent reported
                them. While an amount of an agent is below zero, the agent gets no new work.

        Raises:
            NotFound: the group has no such agent.
            OverCapacity: the amounts are not free; nothing was taken.
            MusterError: a device index or the number of named resources is out of bounds.
        """
        slot = self.slot(agent_id)
        if force:
            self.columns.make_rows(resources, [share.index for share in shares])
            self.columns.move(slot, resources, shares, -1)
        else:
            self.take_at(slot, resources, shares)

    def give_back(self, agent_id: AgentId, resources: Resources, shares: Shares = ()) -> None:
        """Free amounts that ``take`` held; nothing happens for a former agent, on which nothing is
        held.

        Raises:
            NotHeld: less is held on it; nothing was given back.
        """
        slot = self._slots.get(agent_id)
        if slot is None:
            return
        if not self.columns.holds_at(slot, resources, shares):
            raise NotHeld(f"{_text_of(resources, shares)} is more than agent {agent_id} has in use")
        self.columns.move(slot, resources, shares, +1)
        self.version += 1

    def set_joined(self, agent_id: AgentId, key: SetKey, kernels: int) -> None:
        """Count ``kernels`` more kernels of a set on an agent, or fewer if the number is negative;
        nothing happens for a former agent."""
        slot = self._slots.get(agent_id)
        if slot is not None:
            self.set_joined_at(slot, key, kernels)
            if kernels < 0:
                self.version += 1

    # For statements, which do and undo

    def set_joined_at(self, slot: int, key: SetKey, kernels: int) -> None:
        """``set_joined`` by slot."""
        held = self._sets.setdefault(key, {})
        now = held.pop(slot, 0) + kernels
        if now > 0:
            held[slot] = now
        elif not held:
            del self._sets[key]

    def take_at(self, slot: int, request: Resources, shares: Shares = (), copies: int = 1) -> None:
        """Hold ``request`` ``copies`` times and ``shares`` once.

        Raises:
            OverCapacity: the amounts are not free; nothing was taken.
        """
        if not self.columns.fits_at(slot, request, shares, copies):
            agent, amounts = self.facts(slot).name, _text_of(request, shares)
            raise OverCapacity(f"agent {agent} has no room for {copies} × {amounts}")
        self.columns.move(slot, request, shares, -copies)

    def untake_at(
        self, slot: int, request: Resources, shares: Shares = (), copies: int = 1
    ) -> None:
        """Undo ``take_at`` without a trace: ``version`` does not move."""
        self.columns.move(slot, request, shares, copies)

    def _forget_name(self, slot: int, name: str) -> None:
        slots = self._names[name]
        slots.discard(slot)
        if not slots:
            del self._names[name]

    def _new_slot(self, agent_id: AgentId) -> int:
        if self._vacant:
            slot = heapq.heappop(self._vacant)
        else:
            slot = self.columns.append_slots(1)
            self._facts.append(None)
            self._places.append(None)
            self._ids.append(agent_id)
        self._slots[agent_id] = slot
        self._ids[slot] = agent_id
        return slot


def _text_of(resources: Resources, shares: Shares) -> str:
    devices = ", ".join(f"{share.milli}/1000 of device {share.index}" for share in shares)
    return f"({resources.describe()}{'; ' + devices if devices else ''})"
