"""Pools and slices at one moment, as decisions about them see them."""

from collections.abc import Iterable
from dataclasses import dataclass

from muster.core.reasons import Reason
from muster.core.reasons.of_demand import GroupAtCeiling, PoolAtMax, PoolProbed
from muster.core.reasons.reason import UNKNOWN
from muster.core.reasons.wording import PRICE
from muster.core.specs.pool import PoolSpec


@dataclass(frozen=True, slots=True, eq=False)
class PoolState:
    """A pool at one moment.

    Args:
        slices: those that count toward ``max_slices``: all whose machines are not known to be gone,
            so that those being deleted count too.
        closed: why no slice can be made now (paused, backing off, closed by quota); None if one
            can.
        at_once: how many slices may be made now at most: one where a pool is probed because its
            last slices failed to boot.
        interruptions: how many of its slices were lost of late, by which equal pools are ranked.
        holds: what its slices count toward the ceilings, where some were made under another spec;
            None where all are as ``spec`` says.
        ports_in_use: fixed ports that programs have which run on its machines from the first.
    """

    spec: PoolSpec
    slices: int = 0
    closed: Reason | None = None
    at_once: int | None = None
    interruptions: int = 0
    holds: "Holding | None" = None
    ports_in_use: frozenset[int] = frozenset()

    @property
    def headroom(self) -> int:
        """The number of slices that may still be made now."""
        if self.closed is not None:
            return 0
        most = max(0, self.spec.max_slices - self.slices)
        return most if self.at_once is None else min(most, self.at_once)

    def exhausted(self, opened: int) -> Reason:
        """The reason for which no further slice can be made, once ``opened`` are to be made."""
        if self.closed is not None:
            return self.closed
        spec, there = self.spec, self.slices + opened
        if there < spec.max_slices:
            return PoolProbed(pool=spec.name, slices=self.at_once or 0)
        return PoolAtMax(pool=spec.name, slices=there, max_slices=spec.max_slices)


@dataclass(frozen=True, slots=True)
class Holding:
    """The amounts that slices count toward the ceilings of their group; ``price`` is that of an
    hour."""

    machines: int
    gpus: int
    price: float


@dataclass(frozen=True, slots=True)
class ComingSlice:
    """A slice in flight: REQUESTING, BOOTING or INITIALIZING. None of its machines takes work yet,
    so all ``machines`` are modelled, those that have joined included: as their own ``spec`` says,
    or that of their pool where it is None."""

    id: str
    pool: str
    machines: int
    spec: PoolSpec | None = None


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most that the pools of a group may have together; None is no limit."""

    machines: int | None = None
    gpus: int | None = None
    price: float | None = None  # an hour


_NONE = Ceilings()


class CeilingBudget:
    """The rest that the ceilings leave, while slices are opened and closed again.

    Args:
        used: all pools of the group, with the slices that they have.
    """

    def __init__(self, group: str, ceilings: Ceilings, used: Iterable[PoolState]) -> None:
        self._group = group
        self._ceilings = ceilings
        self._machines, self._gpus, self._price = 0, 0, 0.0
        for pool in used:
            if pool.holds is None:
                self.add(pool.spec, pool.slices)
            else:
                self._machines += pool.holds.machines
                self._gpus += pool.holds.gpus
                self._price += pool.holds.price

    def add(self, spec: PoolSpec, slices: int) -> None:
        """Count so many more slices, or fewer where negative."""
        machines = slices * spec.slice_size
        self._machines += machines
        self._gpus += machines * spec.machine.gpus
        self._price += machines * spec.price

    def allows(self, spec: PoolSpec) -> int | None:
        """The number of slices of a pool that the ceilings allow still; None without a limit."""
        if self._ceilings == _NONE:
            return None
        most = [
            int((limit - used) / (each * spec.slice_size) + 1e-9)
            for limit, used, each in self._sums(spec)
            if each
        ]
        return max(0, min(most)) if most else None

    def refusal(self, spec: PoolSpec) -> Reason:
        """The reason for which the ceilings allow no further slice of a pool."""
        names = ("machines", "gpus", "price")
        limits = (self._ceilings.machines, self._ceilings.gpus, self._ceilings.price)
        told = [name for name, limit in zip(names, limits, strict=True) if limit is not None]
        for what, (limit, used, each) in zip(told, self._sums(spec), strict=True):
            if each and limit - used + 1e-9 < each * spec.slice_size:
                is_price = what == "price"
                return GroupAtCeiling(
                    pool=spec.name,
                    group=self._group,
                    what=what,
                    used=round(used, 2),
                    more=round(each * spec.slice_size, 2),
                    limit=limit,
                    unit=PRICE if is_price else UNKNOWN,
                    hourly=is_price,
                )
        raise ValueError(f"the ceilings of group {self._group} allow a slice of pool {spec.name}")

    def _sums(self, spec: PoolSpec) -> Iterable[tuple[float, float, float]]:
        """For each ceiling: the limit, what is used, and what one machine of a pool adds."""
        ceilings = self._ceilings
        every = (
            (ceilings.machines, self._machines, 1),
            (ceilings.gpus, self._gpus, spec.machine.gpus),
            (ceilings.price, self._price, spec.price),
        )
        return [(limit, used, each) for limit, used, each in every if limit is not None]
