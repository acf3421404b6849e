"""The real control plane over its store, in one thread, as a process that can be killed at any
point."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.engine.effects import Surroundings
from muster.control.inbox import Inbox
from muster.control.modules import cluster_entities, cluster_modules
from muster.control.notice.hollow import NO_FAULTS, HollowSender
from muster.control.plane import ControlPlane
from muster.core.clock import VirtualClock
from muster.core.ids import AgentId, IdFactory
from muster.simulate.hollow.gateway import HollowGateway
from muster.simulate.hollow.timeline import Appointment, Timeline
from muster.store.store import CommitFailed, LostRace, Store
from muster.store.unit import Unit
from muster.wire.messages import ControllerMessage

WAKE_AFTER_S = 0.0005
TICK_S = 0.5


class Killed(BaseException):
    """The controller's process ends here: nothing of Muster catches this."""


class Misfortune(StrEnum):
    """What befalls the next commits, or the sends after them."""

    FULL = "full"  # the disk is full: nothing is written
    RACE = "race"  # somebody else wrote first
    UNKNOWN = "unknown"  # it is written, and the answer is lost
    KILLED_BEFORE = "killed before the commit"
    KILLED_AFTER = "killed after the commit"
    KILLED_AMONG_SENDS = "killed among the sends"


@dataclass(slots=True)
class Fate:
    """Misfortunes in store for a controller; each is used up by a commit that changes something."""

    coming: list[Misfortune]
    sends_left: int | None = None  # until it is killed

    def draw(self) -> Misfortune | None:
        return self.coming.pop(0) if self.coming else None


class _FatefulStore(Store):
    def __init__(self, engine: Engine, fate: Fate, told: Callable[[Unit], None]) -> None:
        self._fate = fate
        self._told = told
        super().__init__(engine, cluster_entities())

    def commit(self, unit: Unit) -> None:
        misfortune = None if unit.empty else self._fate.draw()
        match misfortune:
            case Misfortune.FULL:
                raise CommitFailed("the disk is full")
            case Misfortune.RACE:
                raise LostRace("somebody else wrote first", frozenset())
            case Misfortune.KILLED_BEFORE:
                raise Killed
        super().commit(unit)
        self._told(unit)
        match misfortune:
            case Misfortune.UNKNOWN:
                raise CommitFailed("the connection was lost")
            case Misfortune.KILLED_AFTER:
                raise Killed
            case Misfortune.KILLED_AMONG_SENDS:
                self._fate.sends_left = 1


@dataclass(eq=False)
class _FatefulGateway(HollowGateway):
    fate: Fate = field(kw_only=True)

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        if self.fate.sends_left is not None:
            if self.fate.sends_left == 0:
                self.fate.sends_left = None
                raise Killed
            self.fate.sends_left -= 1
        super().send(agent, message)


class Controller:
    """One life of the controller, from its start to its death.

    Args:
        died: called once when it was killed by its fate.
        committed: called with each unit that was written.
    """

    def __init__(
        self,
        engine: Engine,
        timeline: Timeline,
        ids: IdFactory,
        path: Path,
        *,
        boot_id: str,
        fate: Fate,
        died: Callable[[], None],
        committed: Callable[[Unit], None],
    ) -> None:
        clock: VirtualClock = timeline.clock
        self._timeline = timeline
        self._died = died
        self.is_up = True
        self._wake_at: Appointment | None = None
        self.store = _FatefulStore(engine, fate, committed)
        self.leases = LeaseBook(clock, boot_id)
        self.inbox = Inbox(self._hint)
        self.desk = AgentDesk(self.store, clock, self.leases, self.inbox)
        surroundings = Surroundings(engine, self.inbox.put, path)
        modules = cluster_modules(self.desk, self.leases, surroundings)
        self.channels = HollowSender(clock, self.inbox.put, 1, NO_FAULTS)
        self.plane = ControlPlane(self.store, clock, ids, self.inbox, modules, [self.channels])
        self.gateway = _FatefulGateway(
            timeline, self.desk, self.leases, self.desk.authenticate, fate=fate
        )
        self.desk.link = self.gateway
        self.wakes = 0
        self._hint()

    def ask(
        self, action: Callable[..., Any], answer: Callable[[Any, Exception | None], None]
    ) -> None:
        self.plane.ask(action, answer)

    def die(self) -> None:
        """kill -9."""
        self.is_up = False
        if self._wake_at is not None:
            self._wake_at.cancel()
        self.gateway.close_all()
        self.store.close()

    def _hint(self) -> None:
        self._wake_no_later_than(self._timeline.clock.now() + WAKE_AFTER_S)

    def _wake_no_later_than(self, moment: float) -> None:
        if not self.is_up:
            return
        if self._wake_at is not None and self._wake_at.call is not None:
            if self._wake_at.at <= moment:
                return
            self._wake_at.cancel()
        self._wake_at = self._timeline.at(moment, self._wake)

    def _wake(self) -> None:
        self._wake_at = None
        self.wakes += 1
        try:
            due = self.plane.step()
        except Killed:
            self._died()
            return
        if self.channels.tick():
            self._hint()
        if due is not None:
            self._wake_no_later_than(max(due, self._timeline.clock.now() + WAKE_AFTER_S))
