"""The control plane: inputs in, one unit of work a wake, effects out.

``step`` is a whole wake: it takes the inputs, lets the engine run until nothing changes, commits
once, and only then performs effects: answers, acknowledgements, commands. It never waits, so a
simulator can drive it under virtual time in one thread.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from muster.control.engine.coordinator import Coordinator
from muster.control.engine.declared import Declared, SomePerformer
from muster.control.engine.defects import LOOK_AGAIN_S, Defects, Undone
from muster.control.engine.inputs import Input
from muster.control.engine.module import Context, Module, Parts, with_own
from muster.control.engine.races import Races
from muster.control.engine.steps import PassOrder, in_order
from muster.control.engine.sweeps import Sweeps
from muster.control.engine.wake_share import WakeShare
from muster.control.engine.watches import Watches
from muster.control.engine.work import Work
from muster.control.inbox import Answers, Inbox, NotStored, Reply, refuse, refuse_requests
from muster.control.put_off import PutOff
from muster.core.clock import Clock
from muster.core.errors import MustEnd, MusterError
from muster.core.ids import IdFactory
from muster.core.owner import Owner
from muster.core.specs.amounts import Spec
from muster.store.database.committing import DatabaseAway
from muster.store.database.outage import cause_of
from muster.store.live import Live
from muster.store.store import (
    CommitFailed,
    CommitUnknown,
    LostRace,
    Store,
    Unstorable,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_COMMIT_S = 1.0
Events = list[tuple[str, str, str]]
"""The changes of a commit: (kind, id, status)."""


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A wake that may or may not be stored: ``why`` tells how the answer to its commit was lost."""

    inputs: list[Input]
    work: Work
    calm: bool
    why: str


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
        stand_ins: Sequence[SomePerformer] = (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._inbox = inbox
        self._modules = modules
        of_modules = (performer for module in modules for performer in module.performers)
        performers: dict[type, SomePerformer] = {}
        for performer in (*of_modules, *stand_ins):
            performers[performer.kind] = performer
        performers[Reply] = Answers()  # last: whoever is answered may ask about the other effects
        self._performers = performers
        self._suspect: tuple[Input, MusterError] | None = None  # failed alone; is it to blame?
        self.defects = Defects()
        """The failures of handlers and other parts of modules."""
        self._watchers: dict[int, Callable[[Events], None]] = {}
        self.handlers_wait = PutOff()
        """Whether the last wake left all that handlers do to the next one."""
        self._retry_at = 0.0
        self.trouble: str | None = None
        """Why nothing can be stored; None as long as everything can."""
        self._broken = False  # mirror and SQL differ: it is read again before anything else
        self._is_wary = False  # the last wake could not be stored: find the changes to blame
        self._in_doubt: _Doubt | None = None
        self._former: Live | None = None  # the former mirror, until the new one is taken over
        catching_up = with_own(modules, Module.catch_up)
        self._catching_up = {f"catching up of {type(each).__name__}": each for each in catching_up}
        self._told = with_own(modules, Module.committed)
        self._sweeps = Sweeps(modules, self.defects, clock.now())
        self._races = Races()
        self._share = WakeShare(clock.processor_s)
        self.changes = 0
        """How many rows the last wake changed, but for history."""
        self.is_calm = True
        """Whether the last wake left nothing to do for handlers."""
        self._build()

    def _build(self, before: Live | None = None) -> None:
        """Have all modules declare anew over the mirror; the next wake looks at every record.

        Args:
            before: the mirror that was thrown away, if there was one.
        """
        for module in self._modules:
            module.begin(self._store.live, before)
        parts = Parts()
        context = Context(self._store, self._clock, parts)
        declared: list[Declared] = []
        for module in self._modules:
            declared.append(module.declare(context))
            for part in declared[-1].offers:
                parts.add(part)
        self.handlers = in_order(handler for each in declared for handler in each.handlers)
        lifecycles = [lifecycle for each in declared for lifecycle in each.lifecycles]
        order = PassOrder.of(lifecycles, self.handlers, self.defects)
        self.parts = parts
        self._coordinator = Coordinator(order)
        self._watch = Watches([each.watch for each in declared if each.watch is not None])
        self._sweeps.bring_forward(self._clock.now())

    def check(self, spec: Spec) -> None:
        """Refuse a spec that a module cannot serve.

        Raises:
            InvalidSpec: with every problem that the first module that refuses it found.
        """
        for module in self._modules:
            module.check(spec)

    def close(self) -> None:
        """Have the performers end their processes and threads."""
        for performer in self._performers.values():
            performer.close()

    @property
    def live(self) -> Live:
        """The live records, as they are known at this moment: the modules first note what came in
        outside of wakes."""
        self._note_news()
        return self._store.live

    def read_again(self) -> None:
        """Have the mirror read again first of all: another may have taken the database over."""
        self._broken = True

    @property
    def is_broken(self) -> bool:
        """Whether the mirror is ahead of SQL, since a commit failed, and has to be read again."""
        return self._broken

    def _note_news(self) -> None:
        for name, module in self._catching_up.items():
            if not self.defects.rests(name, self._clock.now()):
                try:
                    module.catch_up()
                except Exception as error:
                    self.defects.rest(name, error, self._clock.now())

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

        def end() -> None:
            self._watchers.pop(key, None)

        return end

    # -- the wake ------------------------------------------------------------------------------

    def step(self) -> float | None:
        """One wake; the answer is the moment of the next one that time alone will cause.

        Raises:
            MustEnd: another controller writes to the database, or that has gone back to an older
                state; this one has nothing more to do.
        """
        try:
            return self._step()
        except MustEnd as end:
            self._fail([], str(end))
            raise

    def _step(self) -> float | None:
        now = self._clock.now()
        self.changes = 0
        if now < self._retry_at:
            return self._retry_at
        if self._in_doubt is not None:
            return self._settle()
        handlers_only = self._suspect is not None
        if self._broken:
            if (why := self._read_again()) is not None:
                self._fail([] if handlers_only else self._inbox.take(now), why)
                return self._retry_at
            now = self._clock.now()  # that may have taken long, and inputs came meanwhile
        self._note_news()
        handlers_only |= self.handlers_wait.is_most or self._coordinator.must_be_alone
        inputs = [] if handlers_only else self._inbox.take(now, self._share)
        unit = self._store.unit(now, self._watch)
        work = Work(unit, self._ids, self._races, self.defects, self._share)
        self._share.begin()
        try:
            calm = self._decide(inputs, work)
            self._store.commit(work.unit)
        except CommitUnknown as error:
            self._broken = True
            self._in_doubt = _Doubt(inputs, work, calm, str(error))
            return self._settle()
        except Exception as error:
            return self._give_up(inputs, work, error)
        was_full = not self.handlers_wait and (bool(self._inbox) or not calm)
        self._share.end(now, was_full=was_full)
        return self._conclude(work, calm)

    def _conclude(self, work: Work, calm: bool) -> float:
        """Tell everybody about a wake that is stored; the answer is when the next one is due."""
        self.is_calm = calm
        self._note_commit(work, calm)
        self._perform(work)
        self._coordinator.leave(work)
        if self._inbox or self._sweeps.is_under_way or not calm:
            return work.now
        due = self._coordinator.timers.next_due()
        return self._sweeps.due_at if due is None else min(due, self._sweeps.due_at)

    def _read_again(self) -> str | None:
        """Read the mirror again, and have the modules take it over; the answer is the reason why
        that is not possible, None if it is done."""
        self._former = self._former or self._store.live
        try:
            if self.trouble is not None:
                self._store.try_to_write()  # as long as nothing can be stored, reading is in vain
            self._store.reload()
            self._build(self._former)
        except CommitFailed as error:
            return f"the change could not be stored: {error}"
        except (SQLAlchemyError, DatabaseAway) as error:
            return f"the state cannot be read: {cause_of(error)}"[:200]
        except MustEnd:
            raise
        except Exception as error:
            why = f"the state cannot be taken over: {error!r}"[:200]
            if why != self.trouble:  # once, and not each second
                log.exception("the state cannot be taken over")
            return why
        self._former, self._broken = None, False
        self.handlers_wait.forget()
        return None

    def _decide(self, inputs: list[Input], work: Work) -> bool:
        """Take the inputs and run handlers; the answer says whether these have nothing left to do.

        Raises:
            Undone: a part of the control plane failed, or made a change that cannot be stored;
                ``inputs`` are those to be taken again.
        """
        work.tell_losers()
        self._sweeps.run(work)
        if self._is_wary:
            self._try_out_sweep(work)
        self._inbox.apply(inputs, work, self.parts)
        if self._is_wary:
            self._try_out_inputs(inputs, work)
        much_waits = self._inbox.agents_are_next or not self.is_calm
        if self.handlers_wait.decide(inputs, work, much_waits=much_waits):
            return False
        return self._coordinator.run(work)

    def _try_out_sweep(self, work: Work) -> None:
        try:
            self._store.try_out(work.unit)
        except Unstorable as error:
            if not self._sweeps.blame(error, work.now):
                raise
            self._acquit()
            raise Undone from error

    def _try_out_inputs(self, inputs: list[Input], work: Work) -> None:
        try:
            self._store.try_out(work.unit)
        except Unstorable as error:
            self._find_culprit(inputs, error)
            inputs.clear()
            raise Undone from error

    def _note_commit(self, work: Work, calm: bool) -> None:
        self._races.committed()
        self._is_wary = self._is_wary and self._inbox.is_taking_again
        if self.trouble is not None:
            log.warning("changes are stored again")
            self.trouble = None
        self.changes = work.unit.size
        self._sweeps.committed(work.now)
        if self.defects.committed():
            self._sweeps.bring_forward(work.now + LOOK_AGAIN_S)
        if self._suspect is not None and calm:  # a wake without the suspect can be stored
            (suspect, why), self._suspect = self._suspect, None
            refuse(suspect, why)

    def _perform(self, work: Work) -> None:
        """Tell modules, performers and watchers about the commit, in this order."""
        tell: list[Callable[[], None]] = [partial(each.committed, work) for each in self._told]
        tell += [
            partial(performer.perform, work.effects_of(kind))
            for kind, performer in self._performers.items()
            if kind in work.effects
        ]
        if events := work.unit.events():
            tell += [partial(watcher, events) for watcher in self._watchers.values()]
        for each in tell:
            try:
                each()
            except Exception:  # a failure must not delay others; its effects come again
                log.exception("the effects of a commit were not all told")
        for kind in work.effects.keys() - self._performers.keys():
            log.error("no performer carries out effects of kind %s", kind.__name__)

    # -- when nothing was committed ------------------------------------------------------------

    def _give_up(self, inputs: list[Input], work: Work, error: Exception) -> float:
        """Decide which inputs the next wake takes after one of which nothing was written, so that
        it does not fail in the same way. The answer is the moment at which the next wake is due."""
        now = self._clock.now()
        self._broken = True
        why = f"the change could not be stored: {error}"
        if not isinstance(error, Undone | CommitFailed | MustEnd):
            log.error("a wake failed", exc_info=error)
            why = "the controller failed; its log says more"
        match error:
            case MustEnd():
                self._fail(inputs, str(error))
                raise error
            case Undone():
                self._inbox.give_back(inputs)
            case LostRace(losers=losers) if self._races.lost(losers, now):
                log.warning("the wake is taken again: %s (%s)", error, ", ".join(sorted(losers)))
                self._inbox.give_back(inputs)
            case CommitFailed() if not isinstance(error, Unstorable):
                self._fail(inputs, why)
            case Unstorable() if not self._is_wary:
                self._is_wary = True
                self._sweeps.take_again()
                self._inbox.give_back(inputs)
            case Unstorable() if self._leave_out_spoilt(work, error):
                self._inbox.give_back(inputs)
            case Unstorable() if not inputs:
                self._fail(inputs, why)
            case _ if inputs:
                self._find_culprit(inputs, error)
            case _ if self._sweeps.blame(error, now):
                self._acquit()
            case _:
                self._fail(inputs, why)
        return max(now, self._retry_at)

    def _settle(self) -> float:
        """Find out whether the wake was stored whose commit got no answer; nothing else is done
        before that is known. The answer is when the next wake is due."""
        doubt = self._in_doubt
        assert doubt is not None, "some wake is in doubt"
        try:
            was_stored = self._store.settle(doubt.work.unit)
        except (SQLAlchemyError, DatabaseAway) as error:
            self._fail([], f"a change may be stored or not: {cause_of(error)}"[:200])
            return self._retry_at
        self._in_doubt = None
        if was_stored:
            self._broken = False
            return self._conclude(doubt.work, doubt.calm)
        self._fail(doubt.inputs, f"the change could not be stored: {doubt.why}")
        return self._retry_at

    def _leave_out_spoilt(self, work: Work, error: Unstorable) -> bool:
        """Leave out the records to which handlers gave values that cannot be stored. The sweep and
        the inputs of the wake could be. The answer says whether there are such records."""
        try:
            spoilt = self._store.unstorable(work.unit)
        except CommitFailed as failure:
            log.error("it cannot be told which records cannot be stored: %s", failure)
            return False
        return self.defects.spoilt(map(work.chain, spoilt), error, work.now)

    def _find_culprit(self, inputs: list[Input], error: Exception) -> None:
        """Find out whether an input, or the state itself, makes wakes fail. An input is refused
        once it failed alone and a wake without inputs did not fail."""
        suspect = self._inbox.give_back_apart(inputs)
        if suspect is not None:
            why = MusterError(f"this cannot be carried out: {error!r}"[:1000])
            self._suspect = suspect, why

    def _acquit(self) -> None:
        """Have the suspected input, if there is one, taken again, because it was not to blame."""
        if self._suspect is not None:
            self._inbox.give_back([self._suspect[0]])
            self._suspect = None

    def _fail(self, inputs: list[Input], why: str) -> None:
        """Refuse requests and keep other inputs for later, because nothing could be written."""
        if why != self.trouble:  # once, and not each second
            log.error("nothing was committed, trying again in %s s: %s", RETRY_COMMIT_S, why)
        self._acquit()
        inputs = [*inputs, *self._inbox.take_all_given_back()]
        self._inbox.give_back([item for item in inputs if item.is_kept])
        inputs += self._inbox.take_requests()
        self._broken = True
        self.trouble = why
        self._retry_at = self._clock.now() + RETRY_COMMIT_S
        refuse_requests(inputs, NotStored(why))
