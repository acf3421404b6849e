"""The control plane: inputs in, one unit of work a wake, effects out.

``step`` is a whole wake: it takes the inputs, lets the engine run until nothing changes, commits
once, and only then performs effects: answers, acknowledgements, commands. It never waits, so a
simulator can drive it under virtual time in one thread.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError

from muster.control.engine.coordinator import MAX_CHANGES, Coordinator
from muster.control.engine.defects import Defects, Undone
from muster.control.engine.effects import Performer
from muster.control.engine.module import Context, Declared, Module, Parts
from muster.control.engine.steps import Order
from muster.control.engine.work import Work
from muster.control.inbox import Answer, Answers, Inbox, Input
from muster.core.clock import Clock
from muster.core.errors import MusterError
from muster.core.ids import IdFactory
from muster.core.owner import Owner
from muster.core.resources import DeviceShare
from muster.core.specs import JobSpec, SessionSpec
from muster.store.live import Live
from muster.store.records import Allocation
from muster.store.schema import cluster
from muster.store.store import CommitFailed, LostRace, Store, Unstorable
from muster.store.unit import LedgerWatch

log = logging.getLogger(__name__)

T = TypeVar("T")

SWEEP_S = 60.0
"""How often every record is looked at, whatever was hinted (design: Level-triggered)."""
RETRY_COMMIT_S = 1.0
LOOK_AGAIN_S = 1.0
"""How long new records wait on which a handler was not run, because it failed on one of them."""
MOST_PUT_OFF = 2
"""How many wakes in a row may take in so many changes that handlers wait for the next wake. After
the first such wake, inputs that came meanwhile are taken before the handlers have their turn."""
MAX_RACES = 5
"""How often in a row a wake is taken again because somebody else wrote first."""
SIT_OUT_S = 10.0
"""How long a session that lost a race is not placed: each race costs another reading of the whole
state."""


class Unavailable(MusterError):
    """A change could not be stored (the disk is full, say); no part of it happened."""


Events = list[tuple[str, str, str]]
"""The changes of a commit: (kind, id, status)."""


class ControlPlane:
    """Modules, composed.

    Args:
        store: state and its mirror; this is its only writer.
        inbox: of the inputs; the driver of the plane calls ``step`` soon after the inbox's hint.
        modules: in the order in which they build on each other.
        stand_ins: performers in place of the modules' own of the same kinds: hollow twins.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdFactory,
        inbox: Inbox,
        modules: Sequence[Module],
        stand_ins: Sequence[Performer[Any]] = (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._inbox = inbox
        self._modules = modules
        of_modules = (performer for module in modules for performer in module.performers)
        performers: dict[type, Performer[Any]] = {}
        for performer in (*of_modules, *stand_ins):
            performers[performer.kind] = performer
        performers[Answer] = Answers()  # last: whoever is answered may ask for what was done before
        self._performers = [*performers.values()]
        self._suspect: tuple[Input, MusterError] | None = None  # failed alone; is it to blame?
        self._defects = Defects()
        self._watchers: dict[int, Callable[[Events], None]] = {}
        self._put_off = 0  # wakes in a row whose inputs left no room for handlers
        self._retry_at = 0.0
        self.trouble: str | None = None
        """Why nothing can be stored; None as long as everything can."""
        self._broken = False  # mirror and SQL differ: it is read again before anything else
        self._races = 0  # lost since the last commit
        self._losers: dict[str, float] = {}  # of those and earlier ones, until when they sit out
        self.changes = 0
        """How many rows the last wake changed, but for history."""
        self._build()

    def _build(self, before: Live | None = None) -> None:
        """Have all modules declare anew over the mirror; the next wake looks at every record.

        Args:
            before: the mirror that was thrown away, if there was one.
        """
        for module in self._modules:
            module.begin(before)
        self.parts = Parts()
        context = Context(self._store, self._clock, self.parts)
        declared: list[Declared] = []
        for module in self._modules:
            declared.append(module.declare(context))
            for part in declared[-1].offers:
                self.parts.add(part)
        handlers = [handler for each in declared for handler in each.handlers]
        lifecycles = [lifecycle for each in declared for lifecycle in each.lifecycles]
        order = Order.of(lifecycles, handlers, self._defects)
        self._coordinator = Coordinator(order)
        self._watch = _Watches([each.watch for each in declared if each.watch is not None])
        self._next_sweep = self._clock.now()

    def check(self, spec: JobSpec | SessionSpec) -> None:
        """Refuse a spec that a module cannot serve.

        Raises:
            InvalidSpec: with every problem that the first of such modules found.
        """
        for module in self._modules:
            module.check(spec)

    def close(self) -> None:
        """Have the performers end what they have running."""
        for performer in self._performers:
            performer.close()

    @property
    def live(self) -> Live:
        """The live records, as they are known at this moment."""
        self._note_news()
        return self._store.live

    def _note_news(self) -> None:
        for module in self._modules:
            module.catch_up()

    def ask(
        self,
        action: Callable[[Work, Parts], T],
        answer: Callable[[T | None, Exception | None], None],
        owner: Owner | None = None,
    ) -> None:
        """See ``Inbox.ask``."""
        self._inbox.ask(action, answer, owner)

    async def request(
        self,
        action: Callable[[Work, Parts], T],
        timeout_s: float = 30.0,
        owner: Owner | None = None,
    ) -> T:
        """See ``Inbox.request``."""
        return await self._inbox.request(action, timeout_s, owner)

    def watch(self, callback: Callable[[Events], None]) -> Callable[[], None]:
        """Have ``callback`` called with the changes of each commit; the answer is a function that
        ends this."""
        key = id(callback)
        self._watchers[key] = callback
        return lambda: self._watchers.pop(key, None) and None

    # -- the wake ------------------------------------------------------------------------------

    def step(self) -> float | None:
        """One wake; the answer is the moment of the next one that time alone will cause."""
        now = self._clock.now()
        self.changes = 0
        if now < self._retry_at:
            return self._retry_at
        if self._broken:
            before = self._store.live
            try:
                self._store.reload()
            except SQLAlchemyError as error:
                inputs = [] if self._suspect is not None else self._inbox.take(now)
                self._fail(inputs, f"the state cannot be read: {error}"[:200])
                return self._retry_at
            self._build(before)
            self._broken = False
            self._put_off = 0  # the inputs that filled the last wake are undone
        self._note_news()
        handlers_only = self._put_off == MOST_PUT_OFF or self._suspect is not None
        inputs = [] if handlers_only else self._inbox.take(now)
        work = Work(self._store.unit(now, self._watch), self._ids)
        if self.trouble is not None:
            work.unit.also(update(cluster).values(value=cluster.c.value))  # is there room again?
        self._have_losers_sit_out(work)
        self._sweep_if_due(work)
        if not self._take_all(inputs, work):
            return now
        try:
            full = work.unit.size > MAX_CHANGES and not work.unit.ends_something
            self._put_off = self._put_off + 1 if full and not work.must_be_whole else 0
            calm = not self._put_off and self._coordinator.run(work)
            self._store.commit(work.unit)
            self._races, self.trouble = 0, None
            if self._defects.committed():
                self._next_sweep = min(self._next_sweep, now + LOOK_AGAIN_S)
        except Undone:
            self._broken = True
            self._inbox.give_back(inputs)
            return now
        except CommitFailed as error:
            if isinstance(error, LostRace) and self._races < MAX_RACES:
                return self._take_again(inputs, error)
            if isinstance(error, Unstorable) and inputs:
                self._find_culprit(inputs, error)
                return now
            self._fail(inputs, f"the change could not be stored: {error}")
            return self._retry_at
        except Exception as error:
            log.exception("a wake failed")
            if inputs:
                self._find_culprit(inputs, error)
                return now
            self._fail(inputs, "the controller failed; its log says more")
            return self._retry_at
        if self._suspect is not None and calm:  # a wake without the suspect can be stored
            suspect, why = self._suspect
            self._suspect = None
            suspect.refuse(why)
        self.changes = work.unit.size
        self._perform(work)
        if self._inbox or not calm:
            for kind in work.dirty.values():
                for record in kind:
                    self._coordinator.timers.set(record, now)
            return now
        due = self._coordinator.timers.next_due()
        return self._next_sweep if due is None else min(due, self._next_sweep)

    def _sweep_if_due(self, work: Work) -> None:
        if work.now < self._next_sweep:
            return
        since, self._next_sweep = self._next_sweep - SWEEP_S, work.now + SWEEP_S
        for module in self._modules:
            try:
                module.sweep(work, since=since)
            except Exception:
                log.exception("module %s cannot sweep", type(module).__name__)
        for record in self.live.swept():
            work.mark(record)

    def _take_all(self, inputs: list[Input], work: Work) -> bool:
        """Apply the inputs; whether none failed. If one did, the wake is undone, and the next one
        takes the others. Inputs that are left after MAX_CHANGES changes wait for the next wake."""
        for position, item in enumerate(inputs):
            if work.unit.size > MAX_CHANGES:
                self._inbox.give_back(inputs[position:])
                del inputs[position:]
                break  # handlers have their turn in the next wake
            before = work.unit.size
            try:
                item.take(work, self.parts)
            except Exception as error:
                log.exception("an input failed; the others are taken again without it")
                self._broken = True
                self._inbox.give_back(inputs[:position] + inputs[position + 1 :])
                item.refuse(error)
                return False
            self._inbox.note_size(item, work.unit.size - before, work.now)
        return True

    def _perform(self, work: Work) -> None:
        """Tell modules, performers and watchers about the commit, in this order."""
        tell: list[Callable[[], None]] = [
            partial(module.committed, work) for module in self._modules
        ]
        tell += [
            partial(performer.perform, effects)
            for performer in self._performers
            if (effects := work.effects.pop(performer.kind, None))
        ]
        if events := work.unit.events():
            tell += [partial(watcher, events) for watcher in self._watchers.values()]
        for each in tell:
            try:
                each()
            except Exception:  # it holds up nobody else; what it was told comes again, or is read
                log.exception("the effects of a commit were not all told")
        for kind in work.effects:
            log.error("no performer carries out effects of kind %s", kind.__name__)

    def _take_again(self, inputs: list[Input], race: LostRace) -> float:
        """Nothing was written, because somebody else wrote first: the losers sit out the next wake,
        which reads everything again and takes the same inputs."""
        log.warning("the wake is taken again: %s (%s)", race, ", ".join(sorted(race.losers)))
        now = self._clock.now()
        self._races += 1
        self._losers |= dict.fromkeys(race.losers, now + SIT_OUT_S)
        self._broken = True
        self._inbox.give_back(inputs)
        return now

    def _have_losers_sit_out(self, work: Work) -> None:
        """Tell the work who sits out. Work that is submitted in a wake that is taken again gets
        another id, so from the second race on all new sessions sit out too."""
        if not self._losers:
            return
        self._losers = {name: until for name, until in self._losers.items() if until > work.now}
        work.sit_out = self._losers
        work.new_sit_out = self._races > 1
        if self._races:
            work.tell_losers()

    def _find_culprit(self, inputs: list[Input], error: Exception) -> None:
        """Nothing was written, and the same wake would fail again, because of an input or of the
        state itself. An input is refused once it failed alone and a wake without inputs did not
        fail."""
        self._broken = True
        suspect = self._inbox.give_back_apart(inputs)
        if suspect is not None:
            why = MusterError(f"this cannot be carried out: {error!r}"[:1000])
            self._suspect = suspect, why

    def _fail(self, inputs: list[Input], why: str) -> None:
        """Nothing could be written: refuse requests, and keep other inputs for later."""
        log.error("nothing was committed, trying again in %s s: %s", RETRY_COMMIT_S, why)
        if self._suspect is not None:  # the suspect was not to blame
            self._inbox.give_back([self._suspect[0]])
            self._suspect = None
        inputs = [*inputs, *self._inbox.take_all_given_back()]
        self._inbox.give_back([item for item in inputs if item.is_kept])
        self._broken = True
        self.trouble = why
        self._retry_at = self._clock.now() + RETRY_COMMIT_S
        refusal = Unavailable(why)
        for item in inputs:
            if not item.is_kept:
                item.refuse(refusal)


class _Watches:
    """All followers of the ledger, as one."""

    def __init__(self, watches: Sequence[LedgerWatch]) -> None:
        self._watches = watches

    def held(self, row: Allocation) -> None:
        for watch in self._watches:
            watch.held(row)

    def charged(self, row: Allocation, before: tuple[DeviceShare, ...] | None, now: float) -> None:
        for watch in self._watches:
            watch.charged(row, before, now)

    def released(self, row: Allocation, now: float) -> None:
        for watch in self._watches:
            watch.released(row, now)
