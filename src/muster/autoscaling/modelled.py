"""Machines that are not there yet, modelled as agents: those of slices that are coming, and those
that could be made.

Demand is tried on them with the functions of placement, so that what is routed to them is placed
once they are there, and what is not would not be.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from muster.autoscaling.pool_state import CeilingBudget, ComingSlice, PoolState
from muster.core.ids import AgentId
from muster.core.resources import KERNELS, Resources
from muster.core.specs.pool import PoolSpec
from muster.scheduling.cluster.agent_amounts import AgentAmounts
from muster.scheduling.cluster.columns import Columns, Need, Shares
from muster.scheduling.cluster.snapshot import AgentFacts, Snapshot
from muster.scheduling.workload import KernelPlacement

MAX_MODELLED = 20_000
"""Machines of new slices that are modelled at a time; demand for more waits for the next
routing."""
GPU = "gpu"  # all devices together
MODELLED = "to come"
"""The status of a modelled agent, for people."""
GONE = -1
"""The mark in a line, in place of a machine that was closed."""


class Destination(StrEnum):
    """The kind of room that an entry is to find."""

    FREE = "free"  # on agents that are there; only its turn has to come
    COMING = "coming"  # on slices in flight
    LAUNCH = "launch"  # on slices that have to be made


def modelled(spec: PoolSpec, slice_: str, machines: int, kernels: int) -> list[AgentFacts]:
    """The machines of a slice as agents.

    Args:
        kernels: how many kernels an agent of the group may hold.
    """
    return _alike(spec, slice_, machines, spec.machine.capacity(kernels))


def _alike(spec: PoolSpec, slice_: str, machines: int, capacity: Resources) -> list[AgentFacts]:
    attributes, devices = spec.attributes_in(slice_), spec.machine.devices
    return [
        AgentFacts(
            AgentId(f"{slice_}/{index}"),
            f"{slice_}/{index}",
            capacity,
            devices,
            accepting=True,
            status=MODELLED,
            attributes=attributes,
            returning=True,  # work is tried on agents that are there first
        )
        for index in range(machines)
    ]


def _amounts_of(free: Counter[str]) -> Resources:
    """Amounts by their names as Resources for people."""
    named = dict(free)
    kernels = named.pop(KERNELS, 0)
    cpu, memory, disk, gpu = (named.pop(name, 0) for name in ("cpu", "memory", "disk", GPU))
    return Resources.with_extra(cpu, memory, disk, gpu, named, kernels=kernels)


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """The slices of a pool that are coming or have to be made (source: Iris), once demand was
    routed to them.

    Args:
        remaining: the amounts of their machines that no entry is to have.
    """

    pool: str
    slices: int
    machines: int
    remaining: Resources


@dataclass(frozen=True, slots=True)
class _Slice:
    """A modelled slice; ``pool`` is the number of its pool."""

    pool: int
    name: str
    slots: range


class Machines:
    """A group's agents, and behind them the modelled machines of its pools: those of slices that
    are coming, then those of new slices, as they are opened. Machines of a new slice that was
    closed again take no work until it is opened again.

    Agents are known by their slots. Their amounts are kept here one by one, and brought to a
    snapshot only when somebody asks for one: most demand can do without. Pools are known by their
    numbers.

    Attributes:
        agents: the group's agents alone, as they are.
        pools: of the group.
        line: the slots of modelled machines in the order in which they began to take work; ``GONE``
            for those that were closed.
        pool_of: by place in the line, the number of the machine's pool.
        place_of: by slot, the present place in the line; ``GONE`` for one that has none.
        slice_at: the slots of each slice in the line, by the place of its first machine.
        opened: by pool, how many new slices are open.

    Args:
        agents: of the group, after a pass.
        kernels: how many kernels an agent of the group may hold.
    """

    def __init__(
        self,
        agents: Snapshot,
        pools: Sequence[PoolState],
        coming: Sequence[ComingSlice],
        kernels: int,
        budget: CeilingBudget,
    ) -> None:
        self.agents = agents
        self.pools = pools
        self.budget = budget
        self.opened = [0] * len(pools)
        self.line: list[int] = []
        self.pool_of: list[int] = []
        self.place_of = [GONE] * agents.columns.slots
        self.slice_at: dict[int, range] = {}
        self._snapshot = agents.extended(())
        columns = self._snapshot.columns
        self._capacity = [pool.spec.machine.capacity(kernels) for pool in pools]
        for pool, capacity in zip(pools, self._capacity, strict=True):
            columns.expect(capacity, pool.spec.machine.devices)
        self._empty: list[AgentAmounts | None] = [None] * len(pools)
        self._new: list[list[_Slice]] = [[] for _ in pools]
        self._most = [pool.headroom for pool in pools]
        self._modelled = 0  # machines of new slices, closed ones included
        self._amounts: list[AgentAmounts | None] = [None] * columns.slots
        self._ids: list[AgentId] = [*self._snapshot.ids]
        self._places: list[KernelPlacement | None] = [None] * columns.slots
        self._unjoined: list[_Slice] = []  # that the snapshot does not have yet
        self._moved: set[int] = set()  # slots whose amounts the snapshot does not have yet
        number_of = {pool.spec.name: number for number, pool in enumerate(pools)}
        for each in coming:
            if each.spec is not None:
                shape = each.spec.machine
                columns.expect(shape.capacity(kernels), shape.devices)
        for each in coming:
            if each.machines:
                number = number_of[each.pool]
                spec = each.spec or pools[number].spec
                machines = modelled(spec, each.id, each.machines, kernels)
                slots = self._snapshot.append(machines)
                self._amounts += [None] * len(slots)
                self._line_up(number, slots, [machine.id for machine in machines])
        self._first_new = len(self._amounts)

    def pending(self) -> list[PendingGroup]:
        """The modelled slices of each pool that has some, in the order of the pools."""
        slices, machines = Counter[int](), Counter[int]()
        free: dict[int, Counter[str]] = {}
        dimensions = self.columns.dimensions
        for first in self.slice_at:
            if self.line[first] != GONE:
                slices[self.pool_of[first]] += 1
        for slot, pool in zip(self.line, self.pool_of, strict=True):
            if slot == GONE:
                continue
            machines[pool] += 1
            agent, its = self.agent(slot), free.setdefault(pool, Counter())
            its.update(dict(zip(dimensions, agent.amounts, strict=False)))
            its[GPU] += sum(agent.amounts[agent.dimensions :])
        return [
            PendingGroup(
                self.pools[pool].spec.name, slices[pool], machines[pool], _amounts_of(free[pool])
            )
            for pool in sorted(slices)
        ]

    @property
    def columns(self) -> Columns:
        """For Needs, which are valid for all of them."""
        return self._snapshot.columns

    def snapshot(self) -> Snapshot:
        """All of them as they are now, to try on; ``take_over`` what was placed."""
        columns = self._snapshot.columns
        for pool, of_pool in groupby(self._unjoined, lambda each: each.pool):
            spec, capacity, machines = self.pools[pool].spec, self._capacity[pool], []
            for each in of_pool:
                machines += _alike(spec, each.name, len(each.slots), capacity)
            self._moved.update(self._snapshot.append(machines))
        self._unjoined.clear()
        for slot in sorted(self._moved):
            columns.adopt(slot, self.agent(slot))
        self._moved.clear()
        return self._snapshot

    def take_over(self, slots: Iterable[int]) -> None:
        """Have the amounts that agents have in the snapshot."""
        for slot in slots:
            self._amounts[slot] = self._snapshot.columns.agent(slot)

    def agent(self, slot: int) -> AgentAmounts:
        """The amounts of an agent; only ``move`` may change them."""
        agent = self._amounts[slot]
        if agent is None:
            agent = self._amounts[slot] = self._snapshot.columns.agent(slot)
        return agent

    def move(self, slot: int, need: Need, shares: Shares, copies: int) -> None:
        """Give back an agent's amounts ``copies`` times, or take them where negative; ``shares``
        once."""
        self.agent(slot).move(need.requested, shares, copies)
        self._moved.add(slot)

    def id_of(self, slot: int) -> AgentId:
        """The id of an agent."""
        return self._ids[slot]

    def place(self, slot: int) -> KernelPlacement:
        """The place of a kernel without devices; one object for each slot."""
        place = self._places[slot]
        if place is None:
            place = self._places[slot] = KernelPlacement(self._ids[slot])
        return place

    def slot(self, id_: AgentId) -> int:
        """The slot of an agent that the snapshot has."""
        return self._snapshot.slot(id_)

    def left(self, pool: int) -> int:
        """How many more slices of a pool can be opened."""
        opened = self.opened[pool]
        if opened == self._most[pool]:
            return 0
        spec = self.pools[pool].spec
        more = len(self._new[pool]) - opened
        more += (MAX_MODELLED - self._modelled) // spec.slice_size
        most = min(self._most[pool] - opened, more)
        allowed = self.budget.allows(spec)
        return most if allowed is None else min(most, allowed)

    def open(self, pool: int, slices: int) -> None:
        """Have the machines of so many more new slices take work; at most ``left``."""
        new, spec = self._new[pool], self.pools[pool].spec
        after = self.opened[pool] + slices
        for number in range(self.opened[pool], after):
            if number < len(new):
                self._accept(new[number].slots, accepting=True)
                self._line_up(pool, new[number].slots)
            else:
                new.append(self._model(pool, f"{spec.name}+{number + 1}", spec.slice_size))
                self._modelled += spec.slice_size
        self.opened[pool] = after
        self.budget.add(spec, slices)

    def close(self, pool: int, slices: int) -> None:
        """Have the machines of the last so many new slices, which are empty, take no more work."""
        left = self.opened[pool] - slices
        for each in self._new[pool][left : self.opened[pool]]:
            self._accept(each.slots, accepting=False)
            for slot in each.slots:
                self.line[self.place_of[slot]] = self.place_of[slot] = GONE
        self.opened[pool] = left
        self.budget.add(self.pools[pool].spec, -slices)

    def destination(self, slot: int) -> Destination:
        """The destination of a kernel in ``slot``."""
        if slot >= self._first_new:
            return Destination.LAUNCH
        return Destination.COMING if slot >= self.agents.columns.slots else Destination.FREE

    def _model(self, pool: int, name: str, machines: int) -> _Slice:
        empty = self._empty[pool]
        if empty is None:
            devices = self.pools[pool].spec.machine.devices
            empty = self.columns.empty(self._capacity[pool], devices)
            empty.settle()
            self._empty[pool] = empty
        slots = range(len(self._amounts), len(self._amounts) + machines)
        self._amounts += [empty.copy() for _ in slots]
        self._line_up(pool, slots, [AgentId(f"{name}/{index}") for index in range(machines)])
        made = _Slice(pool, name, slots)
        self._unjoined.append(made)
        return made

    def _line_up(self, pool: int, slots: range, ids: Sequence[AgentId] = ()) -> None:
        """Have machines begin to take work; new ones have ``ids``."""
        self._ids += ids
        self._places += [None] * len(ids)
        first = len(self.line)
        self.place_of[slots.start : slots.stop] = range(first, first + len(slots))
        self.line += slots
        self.slice_at[first] = slots
        self.pool_of += [pool] * len(slots)

    def _accept(self, slots: range, *, accepting: bool) -> None:
        for slot in slots:
            agent = self.agent(slot)
            agent.accepting, agent.settled = accepting, False
        self._moved.update(slots)
