"""A toy entity: a door that opens after some tries, and the hinges that follow it."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from proving.hollow.virtual_clock import VirtualClock
from sqlalchemy import Connection, MetaData, select
from tests.databases import open_unsynced, url_at

from muster.control.engine.coordinator import Coordinator
from muster.control.engine.defects import Defects, Undone
from muster.control.engine.handler import (
    NO_CHANGE,
    Handler,
    HandlerResult,
    LifecycleHandler,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.races import Races
from muster.control.engine.retries import RetryPolicy
from muster.control.engine.steps import PassOrder
from muster.control.engine.work import Move, Work
from muster.core.ids import IdFactory
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_agents import AgentSilent
from muster.core.reasons.of_groups import NoAgents
from muster.core.reasons.of_kernels import DiskFull
from muster.core.resources import DeviceShare
from muster.core.states import StateTable
from muster.store import schema
from muster.store.entities import ENTITIES
from muster.store.entity import Entities, Entity, Record, Told, Tried
from muster.store.fields import Fixed, Key, Memory
from muster.store.live import Live
from muster.store.record_table import RecordTable
from muster.store.records import Allocation
from muster.store.store import Store


class DoorStatus(StrEnum):
    SHUT = "SHUT"
    OPEN = "OPEN"
    STUCK = "STUCK"
    GONE = "GONE"


_D = DoorStatus
DOOR_TABLE: StateTable[DoorStatus] = StateTable(
    "door",
    initial=_D.SHUT,
    terminal=frozenset({_D.GONE}),
    allowed={
        (_D.SHUT, _D.OPEN): "opened",
        (_D.SHUT, _D.STUCK): "it would not open",
        (_D.SHUT, _D.GONE): "taken out",
        (_D.OPEN, _D.SHUT): "closed",
        (_D.OPEN, _D.GONE): "taken out",
        (_D.STUCK, _D.GONE): "taken out",
    },
)


class HingeStatus(StrEnum):
    BENT = "BENT"
    STRAIGHT = "STRAIGHT"
    BROKEN = "BROKEN"


HINGE_TABLE: StateTable[HingeStatus] = StateTable(
    "hinge",
    initial=HingeStatus.BENT,
    terminal=frozenset(),
    allowed={
        (HingeStatus.BENT, HingeStatus.STRAIGHT): "follows",
        (HingeStatus.STRAIGHT, HingeStatus.BENT): "follows",
        (HingeStatus.BENT, HingeStatus.BROKEN): "follows",
    },
)


@dataclass(slots=True, eq=False, kw_only=True)
class Hinge(Record):
    id: Key[str]
    door: Fixed[str]
    status: HingeStatus


@dataclass(slots=True, eq=False, kw_only=True)
class Door(Tried):
    id: Key[str]
    status: DoorStatus
    hinges: Memory[list[Hinge]] = field(default_factory=list)


_metadata = MetaData()  # its own: the product's migrations do not make these tables
DOORS = RecordTable(Door, "doors", DOOR_TABLE, among=_metadata)
HINGES = RecordTable(Hinge, "hinges", HINGE_TABLE, among=_metadata)
doors, hinges = DOORS.table, HINGES.table


def load_doors(connection: Connection, live: Live) -> None:
    by_door: dict[str, list[Hinge]] = {}
    for row in connection.execute(select(hinges)):
        by_door.setdefault(row.door, []).append(HINGES.load(row))
    for row in connection.execute(select(doors).where(doors.c.status != DoorStatus.GONE)):
        live.add(DOORS.load(row, hinges=by_door.get(row.id, [])))


DOOR = Entity("door", DOORS, load_doors)
HINGE = Entity(
    "hinge",
    HINGES,
    listed=lambda live: (hinge for door in live.of(Door).values() for hinge in door.hinges),
    told=Told.NEVER,
)


class DoorLifecycle(Lifecycle[Door]):
    """``followed`` are the hinges that followed a door, each with its former status."""

    entity = Door

    def __init__(self) -> None:
        self.followed: list[tuple[str, str]] = []

    def followers(self, record: Door) -> Iterable[Record]:
        return record.hinges

    def follower_moved(self, work: Work, follower: Record, before: StrEnum) -> None:
        assert isinstance(follower, Hinge)
        self.followed.append((follower.id, before))

    def retry_policy(self, record: Door, work: Work) -> RetryPolicy:
        return RetryPolicy(max_tries=3, backoff_s=10.0)

    def final(self, reason: Reason) -> bool:
        return reason.code is ReasonCode.WORKDIR_MISSING


Opens = Callable[[Door], "Reason | str | None"]
"""The outcome of trying a door: None opens it, a reason is a failure, and a word is one of
``waits``, ``skips``, ``raises``."""


class OpenDoors(LifecycleHandler[Door]):
    name = "OpenDoors"
    entity = Door
    statuses = frozenset({DoorStatus.SHUT})
    transitions: ClassVar[StatusTransitions] = StatusTransitions(
        success=TransitionStatus(DoorStatus.OPEN, TransitionStatus(HingeStatus.STRAIGHT)),
        need_retry=NO_CHANGE,
        expired=TransitionStatus(DoorStatus.STUCK),
        give_up=TransitionStatus(DoorStatus.STUCK),
        stale=TransitionStatus(DoorStatus.GONE),
    )

    def __init__(self, opens: Opens) -> None:
        self.opens = opens
        self.asked: list[list[str]] = []

    def execute(self, targets: Sequence[Door], work: Work) -> HandlerResult[Door]:
        self.asked.append([door.id for door in targets])
        result: HandlerResult[Door] = HandlerResult()
        for door in targets:
            match self.opens(door):
                case None:
                    result.successes.append(door)
                case Reason() as why:
                    result.failures[door] = why
                case "skips":
                    result.skipped[door] = (NoAgents(group="pool"),)
                case "stale":
                    result.stale[door] = AgentSilent(silent_s=60)
                case "raises":
                    raise ZeroDivisionError(door.id)
        return result

    def timeout_s(self, record: Door, work: Work) -> float | None:
        return 100.0


class _Watch:
    def allocated(self, row: Allocation) -> None: ...
    def charged(
        self, row: Allocation, before: tuple[DeviceShare, ...] | None, now: float
    ) -> None: ...
    def released(self, row: Allocation, now: float) -> None: ...


class ToyWorld:
    """A store with doors, and the engine over it, under virtual time."""

    def __init__(self, path: Path, *handlers: Handler[Door]) -> None:
        self.clock = VirtualClock()
        engine = open_unsynced(url_at(path))
        _metadata.create_all(engine)
        self.store = Store(engine, Entities((*ENTITIES.values(), DOOR, HINGE)))
        self._ids = IdFactory(self.clock, random.Random(1))
        self._handlers = handlers
        self.lifecycle = DoorLifecycle()
        self.defects = Defects()
        self.races = Races()
        self.undone = 0
        self._build()

    def _build(self) -> None:
        order = PassOrder.of([self.lifecycle], self._handlers, self.defects)
        self.coordinator = Coordinator(order)

    def door(self, id_: str, hinges: int = 0) -> Door:
        """A door that is there, and that the engine has looked at."""
        (made,) = self.doors(id_, hinges=hinges)
        return self.store.live.of(Door).get(id_, made)

    def doors(self, *ids: str, hinges: int = 0) -> list[Door]:
        """Several that the engine looks at in one wake."""
        work, now = self.work(), self.clock.now()
        made = []
        for id_ in ids:
            has = [
                Hinge(id=f"{id_}-{n}", door=id_, status=HingeStatus.BENT, status_changed_at=now)
                for n in range(hinges)
            ]
            door = Door(id=id_, status=DoorStatus.SHUT, status_changed_at=now, hinges=has)
            work.unit.add(door)
            made.append(door)
            if has:
                work.unit.add(*has)
        self.store.commit(work.unit)
        self.look(*ids)
        return made

    def look(self, *ids: str) -> None:
        """Have the engine look at these doors."""
        for _ in range(100):
            work = self.work()
            for id_ in ids:
                if (door := self.store.live.of(Door).get(id_)) is not None:
                    work.mark(door)
            try:
                self.wake(work)
            except Undone:
                self.undone += 1
                self.store.reload()
                self._build()
            else:
                self.defects.committed()
                return
        raise AssertionError("the wake is undone again and again")

    def work(self) -> Work:
        return Work(
            self.store.unit(self.clock.now(), _Watch()), self._ids, self.races, self.defects
        )

    def wake(self, work: Work | None = None) -> bool:
        work = work or self.work()
        calm = self.coordinator.run(work)
        self.store.commit(work.unit)
        return calm

    def run(self, seconds: float) -> None:
        """Wakes at each moment that the engine wants to look again."""
        end = self.clock.now() + seconds
        while (due := self.coordinator.timers.next_due()) is not None and due <= end:
            self.clock.advance(max(0.0, due - self.clock.now()))
            self.wake()
        self.clock.advance(end - self.clock.now())


def moved(world: ToyWorld, door: Door, to: DoorStatus) -> None:
    """Somebody moves the door beside the handlers."""
    work = world.work()
    DoorLifecycle().move(
        work,
        [door],
        DOOR_TABLE.live,
        TransitionStatus(to, TransitionStatus(HingeStatus.BENT)),
        Move("Test"),
    )
    world.wake(work)


FAILURE = DiskFull(agent="a", detail="")


def history(world: ToyWorld, door: Door) -> list[tuple[str, str, str, int]]:
    """(from, to, result, times) of the rows that tell of the door."""
    columns = schema.history.c
    query = select(columns.from_status, columns.to_status, columns.result, columns.times)
    with world.store.engine.connect() as connection:
        rows = connection.execute(query.where(columns.entity == door.id).order_by(columns.seq))
        return [(row.from_status, row.to_status, row.result, row.times) for row in rows]


def always(outcome: Reason | str | None) -> Opens:
    return lambda door: outcome
