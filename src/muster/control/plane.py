"""The control plane: inputs in, one unit of work a wake, effects out.

``step`` is the whole of it: it takes what came in (requests, what agents said), lets the engine run
until nothing changes, commits once, and only then answers, acknowledges and sends. It never waits,
so a simulator can drive it under virtual time in one thread.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError

from muster.control.agent.drain import DrainAgents
from muster.control.agent.hello import Greeter
from muster.control.agent.joining import check, join
from muster.control.agent.leases import LeaseBook
from muster.control.agent.lifecycle import (
    AgentLifecycle,
    DetectLoss,
    DetectSilence,
    GrantLeases,
)
from muster.control.engine.coordinator import MAX_CHANGES, Coordinator
from muster.control.engine.work import Work
from muster.control.identity.tokens import keep_tokens
from muster.control.inbox import Asked, Inbox, Input, Said
from muster.control.job.derive import DeriveJobs, JobLifecycle
from muster.control.job.expand import ExpandJobs
from muster.control.job.settle import SettleTasks
from muster.control.requests import Requests
from muster.control.session.barrier import OpenBarriers
from muster.control.session.board import Board
from muster.control.session.facts import Facts
from muster.control.session.lifecycle import SessionLifecycle
from muster.control.session.prepare import PrepareSessions
from muster.control.session.promote import (
    DetectTermination,
    EnforceTimeout,
    PromoteToPrepared,
    PromoteToRunning,
    PromoteToTerminated,
)
from muster.control.session.schedule import ScheduleNewSessions
from muster.control.session.start import StartSessions
from muster.control.session.terminate import TerminateSessions
from muster.core.clock import Clock
from muster.core.errors import Busy, MusterError
from muster.core.ids import AgentId, IdFactory
from muster.core.states import AgentStatus
from muster.scheduling.fairness import Stay
from muster.store.live import Live
from muster.store.records import Agent
from muster.store.schema import cluster
from muster.store.store import CommitFailed, LostRace, Store, Unstorable
from muster.store.tokens import token_hash
from muster.wire.messages import (
    Acknowledge,
    AgentLink,
    Commands,
    ControllerMessage,
    Disk,
    Dismissed,
    Hello,
    JoinReply,
    JoinRequest,
    Refused,
    Reports,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
SWEEP_S = 60.0
"""How often everything is looked at, whatever was hinted (DESIGN rule 8)."""
RETRY_COMMIT_S = 1.0
REFUSED_S = 30.0
"""How long an agent's Hello is not heard after one that could not be taken."""
MOST_PUT_OFF = 2
"""How many wakes in a row may take so much in that handlers wait for the next one. After the first
of them, requests of others that came meanwhile are taken before the handlers have their turn."""
MAX_RACES = 5
"""How often in a row a wake is taken again because somebody else wrote what it was about to."""
SIT_OUT_S = 10.0
"""How long a session that lost a race is not placed: each race costs reading everything again."""


class Unavailable(MusterError):
    """The change could not be stored (the disk is full, say); nothing of it happened."""


@dataclass(slots=True)
class _Effects:
    """What may leave once the wake is committed, beside the commands of its work."""

    answers: list[tuple[Asked, Any, Exception | None]] = field(default_factory=list)
    hellos: dict[AgentId, Hello] = field(default_factory=dict)
    acknowledged: dict[AgentId, int] = field(default_factory=dict)


Events = list[tuple[str, str, str]]
"""What a commit changed: (kind, id, status)."""


class _NoLink:
    """Before the wire is there: nobody is connected, so whatever is sent is dropped."""

    def welcome(self, hello: Hello) -> None:
        pass

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        pass

    def close(self, agent: AgentId, why: str) -> None:
        pass


class ControlPlane:
    """Fills ``wire``'s AgentEvents and Gatekeeper.

    Args:
        store: state and its mirror; this is its only writer.
        hint: called when there is something to do; the driver then calls ``step`` soon.
        leases: what agents may be granted, and when they were heard; the gateway's too.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdFactory,
        hint: Callable[[], None],
        leases: LeaseBook | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._leases = leases or LeaseBook(clock)
        self._link: AgentLink = _NoLink()
        self._hint = hint
        self._inbox = Inbox()
        self._suspect: tuple[Input, MusterError] | None = None  # failed alone; is it to blame?
        self._not_heard: dict[AgentId, float] = {}  # until then
        self._watchers: dict[int, Callable[[Events], None]] = {}
        self._put_off = 0  # wakes in a row that took so much in that handlers wait for the next
        self._retry_at = 0.0
        self.trouble: str | None = None
        """Why nothing can be stored, since when it could not be; None once it is again."""
        self._broken = False  # mirror and SQL differ: it is read again before anything else
        self._races = 0  # lost since the last commit
        self._losers: dict[str, float] = {}  # of those and earlier ones, until when they sit out
        self._forgetful = False  # failures that agents told of are nowhere else: they tell again
        self._connected: set[AgentId] = set()  # said Hello on a stream that has not ended
        self._build()

    def _build(self, before: Mapping[AgentId, Agent] | None = None) -> None:
        """Derive from the mirror all that is derived; then look at everything.

        Args:
            before: the agents as they were in the mirror that was thrown away, if there was one.
        """
        live, leases = self._store.live, self._leases
        now = self._clock.now()
        for agent in live.agents.values():
            if agent.status is AgentStatus.ALIVE:  # it was heard since it was last written
                known = self._store.last_commit_at - agent.silence_s
                agent.seen_at = max(agent.seen_at, known)
            leases.publish(agent, live.groups[agent.group])
            agent.connected = agent.id in self._connected
            left_at = self._store.last_commit_at
            if before is not None and (former := before.get(agent.id)) is not None:
                agent.remember(former)
                left_at = former.left_at or now  # None: its Hello was undone
            agent.left_at = None if agent.connected else left_at
        self.board = Board(live, self._past, self._store.asked)
        sessions = SessionLifecycle(self.board)
        self._facts = Facts(sessions, self.board)
        self._greeter = Greeter(self._facts, self.board, leases)
        self.requests = Requests(self.board, sessions, self._facts)
        self._coordinator = Coordinator(
            [sessions, JobLifecycle(self.board), AgentLifecycle(self.board, leases)],
            [
                GrantLeases(leases),
                DetectSilence(leases),
                DetectLoss(self._facts, leases),
                DrainAgents(sessions),
                ExpandJobs(self.board),
                ScheduleNewSessions(self.board, sessions),
                PrepareSessions(),
                PromoteToPrepared(),
                StartSessions(self.board),
                OpenBarriers(),
                PromoteToRunning(),
                DetectTermination(),
                EnforceTimeout(),
                TerminateSessions(),
                PromoteToTerminated(),
                SettleTasks(self.board),
                DeriveJobs(sessions, self.board),
            ],
        )
        self._next_sweep = now

    def attach(self, link: AgentLink) -> None:
        """Reach agents through ``link`` from now on; before that nobody is connected."""
        self._link = link

    def _past(self, group: str, span_s: float) -> list[Stay]:
        return self._store.stays(group, self._clock.now() - span_s)

    @property
    def live(self) -> Live:
        """What is alive, agents seen when they were heard last."""
        self._note_news()
        return self._store.live

    def _note_news(self) -> None:
        agents = self._store.live.agents
        for id_, (heard_at, offset_s) in self._leases.take_news().items():
            if (agent := agents.get(id_)) is not None:
                agent.seen_at, agent.clock_offset_s = heard_at, offset_s

    # -- inputs --------------------------------------------------------------------------------

    def ask(
        self,
        action: Callable[[Work, Requests], T],
        answer: Callable[[T | None, Exception | None], None],
    ) -> None:
        """Have ``action`` run in the next wake; ``answer`` is called once that is committed.

        Raises:
            Busy: too much waits already.
        """
        self._put(Asked(action, answer))

    async def request(self, action: Callable[[Work, Requests], T], timeout_s: float = 30.0) -> T:
        """``ask``, as a coroutine.

        Raises:
            MusterError: the action refused, or could not be stored.
            TimeoutError: no wake committed it in time; it may still happen.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def answer(result: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.ask(action, answer)
        return await asyncio.wait_for(future, timeout_s)

    def _put(self, item: Input) -> None:
        self._inbox.put(item)
        self._hint()

    def watch(self, callback: Callable[[Events], None]) -> Callable[[], None]:
        """Have ``callback`` called with what each commit changed; the answer ends it."""
        key = id(callback)
        self._watchers[key] = callback
        return lambda: self._watchers.pop(key, None) and None

    # -- agents (wire.messages.AgentEvents and Gatekeeper) ---------------------------------------

    def agent_said(self, agent: AgentId, message: Hello | Reports | Disk) -> None:
        if agent not in self._store.live.agents:
            self._link.close(agent, "this agent was removed")
            return
        now = self._clock.now()
        if isinstance(message, Hello) and now < self._not_heard.get(agent, 0.0):
            self._link.close(agent, "what it said lately could not be understood; wait a while")
            return
        try:
            self._put(Said(agent, message))
        except Busy as error:
            self._link.close(agent, str(error))

    def agent_left(self, agent: AgentId) -> None:
        """It gets nothing new until it says Hello again. Its kernels are another matter: silence is
        what counts for them (rule 9)."""
        with suppress(Busy):
            self._put(Said(agent, None))

    async def join(self, request: JoinRequest) -> JoinReply:
        try:
            check(self.live, request, self._clock.now())  # a wrong one costs no wake
            agent = await self.request(lambda work, _: join(work, self.board, request))
        except MusterError as error:
            raise Refused(str(error)) from error
        return JoinReply(agent.id)

    def authenticate(self, credential: str) -> AgentId | None:
        live = self._store.live  # read on the gateway's thread
        agent = live.credentials.get(token_hash(credential))
        if agent is not None and agent not in live.agents:
            raise Dismissed("this agent was removed, or another machine has its name now")
        return agent

    # -- the wake ------------------------------------------------------------------------------

    def step(self) -> float | None:
        """One wake. The moment of the next one that time will need; None if none."""
        now = self._clock.now()
        if now < self._retry_at:
            return self._retry_at
        if self._broken:
            before = self._store.live.agents
            try:
                self._store.reload()
            except SQLAlchemyError as error:
                inputs = [] if self._suspect is not None else self._inbox.take()
                self._fail(inputs, f"the state cannot be read: {error}"[:200])
                return self._retry_at
            self._build(before)
            self._broken = False
            self._put_off = 0  # what filled the last wake is undone
            self._forgetful = True
        self._note_news()
        handlers_only = self._put_off == MOST_PUT_OFF or self._suspect is not None
        inputs = [] if handlers_only else self._inbox.take()
        work = Work(self._store.unit(now, self.board), self._ids)
        if self.trouble is not None:
            work.unit.also(update(cluster).values(value=cluster.c.value))  # is there room again?
        self._have_losers_sit_out(work)
        self._sweep_if_due(work)
        effects = _Effects()
        if not self._take_all(inputs, work, effects):
            return now
        try:
            # Whoever said Hello is told the term that a handler finds.
            full = work.unit.size > MAX_CHANGES and not work.unit.ends_something
            self._put_off = self._put_off + 1 if full and not effects.hellos else 0
            calm = not self._put_off and self._coordinator.run(work)
            self._store.commit(work.unit)
            self._races, self.trouble = 0, None
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
        if self._suspect is not None and calm:  # without it the state can be stored
            suspect, why = self._suspect
            self._suspect = None
            self._refuse(suspect, why)
        self._effect(work, effects)
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
        keep_tokens(work, since=self._next_sweep - SWEEP_S)
        self._next_sweep = work.now + SWEEP_S
        for records in (self.live.agents, self.live.jobs, self.live.sessions):
            for record in records.values():
                work.mark(record)

    def _take_all(self, inputs: list[Input], work: Work, effects: _Effects) -> bool:
        """Whether no input failed; if one did, the wake is undone, and the next one takes them
        without it. What comes after more changes than a wake should make is left to the next."""
        for position, item in enumerate(inputs):
            if work.unit.size > MAX_CHANGES:
                self._inbox.give_back(inputs[position:])
                del inputs[position:]
                break  # handlers have their turn in the next wake
            try:
                if isinstance(item, Asked):
                    self._answer(item, work, effects)
                else:
                    self._hear(item, work, effects)
            except Exception as error:
                log.exception("an input failed; the others are taken again without it")
                self._broken = True
                self._inbox.give_back(inputs[:position] + inputs[position + 1 :])
                self._refuse(item, error)
                return False
        return True

    def _answer(self, item: Asked, work: Work, effects: _Effects) -> None:
        try:
            effects.answers.append((item, item.action(work, self.requests), None))
        except MusterError as refusal:
            effects.answers.append((item, None, refusal))

    def _hear(self, item: Said, work: Work, effects: _Effects) -> None:
        agent = work.live.agents.get(item.agent)
        if agent is None:
            return
        match item.message:
            case None:
                self._connected.discard(agent.id)
                effects.hellos.pop(agent.id, None)
                agent.connected = False
                agent.left_at = work.now
                self.board.agent_changed(agent)
            case Disk():
                agent.disk_full = item.message.full
                self.board.agent_changed(agent)
            case Hello():
                # What was decided before is about what the agent held before: it is settled anew.
                work.commands.pop(agent.id, None)
                effects.acknowledged.pop(agent.id, None)
                effects.hellos[agent.id] = item.message
                self._greeter.greet(work, agent, item.message)
            case Reports():
                for report in item.message.reports:
                    try:
                        self._facts.apply(work, item.agent, report)
                    except Exception:
                        # It would fail again, and hold up all that its agent has to say.
                        log.exception("a report of agent %s is dropped: %s", item.agent, report)
                effects.acknowledged[item.agent] = item.message.last_seq

    def _effect(self, work: Work, effects: _Effects) -> None:
        """What is committed may be known: to agents, to those who asked, to those who watch."""
        for record in work.unit.touched[Agent]:
            self._leases.publish(record, work.live.groups[record.group])
            if record.status is not AgentStatus.ALIVE:
                self._link.close(record.id, "say hello again")
        self._connected.update(effects.hellos)
        if self._forgetful:
            self._forgetful = False
            for agent in self._connected - effects.hellos.keys():
                self._link.close(agent, "say hello again")
        for agent, hello in effects.hellos.items():
            self._link.welcome(hello)
            if (renewal := self._leases.answer(agent, hello.sent_s)) is not None:
                self._link.send(agent, renewal)
        for agent, commands in work.commands.items():
            self._link.send(agent, Commands(tuple(commands)))
        for agent, seq in effects.acknowledged.items():
            self._link.send(agent, Acknowledge(seq))
        for request, result, refusal in effects.answers:
            request.answer(result, refusal)
        events = work.unit.events()
        if events:
            for watcher in list(self._watchers.values()):
                watcher(events)

    def _take_again(self, inputs: list[Input], race: LostRace) -> float:
        """Nothing was written, because somebody else wrote first: what lost sits out the next wake,
        which reads everything again; all other inputs are taken as if nothing had happened."""
        log.warning("the wake is taken again: %s (%s)", race, ", ".join(sorted(race.losers)))
        now = self._clock.now()
        self._races += 1
        self._losers |= dict.fromkeys(race.losers, now + SIT_OUT_S)
        self._broken = True
        self._inbox.give_back(inputs)
        return now

    def _have_losers_sit_out(self, work: Work) -> None:
        """What was submitted in a wake that is taken again gets another id: so from the second race
        on, whatever the wake makes sits it out as well."""
        if not self._losers:
            return
        self._losers = {name: until for name, until in self._losers.items() if until > work.now}
        work.sit_out = self._losers
        work.new_sit_out = self._races > 1
        if self._races:
            work.tell_losers()

    def _find_culprit(self, inputs: list[Input], error: Exception) -> None:
        """Nothing was written, and it would fail again: an input, or the state itself, cannot be
        taken or stored. An input is refused once it failed alone and a wake without any input did
        not fail; the others are taken as if nothing had happened."""
        self._broken = True
        suspect = self._inbox.give_back_apart(inputs)
        if suspect is not None:
            why = MusterError(f"this cannot be carried out: {error!r}"[:1000])
            self._suspect = suspect, why

    def _refuse(self, item: Input, error: Exception) -> None:
        """Tell who sent what cannot be taken; it is not taken again."""
        match item:
            case Asked():
                item.answer(None, error)
            case Said(message=Reports(last_seq=seq)):
                log.warning("a report of agent %s is dropped: %.1000r", item.agent, item.message)
                self._link.send(item.agent, Acknowledge(seq))
                self._link.close(item.agent, "a report of it could not be taken, and is dropped")
            case Said(message=Hello()):
                self._not_heard[item.agent] = self._clock.now() + REFUSED_S
                self._link.close(item.agent, "what it said could not be understood")
            case Said(message=None):
                self._connected.discard(item.agent)
            case Said():
                self._link.close(item.agent, "what it said could not be understood")

    def _fail(self, inputs: list[Input], why: str) -> None:
        """Nothing was written: refuse the requests; what agents said is taken again later."""
        log.error("nothing was committed, trying again in %s s: %s", RETRY_COMMIT_S, why)
        if self._suspect is not None:  # it was not to blame
            self._inbox.give_back([self._suspect[0]])
            self._suspect = None
        inputs = [*inputs, *self._inbox.take_all_given_back()]
        self._inbox.give_back([item for item in inputs if isinstance(item, Said)])
        self._broken = True
        self.trouble = why
        self._retry_at = self._clock.now() + RETRY_COMMIT_S
        refusal = Unavailable(why)
        for item in inputs:
            if isinstance(item, Asked):
                item.answer(None, refusal)
