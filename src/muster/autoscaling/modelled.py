"""Machines that are not there yet, modelled as agents: those of slices that are coming, and those
that could be made.

Demand is tried on them with the functions of placement, so that what is routed to them is placed
once they are there, and what is not would not be.
"""

from collections.abc import Sequence
from enum import StrEnum

from muster.autoscaling.pool_state import Budget, ComingSlice, PoolState
from muster.core.ids import AgentId
from muster.core.resources import Resources
from muster.core.specs.pool import PoolSpec
from muster.scheduling.cluster.snapshot import AgentFacts, Snapshot
from muster.scheduling.workload import KernelPlacement

MAX_MODELLED = 20_000
"""Machines of new slices that are modelled at a time; demand for more waits for the next
routing."""
MODELLED = "to come"
"""The status of a modelled agent, for people."""


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


class Machines:
    """A group's agents, and behind them the modelled machines of its pools: those of slices that
    are coming, then those of new slices, as they are opened. Machines of a new slice that was
    closed again take no work until it is opened again.

    Attributes:
        agents: the group's agents alone, as they are.
        snapshot: all of them, to try on.
        log: pool and slots of the slices that take work, in the order in which they began to.
        opened: how many new slices of each pool are open.

    Args:
        agents: of the group, after a pass.
        pools: of the group.
        kernels: how many kernels an agent of the group may hold.
    """

    def __init__(
        self,
        agents: Snapshot,
        pools: Sequence[PoolState],
        coming: Sequence[ComingSlice],
        kernels: int,
        budget: Budget,
    ) -> None:
        self.agents = agents
        self.budget = budget
        self.snapshot = agents.extended(())
        self.opened = dict.fromkeys(pools, 0)
        self.log: list[tuple[PoolState, range]] = []
        self._capacity = {pool: pool.spec.machine.capacity(kernels) for pool in pools}
        self._new: dict[PoolState, list[range]] = {pool: [] for pool in pools}  # slots by slice
        self._most = {pool: pool.headroom for pool in pools}
        self._modelled = 0  # machines of new slices, closed ones included
        by_name = {}
        for pool in pools:
            by_name[pool.spec.name] = pool
            self.snapshot.columns.expect(self._capacity[pool], pool.spec.machine.devices)
        for each in coming:
            if each.spec is not None:
                shape = each.spec.machine
                self.snapshot.columns.expect(shape.capacity(kernels), shape.devices)
        for each in coming:
            pool = by_name[each.pool]
            if each.spec is not None:
                machines = modelled(each.spec, each.id, each.machines, kernels)
            else:
                machines = _alike(pool.spec, each.id, each.machines, self._capacity[pool])
            if machines:
                self.log.append((pool, self.snapshot.append(machines)))
        self._first_new = self.snapshot.columns.slots

    def left(self, pool: PoolState) -> int:
        """How many more slices of a pool can be opened."""
        opened, size = self.opened[pool], pool.spec.slice_size
        if opened == self._most[pool]:
            return 0
        more = len(self._new[pool]) - opened + (MAX_MODELLED - self._modelled) // size
        most = min(self._most[pool] - opened, more)
        allowed = self.budget.allows(pool.spec)
        return most if allowed is None else min(most, allowed)

    def open(self, pool: PoolState, slices: int) -> None:
        """Have the machines of so many more new slices take work; at most ``left``."""
        new, opened = self._new[pool], self.opened[pool]
        after = opened + slices
        for slots in new[opened:after]:
            self.snapshot.columns.accept(slots, accepting=True)
        if after > len(new):
            size, machines = pool.spec.slice_size, list[AgentFacts]()
            for number in range(len(new), after):
                name = f"{pool.spec.name}+{number + 1}"
                machines += _alike(pool.spec, name, size, self._capacity[pool])
            slots = self.snapshot.append(machines)
            new += [slots[at : at + size] for at in range(0, len(slots), size)]
            self._modelled += len(slots)
        self.log += [(pool, slots) for slots in new[opened:after]]
        self.opened[pool] = after
        self.budget.add(pool.spec, slices)

    def close(self, pool: PoolState, slices: int) -> None:
        """Have the machines of the last so many new slices, which are empty, take no more work."""
        left, at = self.opened[pool] - slices, len(self.log)
        for slots in reversed(self._new[pool][left : self.opened[pool]]):
            self.snapshot.columns.accept(slots, accepting=False)
            at -= 1
            while self.log[at][1] is not slots:
                at -= 1
            del self.log[at]
        self.opened[pool] = left
        self.budget.add(pool.spec, -slices)

    def destination(self, kernels: Sequence[KernelPlacement]) -> Destination:
        """The destination of kernels on these machines: that of the last machine to come."""
        slot = self.snapshot.slot
        last = max([slot(kernel.agent_id) for kernel in kernels])
        if last >= self._first_new:
            return Destination.LAUNCH
        return Destination.COMING if last >= self.agents.columns.slots else Destination.FREE
