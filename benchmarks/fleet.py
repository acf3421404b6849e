"""The control plane in this process, in real time, with agents that do at once what they are told.

Everything is the product's but for the agents, the wire to them, and HTTP: inputs, wakes, commits
and the pauses between them are those of a controller.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine

from muster.app.checkpoints import keep_checkpointing
from muster.app.driver import Driver
from muster.control.agent.desk import AgentDesk
from muster.control.agent.joining import join
from muster.control.agent.leases import LeaseBook
from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import create_open_join_token
from muster.control.inbox import Inbox
from muster.control.modules import cluster_entities, cluster_modules
from muster.control.plane import ControlPlane
from muster.core.clock import Clock, SteadyClock
from muster.core.ids import AgentId, IdFactory
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import ScalingGroup
from muster.store.store import Store
from muster.wire.calls import (
    JoinRequest,
)
from muster.wire.messages import (
    Acknowledge,
    Command,
    Commands,
    ControllerMessage,
    HealthNoted,
    Heartbeat,
    Hello,
    KernelReport,
    Prepare,
    Renew,
    ReportKind,
    Reports,
    Start,
    Stop,
)

ADA = Principal(Owner("default", "default", "ada"), Role.USER)
ROOM = Resources(cpu_milli=16_000, memory_bytes=64 << 30)
"""Of each agent."""
GROUP = ScalingGroup(name="default", backlog_window=0)
"""Agents that do everything at once have no use for a backlog."""
LIMIT_S = 3600.0


@dataclass(eq=False, slots=True)
class FleetAgent:
    """``reports`` are those of its ``sent`` ones that are not sent yet."""

    id: AgentId
    sent: int = 0
    reports: list[KernelReport] = field(default_factory=list)
    renewed_s: float = 0.0


class Fleet:
    """Agents without machines: control's link to them, and what they say.

    Args:
        run_s: how long kernels run; None is for ever, until they are told to stop.
    """

    def __init__(self, desk: AgentDesk, leases: LeaseBook, clock: Clock) -> None:
        self.run_s: float | None = 0.0
        self.agents: dict[AgentId, FleetAgent] = {}
        self._desk = desk
        self._leases = leases
        self._clock = clock
        self._talkative: dict[FleetAgent, None] = {}
        self._heartbeat_s = 1.0

    def connect(self, id_: AgentId) -> None:
        """Have an agent that has joined say Hello."""
        agent = self.agents[id_] = FleetAgent(id_)
        hello = Hello(
            agent=id_,
            name=id_,
            group="default",
            boot_id="boot",
            version="0",
            host="127.0.0.1",
            capacity=ROOM,
            devices=(),
            attributes={},
            kernels=(),
            sent_s=self._clock.now(),
            time_s=self._clock.now(),
        )
        renewal = self._leases.admit(hello, beside=False)
        if renewal is not None:
            agent.renewed_s = renewal.sent_s
        self._desk.agent_said(id_, hello)

    async def beat(self) -> None:
        """Send the heartbeats of all agents, for as long as nobody cancels this."""
        while True:
            await asyncio.sleep(self._heartbeat_s)
            now = self._clock.now()
            for agent in self.agents.values():
                renewal = self._leases.renew(agent.id, Heartbeat(now, agent.renewed_s, now))
                if renewal is not None:
                    self.send(agent.id, renewal)

    # -- wire.AgentLink --------------------------------------------------------------------------

    def welcome(self, hello: Hello) -> None:
        pass  # each agent has one stream only

    def close(self, agent: AgentId, why: str) -> None:
        if agent in self.agents:
            raise RuntimeError(f"the stream of agent {agent} was closed: {why}")

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        match message:
            case Commands(commands):
                for command in commands:
                    self._obey(self.agents[agent], command)
            case Renew(sent_s=sent_s, heartbeat_s=heartbeat_s):
                self.agents[agent].renewed_s = sent_s
                self._heartbeat_s = heartbeat_s
            case Acknowledge() | HealthNoted():
                pass  # nothing is ever sent again

    def _obey(self, agent: FleetAgent, command: Command) -> None:
        match command:
            case Prepare():
                self._report(agent, command, ReportKind.PREPARED)
            case Start():
                self._report(agent, command, ReportKind.STARTED)
                if self.run_s is not None:
                    loop = asyncio.get_running_loop()
                    loop.call_later(self.run_s, self._exit, agent, command)
            case Stop():
                stopped = ReasonCode.STOPPED
                self._report(agent, command, ReportKind.ENDED, signal=15, reason=stopped)

    def _exit(self, agent: FleetAgent, started: Start) -> None:
        exited = ReasonCode.EXITED
        self._report(agent, started, ReportKind.ENDED, exit_code=0, reason=exited)

    def _report(self, agent: FleetAgent, on: Command, kind: ReportKind, **facts: Any) -> None:
        report = KernelReport(on.kernel, on.generation, kind, self._clock.now(), **facts)
        agent.reports.append(report)
        if not self._talkative:
            asyncio.get_running_loop().call_soon(self._say)
        self._talkative[agent] = None

    def _say(self) -> None:
        talkative, self._talkative = self._talkative, {}
        for agent in talkative:
            agent.sent += len(agent.reports)
            reports, agent.reports = tuple(agent.reports), []
            self._leases.heard(agent.id)
            self._desk.agent_said(agent.id, Reports(agent.sent, reports))


class Cluster:
    """A control plane on a database, and its agents.

    Args:
        engine: of the database, which may hold the state of an earlier control plane.
    """

    def __init__(self, engine: Engine) -> None:
        clock = SteadyClock()
        self._engine = engine
        self._driver = Driver(clock)
        self._store = Store(engine, cluster_entities())
        inbox, leases = Inbox(self._driver.hint), LeaseBook(clock)
        self._desk = AgentDesk(self._store, clock, leases, inbox)
        modules = cluster_modules(self._desk, leases, Surroundings(engine, inbox.put))
        ids = IdFactory(clock, random.Random(clock.now()))
        self.plane = ControlPlane(self._store, clock, ids, inbox, modules)
        self.fleet = self._desk.link = Fleet(self._desk, leases, clock)

    @asynccontextmanager
    async def running(self, agents: int) -> AsyncIterator[None]:
        """Have the control plane run, with so many new agents connected."""
        driving = asyncio.create_task(self._driver.run(self.plane))
        beating = asyncio.create_task(self.fleet.beat())
        checkpointing = asyncio.create_task(keep_checkpointing(self.plane, self._engine))
        try:
            await self.plane.request(
                lambda work, parts: parts[GroupRequests].put_group(work, GROUP)
            )
            for number in range(agents):
                self.fleet.connect(await self.plane.request(_joining(f"agent-{number}")))
            await self.until(lambda: len(self._desk.connected) == agents)
            yield
        finally:
            self._driver.stop()
            beating.cancel()
            checkpointing.cancel()
            await asyncio.gather(driving, beating, checkpointing, return_exceptions=True)

    async def until(self, is_over: Callable[[], bool]) -> None:
        """Let it work until a condition holds, which is looked at after each commit.

        Raises:
            TimeoutError: it does not within LIMIT_S.
        """
        changed = asyncio.Event()
        end = self.plane.watch(lambda _: changed.set())
        try:
            async with asyncio.timeout(LIMIT_S):
                while not is_over():
                    changed.clear()
                    await changed.wait()
        finally:
            end()

    def close(self) -> None:
        self.plane.close()
        self._store.close()


def _joining(name: str) -> Callable[[Work, Parts], AgentId]:
    def action(work: Work, parts: Parts) -> AgentId:
        token = create_open_join_token(work, "root")
        request = JoinRequest(token, name, GROUP.name, name.ljust(40, "-"))
        return join(work, parts[AgentLifecycle], request).id

    return action
