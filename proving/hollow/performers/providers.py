"""The hollow twin of all providers: machines that are only told of.

A ``Farm`` is a part of the world: it outlives controllers. Each controller's ``HollowProviders``
ask it; effects and outcomes are lost, doubled, late, partial or out of order, by a seed.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from sqlalchemy import Engine

from muster.autoscaling.standing import CreateOutcome
from muster.control.engine.declared import SomePerformer
from muster.control.engine.effects import Performer
from muster.control.engine.inputs import Input
from muster.control.pool.effects import (
    DeleteSlice,
    ListMachines,
    LogRead,
    MakeSlice,
    ReadLog,
    SliceDeleted,
    SliceMade,
)
from muster.control.pool.listed import MachinesListed
from muster.control.pool.performing.orders import Making, read_ended, read_making
from muster.control.pool.records import SliceId
from muster.core.clock import Clock
from muster.core.specs.pool import PoolSpec
from muster.providers.provider import Machine, MachineListing, MachineState
from proving.hollow.performers.late_calls import LateCalls

E = TypeVar("E")
_Call = Callable[[], Input]
"""A call of a provider, which answers with its outcome."""


@dataclass(frozen=True, slots=True)
class FarmFaults:
    """How often each fault happens, as parts of 1.

    Args:
        lost: an effect is never carried out.
        doubled: it is carried out twice.
        mute: it is carried out, and nobody is told.
        refused: by kind, a slice is not made.
        unknown: a slice is not made, made in part, or made, and nobody can tell.
        never_boots: a machine that is made never boots.
        late_devices: a machine boots with its devices missing, until its drivers come.
        partial_lists: a list lacks machines, and says that it may.
        stale_lists: a list is that of up to STALE_S before, and says that it is complete.
        late_s: the longest time until an effect is carried out, and again until its outcome is
            told.
    """

    lost: float = 0.0
    doubled: float = 0.0
    mute: float = 0.0
    refused: float = 0.0
    unknown: float = 0.0
    never_boots: float = 0.0
    late_devices: float = 0.0
    partial_lists: float = 0.0
    stale_lists: float = 0.0
    late_s: float = 0.0


NO_FARM_FAULTS = FarmFaults()
STALE_S = 45.0
"""How old a list may be that a provider takes for complete."""
REFUSALS = (
    CreateOutcome.STOCK_OUT,
    CreateOutcome.QUOTA,
    CreateOutcome.THROTTLED,
    CreateOutcome.CREDENTIALS,
    CreateOutcome.BAD_REQUEST,
)


@dataclass(slots=True, eq=False)
class HollowMachine:
    """A machine of a farm. ``boots_at`` is when it is up, infinite if never; ``lacks_devices`` says
    that its devices come later than that."""

    id: str
    name: str
    slice: SliceId
    pool: str
    spec: PoolSpec
    token: str = field(repr=False)
    boots_at: float
    is_up: bool = False
    lacks_devices: bool = False
    state: MachineState = MachineState.COMING
    leaves_at: float | None = None


class Farm:
    """The machines that providers have made.

    Attributes:
        machines: by their ids.
        made: how often machines of a slice were made that had none.
        late: slices that may have been made after they were deleted or refused, by calls which had
            begun before.
        again: slices that were made by calls which began after they were deleted.
        returned: slices of which machines that had vanished were there again.
        refuses: what pools are refused with, always.
        boot_s: how long machines take until they are up.

    Args:
        booted: is told of each machine that is up, to run an agent on it.
        gone: is told of each machine that was up and is deleted, stopped or has vanished.
        coming: is told of each machine that is made.
    """

    def __init__(
        self,
        clock: Clock,
        booted: Callable[[HollowMachine], None],
        gone: Callable[[HollowMachine], None],
        seed: int = 1,
        faults: FarmFaults = NO_FARM_FAULTS,
        coming: Callable[[HollowMachine], None] = lambda machine: None,
    ) -> None:
        self.clock = clock
        self.faults = faults
        self.random = random.Random(seed)
        self.machines: dict[str, HollowMachine] = {}
        self.made: Counter[SliceId] = Counter()
        self.deleted: Counter[SliceId] = Counter()
        self.late: set[SliceId] = set()
        self.again: set[SliceId] = set()
        self.returned: set[SliceId] = set()
        self._deleted_at: dict[str, float] = {}
        self.refuses: dict[str, CreateOutcome] = {}
        self.boot_s = 30.0
        self._booted = booted
        self._gone = gone
        self._coming = coming
        self._count = 0
        self._listed: dict[str, tuple[float, MachineListing]] = {}

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
            self.start(machine)
        return bool(due)

    def start(self, machine: HollowMachine) -> None:
        """Have a machine be up now."""
        machine.is_up, machine.state = True, MachineState.RUNNING
        self._booted(machine)

    def stop(self, machine: HollowMachine) -> None:
        """Have a machine run no more, though it is there still."""
        was_up, machine.is_up, machine.boots_at = machine.is_up, False, float("inf")
        machine.state = MachineState.STOPPED
        if was_up:
            self._gone(machine)

    def of(self, slice_: str) -> list[HollowMachine]:
        return [each for each in self.machines.values() if each.slice == slice_]

    def make(
        self,
        slice_: SliceId,
        pool: str,
        spec: PoolSpec,
        names: Sequence[str],
        token: str,
        began: float = math.inf,
    ) -> list[HollowMachine]:
        """The machines of a slice: made, or found, by a call that began then, or now."""
        found = {each.name for each in self.of(slice_)}
        self.made[slice_] += not found
        if (deleted_at := self._deleted_at.get(slice_)) is not None:
            (self.late if began < deleted_at else self.again).add(slice_)
        for name in names:
            if name in found:
                continue
            self._count += 1
            never = self.happens(self.faults.never_boots)
            boots_at = float("inf") if never else self.clock.now() + self.boot_s
            machine = HollowMachine(f"m-{self._count}", name, slice_, pool, spec, token, boots_at)
            machine.lacks_devices = self.happens(self.faults.late_devices)
            self.machines[machine.id] = machine
            self._coming(machine)
        return self.of(slice_)

    def delete(self, slice_: str) -> None:
        self._deleted_at[slice_] = self.clock.now()
        for machine in self.of(slice_):
            self.deleted[machine.slice] += 1
            self.vanish(machine)

    def vanish(self, machine: HollowMachine) -> None:
        """Have a machine be gone, whoever wished for that."""
        del self.machines[machine.id]
        if machine.is_up:
            machine.is_up = False
            self._gone(machine)

    def bring_back(self, machine: HollowMachine) -> None:
        """Have a machine that had vanished be there again, with its disk as it was."""
        self.machines[machine.id] = machine
        self.returned.add(machine.slice)
        self.start(machine)

    def list(self, pool: str) -> MachineListing:
        """The machines of a pool, some of them left out at times, or as they were before."""
        now = self.clock.now()
        if self.happens(self.faults.stale_lists) and pool in self._listed:
            listed_at, listing = self._listed[pool]
            if now - listed_at <= STALE_S:
                return listing
        found = [each for each in self.machines.values() if each.pool == pool]
        complete = not self.happens(self.faults.partial_lists)
        if not complete:
            found = [each for each in found if self.happens(0.5)]
        listing = MachineListing(tuple(_told(each) for each in found), complete)
        if complete:
            self._listed[pool] = now, listing
        return listing


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


class HollowProviders(LateCalls):
    """One controller's way to a farm; everything happens when ``tick`` is called.

    Args:
        report: takes outcomes.
    """

    def __init__(self, farm: Farm, engine: Engine, report: Callable[[Input], None]) -> None:
        super().__init__(farm.clock, farm.random)
        self.performers: tuple[SomePerformer, ...] = (
            _Performer(MakeSlice, partial(self._take, self._make)),
            _Performer(DeleteSlice, partial(self._take, self._delete)),
            _Performer(ListMachines, partial(self._take, self._list)),
            _Performer(ReadLog, partial(self._take, self._log)),
        )
        self._farm = farm
        self._engine = engine
        self._report = report
        self._is_forsaken = False

    def be_forsaken(self) -> None:
        """Have the controller be dead: calls that have begun are carried out, and nobody hears of
        them; effects that have not are lost."""
        self._is_forsaken = True

    def _take(self, begin: Callable[[E], _Call | None], effect: E) -> None:
        farm = self._farm
        if not farm.happens(farm.faults.lost):
            is_doubled = farm.happens(farm.faults.doubled)
            if is_doubled and isinstance(effect, MakeSlice):
                farm.late.add(effect.slice)
            for _ in range(1 + is_doubled):
                self.later(partial(self._begin, begin, effect), self._farm.faults.late_s)

    def _begin(self, begin: Callable[[E], _Call | None], effect: E) -> None:
        call = None if self._is_forsaken else begin(effect)
        if call is not None:
            self.later(partial(self._carry_out, call), self._farm.faults.late_s)

    def _carry_out(self, call: _Call) -> None:
        outcome = call()
        if not self._farm.happens(self._farm.faults.mute):
            self.later(partial(self._tell, outcome), self._farm.faults.late_s)

    def _tell(self, outcome: Input) -> None:
        if not self._is_forsaken:
            self._report(outcome)

    def _make(self, effect: MakeSlice) -> _Call | None:
        with self._engine.connect() as connection:
            order = read_making(connection, effect)
        if order is None:
            return None
        return partial(self._made, effect, order, self._farm.clock.now())

    def _made(self, effect: MakeSlice, order: Making, began: float) -> Input:
        farm = self._farm
        refused = farm.refuses.get(order.pool)
        if refused is None and farm.happens(farm.faults.refused):
            refused = farm.random.choice(REFUSALS)
        if refused is not None and not farm.of(effect.slice):
            return SliceMade(effect.slice, effect.generation, refused, told="says the farm")
        names = order.names
        is_unknown = farm.happens(farm.faults.unknown)
        if is_unknown:
            names = names[: farm.random.randint(0, len(names))]
        if names:
            farm.make(effect.slice, order.pool, order.spec, names, order.secret, began)
        if is_unknown:
            unknown = CreateOutcome.UNKNOWN
            return SliceMade(effect.slice, effect.generation, unknown, told="lost")
        machines = tuple(map(_told, farm.of(effect.slice)))
        return SliceMade(effect.slice, effect.generation, CreateOutcome.CREATED, machines)

    def _delete(self, effect: DeleteSlice) -> _Call:
        return partial(self._deleted, effect)

    def _deleted(self, effect: DeleteSlice) -> Input:
        if self._farm.happens(self._farm.faults.unknown):
            return SliceDeleted(effect.slice, effect.generation, gone=False, told="lost")
        if not effect.given_up:
            self._farm.delete(effect.slice)
        return SliceDeleted(effect.slice, effect.generation, gone=True)

    def _log(self, effect: ReadLog) -> _Call:
        words = "boots for ever" if self._farm.of(effect.slice) else ""
        return partial(LogRead, effect.slice, effect.machine, words)

    def _list(self, effect: ListMachines) -> _Call:
        return partial(self._listed, effect)

    def _listed(self, effect: ListMachines) -> Input:
        if self._farm.happens(self._farm.faults.unknown):
            return MachinesListed(effect.pool, effect.generation, None, "lost")
        listing = self._farm.list(effect.pool)
        with self._engine.connect() as connection:
            ended = read_ended(connection, {SliceId(each.slice) for each in listing.machines})
        return MachinesListed(effect.pool, effect.generation, listing, "", ended)
