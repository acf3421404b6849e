"""A small world under virtual time: the real control plane, agents that are driven, one thread."""

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from proving.hollow.found_twins import found_twins
from proving.hollow.performers.late_calls import FoundTwin
from proving.hollow.performers.notices import NO_FAULTS, Faults, HollowSender
from proving.hollow.performers.providers import Farm, HollowMachine, HollowProviders
from proving.hollow.performers.rebooting import HollowRebooter
from proving.hollow.supervisor import Behaviour, Run
from proving.hollow.virtual_clock import VirtualClock
from tests.control.driven_agent import ALL, DrivenAgent
from tests.databases import open_unsynced, url_at

from muster.control.agent.desk import AgentDesk
from muster.control.agent.joining import JoinRefused, NameNotFree, join
from muster.control.agent.leases import LeaseBook
from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.engine.declared import SomePerformer
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import EntityModule, Module, Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import create_open_join_token
from muster.control.inbox import Inbox
from muster.control.job.requests import JobRequests
from muster.control.modules import ENTITY_MODULES, cluster_entities, cluster_modules
from muster.control.plane import ControlPlane
from muster.control.pool.records import Pool, Slice
from muster.control.pool.requests import PoolRequests
from muster.control.session.admission import Ended
from muster.control.session.cluster.state import ClusterState
from muster.control.session.requests import SessionRequests
from muster.core.ids import AgentId, IdFactory
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Device, Resources
from muster.core.specs import JobSpec, ScalingGroup, SessionSpec
from muster.core.specs.pool import PoolSpec
from muster.core.states import JobState
from muster.store.queries.dependencies import read_ended
from muster.store.records import Agent, Job, Session
from muster.store.store import Store
from muster.wire.calls import (
    JoinRequest,
)
from muster.wire.messages import (
    ControllerMessage,
    Hello,
    Renew,
)

ADA = Principal(Owner("default", "default", "ada"), Role.USER)
ROOT = Principal(Owner("default", "default", "root"), Role.ADMIN)
BOB = Principal(Owner("default", "default", "bob"), Role.USER)

START_S = 0.01
"""How long a controller takes to start."""


class World:
    """Control and agents in one thread; ``run`` moves time from event to event.

    ``channels`` is where notices go, ``more`` are modules beside the product's; of those of
    ``entity_modules``, the world makes the tables that are not there.
    ``uids`` is the range from which users are given uids.
    ``drips`` has each agent send what it reports one by one, each in a wake of its own.
    """

    def __init__(
        self,
        path: Path,
        agents: Mapping[str, Resources],
        *,
        gpus: Mapping[str, int] | None = None,
        group: ScalingGroup | None = None,
        behaviour: Behaviour = lambda start: Run(),
        seed: int = 1,
        channels: Faults = NO_FAULTS,
        more: Sequence[Module] = (),
        stand_ins: Sequence[SomePerformer] = (),
        entity_modules: Sequence[type[EntityModule]] = ENTITY_MODULES,
        uids: range | None = None,
    ) -> None:
        self.path = path
        self.uids = uids
        self._more = more
        self._stand_ins = stand_ins
        self._entity_modules = entity_modules
        self.clock = VirtualClock()
        self.ids = IdFactory(self.clock, random.Random(seed))
        self.behaviour = behaviour
        self.agents: dict[AgentId, DrivenAgent] = {}
        self.outgoing: list[tuple[AgentId, ControllerMessage]] = []
        self.closed: list[tuple[AgentId, str]] = []
        self.greeted: dict[AgentId, Hello] = {}  # the first message of each current stream
        self.welcome: set[AgentId] = set()  # those whose current stream's Hello control has heard
        self.drips = False
        self._expects_defects = False
        self._credentials = itertools.count(1)
        self.boot_id = self.machine = ""  # of the controller's machine
        self.in_charge_s = math.inf  # how long it renews leases if nobody confirms its charge
        self.channels = HollowSender(
            self.clock, lambda outcome: self.inbox.put(outcome), seed, channels
        )
        self.farm = Farm(self.clock, self._booted, self._gone, seed)
        self.rebooter = HollowRebooter(
            self.clock, self._reboot, lambda outcome: self.inbox.put(outcome), seed
        )
        self._open()
        spec = group or ScalingGroup(name="default")
        self.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
        for name, capacity in agents.items():
            self.add_agent(name, capacity, (gpus or {}).get(name, 0))

    def expect_defects(self) -> None:
        """Say that handlers, or other parts of modules, are to fail here."""
        self._expects_defects = True

    def check_defects(self) -> None:
        """
        Raises:
            AssertionError: a part of a module failed, and no test said that it would.
        """
        defects = self.plane.defects
        assert self._expects_defects or not defects.count, defects.last

    def _open(self) -> None:
        engine = open_unsynced(url_at(self.path))
        for entity in chain.from_iterable(each.entities for each in self._entity_modules):
            entity.rows.table.create(engine, checkfirst=True)
        self.store = Store(engine, cluster_entities(self._entity_modules))
        former_s = self.in_charge_s if math.isfinite(self.in_charge_s) else 0.0
        self.leases = LeaseBook(self.clock, self.boot_id, self.machine, self.in_charge_s, former_s)
        self.inbox = Inbox()
        self.desk = AgentDesk(self.store, self.clock, self.leases, self.inbox)
        surroundings = Surroundings(engine, self.inbox.put, self.path, uids=self.uids)
        self.modules = [
            *cluster_modules(self.desk, self.leases, surroundings, self._entity_modules),
            *self._more,
        ]
        self.providers = HollowProviders(self.farm, engine, self.inbox.put)
        self.twins = found_twins(self.clock, self.inbox.put)
        stand_ins: list[SomePerformer] = [
            self.channels,
            self.rebooter,
            *self.providers.performers,
            *self.twins,
            *self._stand_ins,
        ]
        with ExitStack() as stack:
            stack.callback(self.store.close)
            self.plane = ControlPlane(
                self.store, self.clock, self.ids, self.inbox, self.modules, stand_ins
            )
            stack.pop_all()  # the state was taken over
        self.desk.link = Link(self)

    @property
    def _outside(
        self,
    ) -> Sequence[HollowSender | HollowProviders | HollowRebooter | Farm | FoundTwin]:
        return self.channels, self.providers, self.rebooter, self.farm, *self.twins

    @property
    def cluster(self) -> ClusterState:
        return self.plane.parts[ClusterState]

    def restart_controller(self, away_s: float = 0.0) -> None:
        """kill -9, and after a while a new one on the same database; what was on its way is lost.
        Numbers of history count microseconds, so its start takes some."""
        self.check_defects()
        self.store.close()
        self.clock.advance(max(away_s, START_S))
        self.outgoing.clear()
        self.greeted.clear()
        self.welcome.clear()
        self._open()
        for agent in self.agents.values():
            agent.tick()
            if agent.online:
                self.connect(agent)

    def close(self) -> None:
        """
        Raises:
            AssertionError: see ``check_defects``.
        """
        self.store.close()
        self.check_defects()

    # -- moving ----------------------------------------------------------------------------------

    def add_agent(
        self,
        name: str,
        capacity: Resources,
        gpus: int = 0,
        attributes: Mapping[str, str] | None = None,
        group: str = "default",
        model: str = "H100",
    ) -> DrivenAgent:
        devices = tuple(Device(index, model) for index in range(gpus))
        return self._run_agent(self.join(name, group=group), capacity, devices, attributes or {})

    def _run_agent(
        self,
        record: Agent,
        capacity: Resources,
        devices: tuple[Device, ...],
        attributes: Mapping[str, str],
    ) -> DrivenAgent:
        agent = DrivenAgent(
            record.id,
            record.name,
            self.clock,
            capacity,
            devices,
            lambda start: self.behaviour(start),
            attributes,
            record.group,
        )
        self.agents[record.id] = agent
        self.connect(agent)
        return agent

    # -- machines of pools -------------------------------------------------------------------------

    def apply(self, spec: PoolSpec) -> Pool:
        """Make a pool, or change it."""
        pool: Pool = self.ask(lambda work, parts: parts[PoolRequests].apply(work, ROOT, spec))
        return pool

    def slices(self, pool: str | None = None) -> list[Slice]:
        """The slices that are not gone, the oldest first."""
        found = self.plane.live.of(Slice).values()
        return [each for each in found if pool in (None, each.pool)]

    def _booted(self, machine: HollowMachine) -> None:
        """A machine of the farm is up: an agent of its shape joins."""
        shape = machine.spec.machine
        try:
            record = self.join(machine.name, machine.token, group=machine.spec.group)
        except (JoinRefused, NameNotFree):  # its slice is not wanted any more
            return
        self._run_agent(record, shape.capacity(0), shape.devices, {})

    def _reboot(self, agent_id: AgentId) -> bool:
        """The machine of an agent is told to reboot, from outside."""
        agent = self.agents.get(agent_id)
        if agent is not None:
            agent.asked_to_reboot = True
        return agent is not None

    def _gone(self, machine: HollowMachine) -> None:
        for agent in list(self.agents.values()):
            if agent.name == machine.name:
                agent.online = False
                self.greeted.pop(agent.id, None)
                self.desk.agent_left(agent.id)
                del self.agents[agent.id]

    def join(
        self,
        name: str,
        token: str | None = None,
        credential: str | None = None,
        group: str = "default",
    ) -> Agent:
        """Join as ``ControlPlane.join`` does in its wake; with a token for all if none is given.

        Raises:
            MusterError: refused.
        """
        if token is None:
            token = self.ask(lambda work, _: create_open_join_token(work, "root"))
        credential = credential or f"credential-{next(self._credentials)}".ljust(40, "-")
        request = JoinRequest(token, name, group, credential)
        record: Agent = self.ask(lambda work, parts: join(work, parts[AgentLifecycle], request))
        assert self.desk.authenticate(credential) == record.id
        return record

    def agent(self, name: str) -> DrivenAgent:
        return next(agent for agent in self.agents.values() if agent.name == name)

    def only_session(self) -> Session:
        """The one session that has not ended."""
        (session,) = self.plane.live.sessions.values()
        return session

    def connect(self, agent: DrivenAgent) -> None:
        """Have it open a stream, as the gateway lets it.

        Raises:
            Occupied, Overtaken: it is not let.
        """
        agent.online = True
        self.greet(agent)
        self.settle()

    def disconnect(self, agent: DrivenAgent) -> None:
        """Break its stream, of which control hears with its next wake."""
        agent.online = False
        self.desk.agent_left(agent.id)

    def connect_again(self) -> None:
        """Agents whose streams were closed connect again."""
        while self.closed:
            agent_id, _ = self.closed.pop()
            self.desk.agent_left(agent_id)
            self.connect(self.agents[agent_id])

    def greet(self, agent: DrivenAgent) -> None:
        """Its Hello arrives, and is not heard by control yet."""
        agent.forget_stream()
        hello = agent.hello()
        renewal = self.leases.admit(hello, beside=True)
        self.greeted[agent.id] = hello
        self.welcome.discard(agent.id)
        self.outgoing = [each for each in self.outgoing if each[0] != agent.id]  # of its older one
        if renewal is not None:
            agent.hear(renewal)
        self.desk.agent_said(agent.id, hello)

    def beat(self, agent: DrivenAgent) -> None:
        """Its heartbeat is answered at once."""
        renewal = self.leases.renew(agent.id, agent.heartbeat())
        if renewal is not None:
            agent.hear(renewal)

    def ask(self, action: Callable[[Work, Parts], Any]) -> Any:
        """Run a request to its answer."""
        (answer,) = self.ask_together(action)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask_together(self, *actions: Callable[[Work, Parts], Any]) -> list[Any]:
        """The answers, or refusals, of requests of one wake."""
        answers: dict[int, Any] = {}

        def answer(position: int, result: Any, error: Exception | None) -> None:
            answers[position] = error or result

        for position, action in enumerate(actions):
            self.plane.ask(action, partial(answer, position))
        self.settle()
        return [answers[position] for position in range(len(actions))]

    def submit(self, spec: JobSpec, principal: Principal = ADA) -> Job:
        ended = self._ended(spec, principal)
        job: Job = self.ask(
            lambda work, parts: parts[JobRequests].submit(work, principal, spec, ended)
        )
        return job

    def submit_session(self, spec: SessionSpec, principal: Principal = ADA) -> Session:
        ended = self._ended(spec, principal)
        session: Session = self.ask(
            lambda work, parts: parts[SessionRequests].submit(work, principal, spec, ended)
        )
        return session

    def _ended(self, spec: JobSpec | SessionSpec, principal: Principal) -> Ended:
        """The ended work that the API reads from SQL before it submits."""
        with self.store.engine.connect() as connection:
            return read_ended(connection, principal.owner, [each.on for each in spec.after])

    def settle(self) -> None:
        """Deliver messages and let control act until nothing more happens at this moment."""
        for _ in range(10_000):
            due = self.wake()
            progressed = self._deliver()
            if not progressed and not self.inbox and (due is None or due > self.clock.now()):
                return
        raise AssertionError("the world does not come to rest")

    def wake(self) -> float | None:
        """One wake of control; when the next one is due."""
        return self.plane.step()

    def _deliver(self) -> bool:
        outgoing, self.outgoing = self.outgoing, []
        for agent_id, message in outgoing:
            agent = self.agents.get(agent_id)
            if agent is not None and agent.online:
                agent.hear(message)
        ticked = [each.tick() for each in self._outside]  # all of them
        progressed = any(ticked) or bool(outgoing)
        for agent in self.agents.values():
            is_heard = agent.id in self.greeted and agent.online
            news = agent.news(1 if self.drips else ALL) if is_heard else None
            if news is not None:
                self.leases.heard(agent.id)
                self.desk.agent_said(agent.id, news)
                progressed = True
        return progressed

    def run(self, seconds: float, step_s: float = 0.5) -> None:
        """Let time pass."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.clock.advance(min(step_s, end - self.clock.now()))
            for agent in self.agents.values():
                agent.tick()
                if agent.online:
                    self.beat(agent)
            self.settle()

    def run_until(
        self, condition: Callable[[], bool], limit_s: float = 1000.0, step_s: float = 0.5
    ) -> None:
        end = self.clock.now() + limit_s
        while not condition():
            assert self.clock.now() < end, "it did not happen in time"
            self.run(step_s, step_s)


class Link:
    """wire.AgentLink: messages wait in the world until they are delivered."""

    def __init__(self, world: World) -> None:
        self._world = world

    def welcome(self, hello: Hello) -> None:
        if self._world.greeted.get(hello.agent) is hello:
            self._world.welcome.add(hello.agent)

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        if agent in self._world.welcome or isinstance(message, Renew):
            self._world.outgoing.append((agent, message))

    def close(self, agent: AgentId, why: str) -> None:
        self._world.closed.append((agent, why))


def state(job: Job) -> JobState:
    """A job's state as it is now; what a test has asserted of the attribute, mypy takes to stay."""
    return job.status
