"""The agents' desk: agents' messages come in here, and control's messages to them go out.

It is the border between the gateway's thread and the control plane, and decides nothing about
kernels: Hellos go to ``hello``, reports to ``control.session.kernel_reports``. It is the wire's
``AgentEvents`` and ``Gatekeeper``. A message of an agent is an input of the next
wake; a message to an agent is an effect of a committed wake.
"""

import logging
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from muster.control.agent.health_reports import HealthReports
from muster.control.agent.hello import Greeter
from muster.control.agent.joining import JoinRefused, check, join
from muster.control.agent.leases import LeaseBook
from muster.control.agent.letters import Letters
from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.agent.pace import Pace
from muster.control.agent.probe_reports import ProbeReports
from muster.control.engine.effects import Performer
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.inbox import Inbox
from muster.control.session.cluster.state import ClusterState
from muster.control.session.kernel_reports import KernelReports
from muster.control.session.removed_files import RemovedFiles
from muster.control.tell_agent import CloseStream, TellAgent
from muster.core.clock import Clock
from muster.core.errors import Busy, LimitExceeded, MusterError, NotFound
from muster.core.ids import AgentId
from muster.core.serving.port_holders import PortOrders, PortsSeen
from muster.core.states import AgentStatus
from muster.store.live import Live
from muster.store.records import Agent
from muster.store.store import Store
from muster.store.tokens import token_hash
from muster.wire.calls import (
    AgentTurnedAway,
    Dismissed,
    JoinReply,
    JoinRequest,
    NotNow,
)
from muster.wire.messages import (
    Acknowledge,
    AgentLink,
    Commands,
    ControllerMessage,
    Disk,
    FilesRemoved,
    HealthNoted,
    HealthSeen,
    Hello,
    NewsOfAgent,
    ProbeOrders,
    ProbesSeen,
    ReportKind,
    Reports,
)

log = logging.getLogger(__name__)

REFUSED_S = 30.0
"""Seconds for which further Hellos of an agent are ignored after one that could not be applied."""
HEALTH_AT_ONCE = 8
"""Messages about its health that an agent is heard with at once."""
HEALTH_AGAIN_S = 2.0
"""Seconds after which an agent that has used them up is heard with one more."""
MAX_FOREIGN = 100
"""Reports about kernels of other agents that may come on one stream."""
MAX_IDLE, IDLE_AGAIN_S = 20_000, 0.0002
"""Reports of an agent that tell nothing new, at once, and seconds for each further one."""
REPORTS_IN_ONE = 100
"""Reports that are one input: between two inputs a wake may end."""
NOT_UNDERSTOOD = "what it said could not be understood"


class NoLink:
    """The link before the wire exists: nobody is connected, so messages are dropped."""

    def welcome(self, hello: Hello) -> None:
        pass

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        pass

    def close(self, agent: AgentId, why: str) -> None:
        pass


class AgentDesk:
    """The wire's AgentEvents and Gatekeeper.

    ``connected`` are the agents that said Hello on a stream that has not ended.
    """

    def __init__(self, store: Store, clock: Clock, leases: LeaseBook, inbox: Inbox) -> None:
        self._store = store
        self._clock = clock
        self._leases = leases
        self._inbox = inbox
        self.link: AgentLink = NoLink()
        self.connected: set[AgentId] = set()
        self._not_heard: dict[AgentId, tuple[float, str]] = {}  # until then, and why
        self._unheard: Set[AgentId] | None = None  # counted at most once a wake
        self._woke_boot_s = clock.boot_s()  # when this wake, or the last one, began
        self._paces = {
            HealthSeen: Pace(clock, HEALTH_AT_ONCE, HEALTH_AGAIN_S),
            ProbesSeen: Pace(clock, at_once=20, again_s=0.1),
            PortsSeen: Pace(clock, at_once=20, again_s=0.1),
            FilesRemoved: Pace(clock, at_once=20, again_s=0.1),
        }
        self._forgetful = False  # reported failures are not stored: agents have to repeat them
        self._idle_reports = Pace(clock, MAX_IDLE, IDLE_AGAIN_S)
        self.performers = (_Talk(self), _Closing(self))

    # -- what agents say -----------------------------------------------------------------------

    def agent_said(self, agent: AgentId, message: NewsOfAgent) -> None:
        if agent not in self._store.live.agents:
            self.link.close(agent, "this agent was removed")
            return
        pace = self._paces.get(type(message))
        if pace is not None and not pace.allows(agent):
            return
        now = self._clock.now()
        until, why = self._not_heard.get(agent, (0.0, ""))
        if isinstance(message, Hello) and now < until:
            self.link.close(agent, f"{why}; it is not heard again for a while")
            return
        try:
            for part in _parts(message):
                self._inbox.put(Said(self, agent, part))
        except Busy as error:
            self.link.close(agent, str(error))

    def agent_left(self, agent: AgentId) -> None:
        """The agent's stream ended: it gets no new work until it says Hello again. For its kernels
        only its silence counts (design: Silence is not failure)."""
        with suppress(Busy):
            self._inbox.put(Said(self, agent, None))

    async def join(self, request: JoinRequest) -> JoinReply:
        try:
            check(self._store.live, request, self._clock.now())  # a wrong request costs no wake
            agent = await self._inbox.request(
                lambda work, parts: join(work, parts[AgentLifecycle], request)
            )
        except (JoinRefused, NotFound) as error:
            raise AgentTurnedAway(str(error)) from error
        except MusterError as error:
            raise NotNow(str(error)) from error
        return JoinReply(agent.id)

    def authenticate(self, credential: str) -> AgentId | None:
        live = self._store.live  # read on the gateway's thread
        agent = live.credentials.get(token_hash(credential))
        if agent is not None and agent not in live.agents:
            raise Dismissed("this agent was removed, or another machine has its name now")
        return agent

    def unheard(self) -> Set[AgentId]:
        """The agents that have said something that waits for a later wake."""
        if self._unheard is None:
            said = (each for each in self._inbox.waiting() if isinstance(each, Said))
            self._unheard = {each.agent for each in said if each.message is not None}
        return self._unheard

    def hear(self, work: Work, parts: Parts, said: "Said") -> None:
        """Apply an agent's message to the wake's work."""
        if said.message is None:
            self.connected.discard(said.agent)
        agent = work.live.agents.get(said.agent)
        if agent is None or agent.status is AgentStatus.REMOVED:
            return  # its stream is closed with the commit
        match said.message:
            case None:
                work.emit(TellAgent(agent.id, None))
                agent.connected = False
                agent.left_at = work.now
                parts[ClusterState].agent_changed(agent)
            case Disk(full=full):
                agent.disk_full = full
                parts[ClusterState].agent_changed(agent)
            case Hello() as hello:
                work.emit(TellAgent(agent.id, hello))
                parts[Greeter].greet(work, agent, hello)
                parts[ProbeReports].greeted(work, agent)
                work.must_be_whole = True  # the answer holds a term that a handler computes
            case HealthSeen() as seen:
                parts[HealthReports].hear(work, agent, seen)
                if seen.sightings:
                    work.emit(TellAgent(agent.id, HealthNoted(seen.sightings[-1].seq)))
            case ProbesSeen(results):
                parts[ProbeReports].heard(work, agent, results)
            case PortsSeen(ports):
                parts[ProbeReports].ports_seen(work, agent, ports)
            case FilesRemoved(removals):
                parts[RemovedFiles].hear(work, agent.id, removals)
            case Reports() as batch:
                self._hear_reports(work, parts[KernelReports], agent, batch)

    def _hear_reports(
        self, work: Work, reports: KernelReports, agent: Agent, batch: Reports
    ) -> None:
        """Apply reports, unless the agent has shown that its reports are not worth it: it reports
        kernels of others, or tells the same again and again."""
        if agent.foreign_reports > MAX_FOREIGN:
            return
        size = work.unit.size
        for report in batch.reports:
            reports.apply(work, agent.id, report)
            if report.kind is ReportKind.ENDED:
                work.emit(TellAgent(agent.id, (report.kernel, report.generation)))
        work.emit(TellAgent(agent.id, Acknowledge(batch.last_seq)))
        is_idle = work.unit.size == size
        if agent.foreign_reports > MAX_FOREIGN:
            why = f"it reported kernels of other agents {agent.foreign_reports} times"
            work.emit(CloseStream(agent.id, why))
        elif is_idle and not self._idle_reports.allows(agent.id, len(batch.reports)):
            why = "its reports tell nothing new, and are too many"
            work.emit(CloseStream(agent.id, why))

    def close(self, agent: AgentId, why: str) -> None:
        """End an agent's stream, and hear no Hello of it for a while."""
        now = self._clock.now()
        lately = {id_: each for id_, each in self._not_heard.items() if each[0] > now}
        self._not_heard = {**lately, agent: (now + REFUSED_S, why)}
        self.link.close(agent, why)

    def refuse(self, said: "Said", error: Exception) -> None:
        """Give up a message that cannot be applied. Its agent says Hello again and tells all
        kernels that it holds, which makes up for a dropped report. It is told the limit that it
        exceeds, but nothing about a defect of the controller."""
        agent = said.agent
        why = str(error) if isinstance(error, LimitExceeded) else NOT_UNDERSTOOD
        match said.message:
            case Reports(last_seq=seq):
                log.warning("a report of agent %s is dropped: %.1000r", agent, said.message)
                self.link.send(agent, Acknowledge(seq))
                self.link.close(agent, "a report of it could not be taken, and is dropped")
            case Hello():
                self.close(agent, why)
            case None:
                self.connected.discard(agent)
            case ProbesSeen() | FilesRemoved():
                said_of = type(said.message).__name__
                log.warning("%s of agent %s is dropped: %s", said_of, agent, error)
            case _:
                self.link.close(agent, why)

    # -- after the mirror was read, and after a commit -----------------------------------------

    def begin(self, live: Live, before: Live | None) -> None:
        """Derive again the facts about agents that are not stored, after the mirror was read.

        Args:
            live: the mirror.
            before: the mirror that was thrown away, if there was one.
        """
        now = self._clock.now()
        for agent in live.agents.values():
            if agent.status is AgentStatus.ALIVE:  # it was heard after its row was last written
                known = self._store.last_commit_at - agent.silence_s
                agent.seen_at = max(agent.seen_at, known)
                agent.seen_known = False
            self._leases.publish(agent, live.groups[agent.group])
            agent.connected = agent.id in self.connected
            left_at = self._store.last_commit_at
            if before is not None and (former := before.agents.get(agent.id)) is not None:
                agent.remember(former)
                left_at = former.left_at or now  # None: its Hello was undone
            agent.left_at = None if agent.connected else left_at
        self._forgetful = before is not None

    def committed(self, work: Work) -> None:
        """Publish committed agents to the book of leases, and end streams that are over. A commit
        that wrote something has checked the fence."""
        if not work.unit.empty:
            self._leases.confirm_charge(self._woke_boot_s)
        for agent in work.unit.touched[Agent]:
            self._leases.publish(agent, work.live.groups[agent.group])
            if agent.status is not AgentStatus.ALIVE:
                self.link.close(agent.id, "say hello again")
        if self._forgetful:
            self._forgetful = False
            told = Letters.of(work.effects_of(TellAgent))
            greeted = {id_ for id_, letters in told.items() if letters.hello is not None}
            for id_ in self.connected - greeted:
                self.link.close(id_, "say hello again")

    def sweep(self) -> None:
        """Publish all agents again, and end streams that are over: this makes up for calls of
        ``committed`` that failed."""
        live = self._store.live
        self._leases.forget_all_but(live.agents)
        for pace in (*self._paces.values(), self._idle_reports):
            pace.forget_all_but(live.agents)
        for agent in live.agents.values():
            self._leases.publish(agent, live.groups[agent.group])
        alive = {agent.id for agent in live.agents.values() if agent.status is AgentStatus.ALIVE}
        for id_ in self.connected - alive:
            self.link.close(id_, "say hello again")

    def catch_up(self) -> None:
        """Note when agents were heard: a heartbeat counts from its arrival, however late control
        looks at it."""
        self._unheard, self._woke_boot_s = None, self._clock.boot_s()
        agents = self._store.live.agents
        for id_, (heard_at, offset_s) in self._leases.take_news().items():
            if (agent := agents.get(id_)) is not None:
                agent.seen_at, agent.clock_offset_s = heard_at, offset_s
                agent.seen_known = True

    def deliver(self, agent: AgentId, letters: Letters) -> None:
        if (hello := letters.hello) is not None:
            renewal = self._leases.answer(agent, hello.sent_s)
            if renewal is None:  # kernels that it started now would run without an end
                self.link.close(agent, "no lease can be granted now: say hello again")
                return
            self.connected.add(agent)
            self.link.welcome(hello)
            self.link.send(agent, renewal)
        if letters.commands:
            commands = chain.from_iterable(letters.commands.values())
            self.link.send(agent, Commands(tuple(commands)))
        if letters.acknowledged is not None:
            self.link.send(agent, letters.acknowledged)
        if letters.noted is not None:
            self.link.send(agent, letters.noted)
        if letters.orders:
            self.link.send(agent, ProbeOrders(tuple(letters.orders.values())))
        if letters.ports:
            self.link.send(agent, PortOrders(tuple(letters.ports.values())))


@dataclass(slots=True, eq=False)
class Said(Input):
    """A message of an agent; None says that its stream ended."""

    desk: AgentDesk
    agent: AgentId
    message: NewsOfAgent | None

    @property
    def amount(self) -> int:
        match self.message:
            case Reports(reports=told) | Hello(kernels=told) | ProbesSeen(results=told):
                return 1 + len(told)
            case PortsSeen(ports=seen):
                return 1 + len(seen)
            case FilesRemoved(removals):
                return 1 + len(removals)
            case _:
                return 1

    @property
    def can_wait(self) -> bool:
        """Whether it tells of begun work alone: the end of a short task follows at once."""
        if not isinstance(self.message, Reports):
            return False
        return all(each.kind is ReportKind.STARTED for each in self.message.reports)

    def take(self, work: Work, parts: Parts) -> None:
        self.desk.hear(work, parts, self)

    def refuse(self, error: Exception) -> None:
        self.desk.refuse(self, error)

    def apart(self) -> Sequence[Input]:
        """The reports of one message as messages of their own."""
        if not isinstance(self.message, Reports) or not self.message.reports:
            return (self,)
        return [replace(self, message=part) for part in _cut(self.message, 1)]


def _parts(message: NewsOfAgent) -> Sequence[NewsOfAgent]:
    """A message, or if it has many reports, several that say the same."""
    if isinstance(message, Reports) and len(message.reports) > REPORTS_IN_ONE:
        return _cut(message, REPORTS_IN_ONE)
    return (message,)


def _cut(batch: Reports, size: int) -> Sequence[Reports]:
    """The reports of a batch, which are numbered one after the other, in several of ``size``."""
    first_seq = batch.last_seq - len(batch.reports)
    ends = [*range(size, len(batch.reports), size), len(batch.reports)]
    return [
        Reports(first_seq + end, batch.reports[begin:end]) for begin, end in pairwise([0, *ends])
    ]


class _Closing(Performer[CloseStream]):
    kind = CloseStream

    def __init__(self, desk: AgentDesk) -> None:
        self._desk = desk

    def perform(self, effects: Sequence[CloseStream]) -> None:
        for agent, why in dict(effects).items():
            self._desk.close(agent, why)


class _Talk(Performer[TellAgent]):
    kind = TellAgent

    def __init__(self, desk: AgentDesk) -> None:
        self._desk = desk

    def perform(self, effects: Sequence[TellAgent]) -> None:
        for agent, letters in Letters.of(effects).items():
            self._desk.deliver(agent, letters)
