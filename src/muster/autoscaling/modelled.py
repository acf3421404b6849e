"""Machines that are not there yet, modelled as agents: those of slices that are coming, and those
that could be made.

Demand is tried on them with the functions of placement, so that what is routed to them is placed
once they are there, and what is not would not be.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from muster.autoscaling.pool_state import Budget, ComingSlice, PoolState
from muster.core.ids import AgentId
from muster.core.specs.pool import PoolSpec
from muster.scheduling.cluster.snapshot import AgentFacts, Snapshot
from muster.scheduling.workload import KernelPlacement

MODELLED = "to come"
"""The status of a modelled agent, for people."""


class Destination(StrEnum):
    """The kind of room that an entry is to find."""

    FREE = "free"  # on agents that are there; only its turn has to come
    COMING = "coming"  # on slices in flight
    LAUNCH = "launch"  # on slices that have to be made


def modelled(spec: PoolSpec, slice_: str, machines: int, kernels: int) -> list[AgentFacts]:
    """The machines of a slice as agents that take no work yet.

    Args:
        kernels: how many kernels an agent of the group may hold.
    """
    shape, attributes = spec.machine, spec.attributes_in(slice_)
    capacity = shape.capacity(kernels)
    return [
        AgentFacts(
            AgentId(f"{slice_}/{index}"),
            f"{slice_}/{index}",
            capacity,
            shape.devices,
            accepting=False,
            status=MODELLED,
            attributes=attributes,
            returning=True,  # work is tried on agents that are there first
        )
        for index in range(machines)
    ]


class Machines:
    """A group's agents, and behind them the modelled machines of its pools.

    Machines of slices that are coming take work; those of slices that could be made do so once
    ``open`` was called for them.

    Attributes:
        snapshot: all of them, to try on.
        opened: how many new slices of each pool are open.
        opens: how often any were opened.

    Args:
        snapshot: of the group, after a pass.
        pools: of the group, each with how many of its slices could be made.
        kernels: how many kernels an agent of the group may hold.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pools: Mapping[PoolState, int],
        coming: Sequence[ComingSlice],
        kernels: int,
        budget: Budget,
    ) -> None:
        self.budget = budget
        self.opens = 0
        self._first: dict[PoolState, int] = {}
        self._most = dict(pools)
        self.opened = dict.fromkeys(pools, 0)
        slot = snapshot.columns.slots
        specs = {pool.spec.name: pool.spec for pool in pools}
        kinds = [
            modelled(specs[slice_.pool], slice_.id, slice_.machines, kernels) for slice_ in coming
        ]
        self._coming = range(slot, slot + sum(map(len, kinds)))
        slot = self._coming.stop
        for pool, most in pools.items():
            self._first[pool] = slot
            alike: list[AgentFacts] = []
            for number in range(most):
                name = f"{pool.spec.name}+{number + 1}"
                alike += modelled(pool.spec, name, pool.spec.slice_size, kernels)
            if alike:
                kinds.append(alike)
            slot += len(alike)
        self.snapshot = snapshot.extended(kind for kind in kinds if kind)
        self.snapshot.columns.accept(self._coming, accepting=True)

    def left(self, pool: PoolState) -> int:
        """How many more slices of a pool can be opened."""
        most = self._most[pool] - self.opened[pool]
        allowed = self.budget.allows(pool.spec)
        return most if allowed is None else min(most, allowed)

    def open(self, pool: PoolState, slices: int) -> None:
        """Have the machines of so many more new slices take work; of fewer where negative, whose
        machines must be empty."""
        size, before = pool.spec.slice_size, self.opened[pool]
        after = self.opened[pool] = before + slices
        first, last = sorted((before, after))
        slots = range(self._first[pool] + first * size, self._first[pool] + last * size)
        self.snapshot.columns.accept(slots, accepting=slices > 0)
        self.budget.add(pool.spec, slices)
        self.opens += slices > 0

    def destination(self, kernels: Sequence[KernelPlacement]) -> Destination:
        """The destination of kernels on these machines: that of the last machine to come."""
        last = max(self.snapshot.slot(kernel.agent_id) for kernel in kernels)
        if last >= self._coming.stop:
            return Destination.LAUNCH
        return Destination.COMING if last >= self._coming.start else Destination.FREE
