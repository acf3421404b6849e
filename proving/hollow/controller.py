"""The real control plane over its store, in one thread, as a process that can be killed at any
point."""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.engine.declared import SomePerformer
from muster.control.engine.effects import Surroundings
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.inbox import Inbox
from muster.control.modules import cluster_entities, cluster_modules
from muster.control.plane import ControlPlane
from muster.core.errors import MustEnd
from muster.core.ids import AgentId, IdFactory
from muster.core.owner import Owner
from muster.store.database.committing import DatabaseAway
from muster.store.store import CommitFailed, CommitUnknown, LostRace, Store
from muster.store.unit import Unit
from muster.wire.messages import ControllerMessage
from proving.hollow.controller_clock import ControllerClock
from proving.hollow.door import FrontDoor
from proving.hollow.fate import SLOW_S, Fate, Killed, Misfortune, Outage
from proving.hollow.found_twins import found_twins
from proving.hollow.gateway import HollowGateway
from proving.hollow.performers.notices import NO_FAULTS, HollowSender
from proving.hollow.performers.providers import Farm, HollowProviders
from proving.hollow.performers.rebooting import HollowRebooter
from proving.hollow.serving import HollowServing
from proving.hollow.timeline import Appointment, Timeline
from proving.hollow.virtual_clock import VirtualClock
from proving.hollow.witness import Witness

T = TypeVar("T")

WAKE_AFTER_S = 0.0005
FENCE_LOOK_S = 2.0
"""How often a controller looks whether another one has taken its place."""
LOOK_AT_TIME_S = 0.1
IN_CHARGE_S = 5.0
"""How long a controller renews leases that cannot look: shorter than the longest kernels run, so
that a lease that is renewed for longer has two attempts live at once."""


@dataclass(slots=True)
class Wakes:
    """How many wakes there were, how many of them wrote something, and the processor's seconds that
    they took."""

    count: int = 0
    wrote: int = 0
    processor_s: float = 0.0


class _FatefulStore(Store):
    def __init__(
        self,
        engine: Engine,
        fate: Fate,
        witness: Witness,
        clock: VirtualClock,
        wait: Callable[[float], None],
        wakes: Wakes,
    ) -> None:
        self._fate = fate
        self.witness = witness
        self._clock = clock
        self._wait = wait
        self._told_at = 0.0  # what became of a commit whose answer was lost
        self._wakes = wakes
        self.cut_off_until = 0.0
        self._is_open = False
        super().__init__(engine, cluster_entities())
        self._is_open = True

    @property
    def _outage(self) -> Outage | None:
        fate, now = self._fate, self._clock.now()
        if now < self.cut_off_until:
            return Outage.AWAY
        return fate.outage if now < fate.outage_ends else None

    @property
    def is_away(self) -> bool:
        """Whether nothing can be read or written now."""
        return self._outage is Outage.AWAY

    def reload(self) -> None:
        if self.is_away and self._is_open:  # at its start it waits
            raise OperationalError("the mirror", {}, Exception("the connection is lost"))
        super().reload()

    def try_to_write(self) -> None:
        self._suffer_outage()
        super().try_to_write()

    def commit(self, unit: Unit) -> None:
        drawn = None
        if not unit.empty:
            self._suffer_outage()
            drawn = self._fate.draw()
        misfortune = None if drawn is None else drawn.misfortune
        match misfortune:
            case Misfortune.FULL:
                raise CommitFailed("the disk is full")
            case Misfortune.RACE:
                raise LostRace("somebody else wrote first", frozenset())
            case Misfortune.SLOW:
                self._wait(SLOW_S)
            case Misfortune.UNWRITTEN:
                self._told_at = self._clock.now() + SLOW_S
                raise CommitUnknown("the connection was lost")
            case Misfortune.KILLED_BEFORE:
                raise Killed
        super().commit(unit)
        self._wakes.wrote += not unit.empty
        self.witness.committed(unit)
        match misfortune:
            case Misfortune.UNKNOWN:
                self._told_at = self._clock.now() + SLOW_S
                raise CommitUnknown("the connection was lost")
            case Misfortune.KILLED_AFTER:
                raise Killed
            case Misfortune.KILLED_AMONG_SENDS if drawn is not None:
                self._fate.sends_left = drawn.sends

    def settle(self, unit: Unit) -> bool:
        if self.is_away or self._clock.now() < self._told_at:
            raise DatabaseAway("the connection is lost")
        return super().settle(unit)

    def _suffer_outage(self) -> None:
        match self._outage:
            case Outage.FULL:
                raise CommitFailed("the disk is full")
            case Outage.AWAY:
                raise CommitFailed("the connection is lost")
            case Outage.BUSY:
                self._wait(SLOW_S)
                raise CommitFailed("the database is locked")
            case Outage.SLOW:
                self._wait(SLOW_S)


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


class _WitnessOfOvertaken(Witness):
    """The witness of a controller that was overtaken: what it hears and does is no event of the
    cluster any more, but agents may hear it."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def sent(self, agent: AgentId, message: ControllerMessage) -> None:
        self._witness.overtaken_sent(agent, message)


class _InboxOfRecord(Inbox):
    """An inbox that keeps account of requests: ``asked`` are the moments at which those came that
    are not answered yet, by number."""

    def __init__(self, hint: Callable[[], None], clock: VirtualClock) -> None:
        super().__init__(hint)
        self.asked: dict[int, float] = {}
        self._clock = clock
        self._numbers = itertools.count()

    def ask(
        self,
        action: Callable[[Work, Parts], T],
        answer: Callable[[T | None, Exception | None], None],
        owner: Owner | None = None,
    ) -> None:
        number = next(self._numbers)

        def answered(result: T | None, error: Exception | None) -> None:
            del self.asked[number]
            answer(result, error)

        super().ask(action, answered, owner)
        self.asked[number] = self._clock.now()


class Controller:
    """One life of the controller, from its start to its death.

    Args:
        died: called once when it was killed by its fate.
        witness: hears of what is committed, heard and sent.
        wakes: counts those of this controller too.
        farm: the machines of pools.
        time_of_day_ahead_s: by how much its machine's time of day is ahead of the world's.
        reboot: has the machine of an agent boot anew from outside; False if there is none.
        serving: has the replicas of deployments, and the balancer.
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
        witness: Witness,
        wakes: Wakes,
        farm: Farm,
        time_of_day_ahead_s: float,
        reboot: Callable[[AgentId], bool],
        serving: HollowServing,
    ) -> None:
        world: VirtualClock = timeline.clock
        self._timeline = timeline
        self._died = died
        self.is_up = True
        self._is_awake = False
        self._has_woken = False
        self._may_decide = False
        self._wake_at: Appointment | None = None
        self._due_at = math.inf  # what the next wake is for, which may be past by then
        self._wakes = wakes
        self.store = _FatefulStore(engine, fate, witness, world, self._wait, wakes)
        clock = self._clock = ControllerClock(world, self.store, boot_id, time_of_day_ahead_s)
        self.leases = LeaseBook(
            clock, boot_id, in_charge_s=IN_CHARGE_S, former_in_charge_s=IN_CHARGE_S
        )
        self.inbox = _InboxOfRecord(self._hint, world)
        self.desk = AgentDesk(self.store, clock, self.leases, self.inbox)
        surroundings = Surroundings(engine, self.inbox.put, path)
        modules = cluster_modules(self.desk, self.leases, surroundings)
        self.channels = HollowSender(world, self.inbox.put, 1, NO_FAULTS)
        self.providers = HollowProviders(farm, engine, self.inbox.put)
        self.rebooter = HollowRebooter(world, reboot, self.inbox.put)
        self.prober = serving.prober(self.inbox.put)
        self.publisher = serving.publisher()
        self.twins = found_twins(world, self._hear)
        stand_ins: list[SomePerformer] = [
            self.channels,
            self.rebooter,
            self.prober,
            self.publisher,
            *self.providers.performers,
            *self.twins,
        ]
        self.plane = ControlPlane(self.store, clock, ids, self.inbox, modules, stand_ins)
        self.gateway = _FatefulGateway(
            timeline, self.desk, self.leases, self.desk.authenticate, witness, fate=fate
        )
        self.desk.link = self.gateway
        self.door = FrontDoor(self.plane, engine, clock, timeline)
        self._is_superseded = False
        self._look_at_fence()
        self._hint()
        self._attended_at: Appointment | None = None

    @property
    def is_time_confirmed(self) -> bool:
        return self._clock.is_confirmed

    @property
    def time_ahead_s(self) -> float:
        """By how much its time is ahead of the world's."""
        return self._clock.ahead_s

    @property
    def is_idle(self) -> bool:
        """Whether the controller has nothing to do at this moment."""
        plane, is_due = self.plane, self._due_at <= self._timeline.clock.now()
        # It has looked at nothing before its first wake, and a wake may wait for its commit.
        rests = not is_due and self._has_woken and not self._is_awake
        return rests and not self.inbox and plane.is_calm and not plane.is_broken

    def ask(
        self, action: Callable[..., Any], answer: Callable[[Any, Exception | None], None]
    ) -> None:
        self.plane.ask(action, answer)

    def be_superseded(self, cut_off_s: float) -> None:
        """Go on while another controller works on the database, until this one finds that out by
        itself; it does not reach the database for so long. The witness hears what it sends."""
        self.store.witness = Witness()
        self.gateway.witness = _WitnessOfOvertaken(self.gateway.witness)
        self._is_superseded = True
        self.store.cut_off_until = self._timeline.clock.now() + cut_off_s

    def _look_at_fence(self) -> None:
        if not self.is_up:
            return
        self._timeline.after(FENCE_LOOK_S, self._look_at_fence)
        if self.store.is_away:
            return
        if self._is_superseded and self.store.is_fenced():  # else nobody else has begun
            self.plane.read_again()
            self._hint()
        else:
            self.leases.confirm_charge(self._timeline.clock.boot_s())

    def die(self) -> None:
        """kill -9."""
        self.is_up = False
        if self._wake_at is not None:
            self._wake_at.cancel()
        self.providers.be_forsaken()
        self.prober.be_forsaken()
        self.rebooter.be_forsaken()
        self.gateway.close_all()
        self.door.close()
        self.store.close()

    def _attend_to_machines(self) -> None:
        """Have providers, and whoever reboots machines from outside, do what is due, now and later;
        they outlive the controller."""
        self.providers.tick()
        self.rebooter.tick()
        self.prober.tick()
        self.publisher.tick()
        for twin in self.twins:
            twin.tick()
        if self._attended_at is not None:
            self._attended_at.cancel()
            self._attended_at = None
        performers = (self.providers, self.rebooter, self.prober, self.publisher, *self.twins)
        due = [each.next_at for each in performers if each.next_at is not None]
        if due:
            self._attended_at = self._timeline.at(min(due), self._attend_to_machines)

    def _hear(self, outcome: Input) -> None:
        """Take an outcome of a twin, which goes on with what it has begun when this has died."""
        if self.is_up:
            self.inbox.put(outcome)

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

    def _wait(self, seconds: float) -> None:
        """Let time pass within a wake; what others do meanwhile is not the wake's."""
        began_s = time.process_time()
        self._timeline.run(seconds)
        self._wakes.processor_s -= time.process_time() - began_s

    def _waits_for_time(self) -> bool:
        """Whether nothing is decided yet, because agents may confirm the controller's time."""
        try:
            waits = self._clock.waits_for(self.leases)
        except MustEnd:
            self._died()
            return True
        self._may_decide = not waits
        if waits:
            self._wake_no_later_than(self._timeline.clock.now() + LOOK_AT_TIME_S)
        return waits

    def _wake(self) -> None:
        self._wake_at = None
        if not self._may_decide and self._waits_for_time():
            return
        if self._is_awake:  # inputs that came while it waits for its database are taken later
            self._wake_no_later_than(self._timeline.clock.now() + SLOW_S)
            return
        self._wakes.count += 1
        self._is_awake = True
        began_s = time.process_time()
        try:
            due = self.plane.step()
        except (Killed, MustEnd):
            self._died()
            return
        finally:
            self._wakes.processor_s += time.process_time() - began_s
            self._is_awake = False
        self._has_woken = True
        if not self.is_up:
            return
        due = None if due is None else due - self._clock.ahead_s
        self.channels.tick()
        self._attend_to_machines()
        now = self._timeline.clock.now()
        moments = [each for each in (due, self.channels.next_at) if each is not None]
        self._due_at = min(moments, default=math.inf)
        if moments:
            self._wake_no_later_than(max(self._due_at, now + WAKE_AFTER_S))
        self.store.witness.woke()
