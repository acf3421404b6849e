"""The hollow twin of all providers, for simulations and tests: machines that are only told of.

A ``Farm`` is a part of the world: it outlives controllers. Each controller's ``HollowProviders``
ask it; effects and outcomes are lost, doubled, late, partial or out of order, by a seed.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy import Engine, Row, select

from muster.autoscaling.standing import CreateOutcome
from muster.control.engine.declared import SomePerformer
from muster.control.engine.effects import Performer
from muster.control.engine.inputs import Input
from muster.control.pool.effects import (
    DeleteSlice,
    ListMachines,
    MakeSlice,
    SliceDeleted,
    SliceMade,
)
from muster.control.pool.listed import MachinesListed
from muster.control.pool.records import SliceId, load_machines, load_pool_spec, slices
from muster.core.clock import Clock
from muster.core.specs.pool import PoolSpec
from muster.providers.provider import Listing, Machine, MachineState

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class FarmFaults:
    """How often each fault happens, as parts of 1.

    Args:
        lost: an effect is never carried out.
        doubled: it is carried out twice.
        mute: it is carried out, and nobody is told.
        refused: by kind, a slice is not made.
        unknown: a slice is not made, or made, and nobody can tell.
        never_boots: a machine that is made never boots.
        partial_lists: a list lacks machines, and says that it may.
        late_s: the longest time until an effect is carried out, and again until its outcome is
            told.
    """

    lost: float = 0.0
    doubled: float = 0.0
    mute: float = 0.0
    refused: float = 0.0
    unknown: float = 0.0
    never_boots: float = 0.0
    partial_lists: float = 0.0
    late_s: float = 0.0


NO_FARM_FAULTS = FarmFaults()
REFUSALS = (
    CreateOutcome.STOCK_OUT,
    CreateOutcome.QUOTA,
    CreateOutcome.THROTTLED,
    CreateOutcome.CREDENTIALS,
    CreateOutcome.BAD_REQUEST,
)


@dataclass(slots=True, eq=False)
class HollowMachine:
    """A machine of a farm. ``boots_at`` is when it is up, infinite if never."""

    id: str
    name: str
    slice: SliceId
    pool: str
    spec: PoolSpec
    token: str = field(repr=False)
    boots_at: float
    is_up: bool = False
    state: MachineState = MachineState.COMING
    leaves_at: float | None = None


class Farm:
    """The machines that providers have made.

    Attributes:
        machines: by their ids.
        made: how often each slice was made.
        refuses: what pools are refused with, always.
        boot_s: how long machines take until they are up.

    Args:
        booted: is told of each machine that is up, to run an agent on it.
        gone: is told of each machine that is deleted or has vanished.
    """

    def __init__(
        self,
        clock: Clock,
        booted: Callable[[HollowMachine], None],
        gone: Callable[[HollowMachine], None],
        seed: int = 1,
        faults: FarmFaults = NO_FARM_FAULTS,
    ) -> None:
        self.clock = clock
        self.faults = faults
        self.random = random.Random(seed)
        self.machines: dict[str, HollowMachine] = {}
        self.made: Counter[SliceId] = Counter()
        self.deleted: Counter[SliceId] = Counter()
        self.refuses: dict[str, CreateOutcome] = {}
        self.boot_s = 30.0
        self._booted = booted
        self._gone = gone
        self._count = 0

    def happens(self, part: float) -> bool:
        return self.random.random() < part

    @property
    def next_at(self) -> float | None:
        """When a machine is up next."""
        coming = (each.boots_at for each in self.machines.values() if not each.is_up)
        at = min(coming, default=float("inf"))
        return None if at == float("inf") else at

    def tick(self) -> bool:
        """Have machines be up whose time has come; whether there were any."""
        now = self.clock.now()
        due = [each for each in self.machines.values() if not each.is_up and each.boots_at <= now]
        for machine in due:
            machine.is_up, machine.state = True, MachineState.RUNNING
            self._booted(machine)
        return bool(due)

    def of(self, slice_: str) -> list[HollowMachine]:
        return [each for each in self.machines.values() if each.slice == slice_]

    def make(
        self, slice_: SliceId, pool: str, spec: PoolSpec, names: Sequence[str], token: str
    ) -> list[HollowMachine]:
        """The machines of a slice: made, or found."""
        found = self.of(slice_)
        if found:
            return found
        self.made[slice_] += 1
        for name in names:
            self._count += 1
            never = self.happens(self.faults.never_boots)
            boots_at = float("inf") if never else self.clock.now() + self.boot_s
            machine = HollowMachine(f"m-{self._count}", name, slice_, pool, spec, token, boots_at)
            self.machines[machine.id] = machine
        return self.of(slice_)

    def delete(self, slice_: str) -> None:
        for machine in self.of(slice_):
            self.deleted[machine.slice] += 1
            self.vanish(machine)

    def vanish(self, machine: HollowMachine) -> None:
        """Have a machine be gone, whoever wished for that."""
        del self.machines[machine.id]
        if machine.is_up:
            self._gone(machine)

    def list(self, pool: str) -> Listing:
        """The machines of a pool, some of them left out at times."""
        found = [each for each in self.machines.values() if each.pool == pool]
        complete = not self.happens(self.faults.partial_lists)
        if not complete:
            found = [each for each in found if self.happens(0.5)]
        return Listing(tuple(_told(each) for each in found), complete)


def _told(machine: HollowMachine) -> Machine:
    return Machine(
        machine.id, machine.slice, machine.name, machine.state, leaves_at=machine.leaves_at
    )


class _Performer(Performer[E], Generic[E]):
    """A performer that hands what it gets to a function."""

    def __init__(self, kind: type[E], take: Callable[[E], None]) -> None:
        self.kind = kind  # type: ignore[misc]
        self._take = take

    def perform(self, effects: Sequence[E]) -> None:
        for effect in effects:
            self._take(effect)


class HollowProviders:
    """One controller's way to a farm; everything happens when ``tick`` is called.

    Args:
        report: takes outcomes.
    """

    def __init__(self, farm: Farm, engine: Engine, report: Callable[[Input], None]) -> None:
        self.performers: tuple[SomePerformer, ...] = (
            _Performer(MakeSlice, partial(self._take, self._make)),
            _Performer(DeleteSlice, partial(self._take, self._delete)),
            _Performer(ListMachines, partial(self._take, self._list)),
        )
        self._farm = farm
        self._engine = engine
        self._report = report
        self._due: list[tuple[float, Callable[[], None]]] = []

    @property
    def next_at(self) -> float | None:
        """When something is due next; None if nothing is."""
        return min((at for at, _ in self._due), default=None)

    def tick(self) -> bool:
        """Carry out everything that is due, in any order; whether there was anything."""
        now = self._farm.clock.now()
        due = [each for each in self._due if each[0] <= now]
        self._due = [each for each in self._due if each[0] > now]
        self._farm.random.shuffle(due)
        for _, happen in due:
            happen()
        return bool(due)

    def _take(self, carry_out: Callable[[E], Iterable[Input]], effect: E) -> None:
        farm = self._farm
        if not farm.happens(farm.faults.lost):
            for _ in range(1 + farm.happens(farm.faults.doubled)):
                self._later(partial(self._carry_out, carry_out, effect))

    def _carry_out(self, carry_out: Callable[[E], Iterable[Input]], effect: E) -> None:
        for outcome in carry_out(effect):
            if not self._farm.happens(self._farm.faults.mute):
                self._later(partial(self._report, outcome))

    def _later(self, happen: Callable[[], None]) -> None:
        late_s = self._farm.random.uniform(0.0, self._farm.faults.late_s)
        self._due.append((self._farm.clock.now() + late_s, happen))

    def _make(self, effect: MakeSlice) -> Iterable[Input]:
        farm = self._farm
        with self._engine.connect() as connection:
            row = connection.execute(select(slices).where(slices.c.id == effect.slice)).first()
        if row is None or not row.secret:
            return
        refused = farm.refuses.get(row.pool)
        if refused is None and farm.happens(farm.faults.refused):
            refused = farm.random.choice(REFUSALS)
        if refused is not None and not farm.of(effect.slice):
            yield SliceMade(effect.slice, effect.generation, refused, told="says the farm")
            return
        if farm.happens(farm.faults.unknown):
            if farm.happens(0.5):
                self._made(effect, row)
            yield SliceMade(effect.slice, effect.generation, CreateOutcome.UNKNOWN, told="lost")
            return
        machines = tuple(map(_told, self._made(effect, row)))
        yield SliceMade(effect.slice, effect.generation, CreateOutcome.CREATED, machines)

    def _made(self, effect: MakeSlice, row: Row[Any]) -> list[HollowMachine]:
        names = [each.name for each in load_machines(row.machines)]
        spec = load_pool_spec(row.spec)
        return self._farm.make(effect.slice, row.pool, spec, names, row.secret)

    def _delete(self, effect: DeleteSlice) -> Iterable[Input]:
        if self._farm.happens(self._farm.faults.unknown):
            yield SliceDeleted(effect.slice, effect.generation, gone=False, told="lost")
            return
        self._farm.delete(effect.slice)
        yield SliceDeleted(effect.slice, effect.generation, gone=True)

    def _list(self, effect: ListMachines) -> Iterable[Input]:
        if self._farm.happens(self._farm.faults.unknown):
            yield MachinesListed(effect.pool, effect.generation, None, "lost")
            return
        listing = self._farm.list(effect.pool)
        yield MachinesListed(effect.pool, effect.generation, listing)
