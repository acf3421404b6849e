"""A cluster behind real HTTP: the real control plane, API and server in a thread of their own.

Agents are driven (``tests.control.driven_agent``), and control's time stands still unless a test
moves it; HTTP itself runs in real time.
"""

import asyncio
import random
import socket
import threading
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from proving.hollow.found_twins import found_twins
from proving.hollow.performers.late_calls import LateCalls
from proving.hollow.performers.notices import HollowSender
from proving.hollow.performers.probing import HollowProber
from proving.hollow.performers.providers import Farm, HollowMachine, HollowProviders
from proving.hollow.supervisor import Behaviour, Run
from proving.hollow.virtual_clock import VirtualClock
from tests.control.driven_agent import DrivenAgent
from tests.databases import migrated_url, open_unsynced
from tests.patience import until

from muster.api.app import RESOURCES, Application, create_app
from muster.api.app import stop as stop_requests
from muster.api.resource import Resource
from muster.app.http_server import serving
from muster.client import Client
from muster.control.accounts import ensure_user
from muster.control.agent.desk import AgentDesk
from muster.control.agent.joining import join
from muster.control.agent.leases import LeaseBook
from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.deployment.probes import ProbesTold
from muster.control.engine.declared import SomePerformer
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import EntityModule, Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import create_open_join_token, create_token
from muster.control.inbox import Inbox
from muster.control.modules import ENTITY_MODULES, cluster_entities, cluster_modules
from muster.control.plane import ControlPlane
from muster.core.ids import AgentId, IdFactory, KernelId
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Device, Resources
from muster.core.specs import ScalingGroup
from muster.core.specs.account import TokenSpec
from muster.core.views.events import EventView
from muster.store.records import Agent
from muster.store.store import Store
from muster.wire.calls import (
    JoinRequest,
    LogChunk,
    LogRequest,
)
from muster.wire.log_reading import OutputUnreachable
from muster.wire.messages import (
    ControllerMessage,
    Hello,
    KernelKey,
)

T = TypeVar("T")

ADMIN = Owner("default", "default", "root")
ROOT = Principal(ADMIN, Role.ADMIN)
ADA = Owner("default", "default", "ada")
BOB = Owner("default", "default", "bob")
LARGE = Resources(cpu_milli=4000, memory_bytes=2**33)
LIMIT_S = 20.0


@dataclass
class Output:
    """The output of a hollow kernel; ``lost`` bytes of its beginning were rotated away. ``stderr``
    is the part of that, where it is kept apart."""

    data: bytes = b""
    stderr: bytes = b""
    ended: bool = False
    lost: int = 0
    grown: asyncio.Event = field(default_factory=asyncio.Event)


class ServedCluster:
    """Start it with ``start``; ``client`` talks to it as one of its users.

    Args:
        more, more_resources: modules and resources beside those of every cluster.
    """

    def __init__(
        self,
        path: Path,
        agents: Mapping[str, Resources],
        *,
        gpus: int = 0,
        behaviour: Behaviour = lambda start: Run(seconds=3600.0),
        more: Sequence[type[EntityModule]] = (),
        more_resources: Sequence[Resource[Any, Any]] = (),
    ) -> None:
        self.path = path
        self.behaviour = behaviour
        self.clock = VirtualClock()
        self.ids = IdFactory(self.clock, random.Random(1))
        self.outputs: dict[KernelId, Output] = {}
        self.unreachable = False
        self.reads = 0  # of output, under way
        self._names = agents
        self._gpus = gpus
        self._agents: dict[AgentId, DrivenAgent] = {}
        self._outgoing: list[tuple[AgentId, ControllerMessage]] = []
        self._secrets: dict[tuple[Owner, Role], str] = {}
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)
        self._hinted = False
        self.paused = False
        self._entity_modules = (*ENTITY_MODULES, *more)
        self._resources = (*RESOURCES, *more_resources)
        self.channels = HollowSender(self.clock, lambda outcome: self.inbox.put(outcome))
        self.farm = Farm(self.clock, self._booted, self._gone)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        self.run(self._open())
        for name, capacity in self._names.items():
            self.run(self._add_agent(name, capacity))

    def stop(self) -> None:
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def down(self) -> None:
        """Stop the controller; the agents do not notice."""
        self.run(self._close())
        self._outgoing.clear()

    def up(self) -> None:
        """Start it again a moment later, on the same database and port."""
        self.clock.advance(1.0)
        self.run(self._open())
        self.run(self._greet())

    async def _open(self) -> None:
        self.engine = open_unsynced(migrated_url(self.path / "muster.db"))
        self.store = Store(self.engine, cluster_entities(self._entity_modules))
        self.leases = LeaseBook(self.clock)
        inbox = Inbox(self._hint)
        self.desk = AgentDesk(self.store, self.clock, self.leases, inbox)
        modules = cluster_modules(
            self.desk,
            self.leases,
            Surroundings(self.engine, inbox.put, self.path),
            self._entity_modules,
        )
        self.providers = HollowProviders(self.farm, self.engine, inbox.put)
        self.prober = HollowProber(
            self.clock, lambda route, generation: True, lambda told: inbox.put(ProbesTold(told))
        )
        self.twins = found_twins(self.clock, inbox.put)
        stand_ins: list[SomePerformer] = [
            self.channels,
            self.prober,
            *self.providers.performers,
            *self.twins,
        ]
        self.plane = ControlPlane(self.store, self.clock, self.ids, inbox, modules, stand_ins)
        self.inbox = inbox
        self.desk.link = self
        if not self.plane.live.groups:
            group = ScalingGroup(name="default")
            await self.plane.request(
                lambda work, parts: parts[GroupRequests].put_group(work, group)
            )
        self.app = create_app(
            plane=self.plane,
            engine=self.engine,
            clock=self.clock,
            read_log=self.read_log,
            short_outputs=self.short_outputs,
            resources=self._resources,
            home=self.path,
        )
        await self._serve(self.app)

    async def _serve(self, app: Application) -> None:
        # Named as TCP, or asyncio would leave Nagle's algorithm on: 40 ms for each answer.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._serving = AsyncExitStack()
        await self._serving.enter_async_context(serving(app, listener, None))

    async def _close(self) -> None:
        stop_requests(self.app)
        await self._serving.aclose()
        self.store.close()

    # -- control ---------------------------------------------------------------------------------

    def _hint(self) -> None:
        if not self._hinted:
            self._hinted = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        """Let control and agents act until nothing more happens at this moment."""
        self._hinted = False
        if self.paused:
            return
        for _ in range(10_000):
            due = self.plane.step()
            outgoing, self._outgoing = self._outgoing, []
            for agent_id, message in outgoing:
                if agent_id in self._agents:
                    self._agents[agent_id].hear(message)
            ours = (self.channels, self.providers, self.farm, self.prober)
            outside: Sequence[LateCalls | Farm] = (*ours, *self.twins)
            ticked = [each.tick() for each in outside]  # all of them
            reported = any(ticked)
            for agent in list(self._agents.values()):
                agent.tick()
                if (news := agent.news()) is not None:
                    self.desk.agent_said(agent.id, news)
                    reported = True
            if not reported and not outgoing and (due is None or due > self.clock.now()):
                return
        raise AssertionError("control does not come to rest")

    def welcome(self, hello: Hello) -> None:
        pass

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        self._outgoing.append((agent, message))

    def close(self, agent: AgentId, why: str) -> None:
        pass

    async def _add_agent(self, name: str, capacity: Resources) -> None:
        token = await self.plane.request(lambda work, _: create_open_join_token(work, "root"))
        credential = f"credential of {name}".ljust(40, ".")
        reply = await self.desk.join(JoinRequest(token, name, "default", credential))
        devices = tuple(Device(index, "H100") for index in range(self._gpus))
        self._run_agent(reply.agent, name, capacity, devices)
        await self._greet()

    def _run_agent(
        self, id_: AgentId, name: str, capacity: Resources, devices: tuple[Device, ...]
    ) -> None:
        self._agents[id_] = DrivenAgent(
            id_, name, self.clock, capacity, devices, lambda start: self.behaviour(start)
        )

    def _booted(self, machine: HollowMachine) -> None:
        """A machine of a pool is up: its agent joins."""
        shape, credential = machine.spec.machine, f"credential of {machine.name}".ljust(40, ".")
        request = JoinRequest(machine.token, machine.name, machine.spec.group, credential)

        def joined(agent: Agent | None, refused: Exception | None) -> None:
            if agent is not None:  # else its slice is not wanted any more
                self._run_agent(agent.id, agent.name, shape.capacity(0), shape.devices)
                self._say_hello(self._agents[agent.id])

        self.plane.ask(lambda work, parts: join(work, parts[AgentLifecycle], request), joined)

    def _gone(self, machine: HollowMachine) -> None:
        for agent in list(self._agents.values()):
            if agent.name == machine.name:
                self.desk.agent_left(agent.id)
                del self._agents[agent.id]

    async def _greet(self) -> None:
        for agent in self._agents.values():
            self._say_hello(agent)
        self._settle()

    def _say_hello(self, agent: DrivenAgent) -> None:
        agent.forget_stream()
        hello = agent.hello()
        self.leases.admit(hello, beside=False)
        self.desk.agent_said(agent.id, hello)

    # -- output ----------------------------------------------------------------------------------

    async def short_outputs(
        self, agent: AgentId, names: Sequence[KernelKey]
    ) -> Mapping[KernelKey, bytes]:
        """Fills ``AgentGateway.short_outputs``: those of ten bytes at most are short."""
        data = {name: self.outputs.setdefault(name[0], Output()).data for name in names}
        if self.unreachable:
            return {}
        return {name: bytes(each) for name, each in data.items() if len(each) <= 10}

    async def read_log(self, agent: AgentId, request: LogRequest) -> AsyncGenerator[LogChunk, None]:
        """Fills ``AgentGateway.read_log``, in pieces of 64 KiB."""
        output = self.outputs.setdefault(request.kernel, Output())
        position = request.offset if request.offset >= 0 else len(output.data) + request.offset
        self.reads += 1
        try:
            while True:
                if self.unreachable:
                    raise OutputUnreachable(agent, "is not connected")
                output.grown.clear()
                position = max(position, output.lost, 0)
                whole = output.stderr if request.stderr else output.data
                data = whole[position : position + 65536]
                at_end = position + len(data) == len(whole)
                eof = output.ended and at_end
                if data or eof or not request.follow:
                    yield LogChunk(position, data, eof)
                position += len(data)
                if eof or (at_end and not request.follow):
                    return
                if at_end:
                    await output.grown.wait()
        finally:
            self.reads -= 1

    def write(
        self, kernel: str, data: bytes = b"", *, stderr: bytes = b"", ended: bool = False
    ) -> None:
        """Have a kernel write, and perhaps end."""

        async def write() -> None:
            output = self.outputs.setdefault(KernelId(kernel), Output())
            output.data += data
            output.stderr += stderr
            output.ended = output.ended or ended
            output.grown.set()

        self.run(write())

    # -- what tests do ---------------------------------------------------------------------------

    def run(self, work: Awaitable[T]) -> T:
        """Do something in the cluster's thread."""

        async def wrapped() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(wrapped(), self._loop).result(LIMIT_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call something in the cluster's thread."""

        async def called() -> T:
            return function()

        return self.run(called())

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so in the cluster's thread."""
        until(lambda: self.call(condition), LIMIT_S)

    def requests_under_way(self) -> int:
        return len(self.app.state.requests._under_way)

    def pass_time(self, seconds: float) -> None:
        """Let control's time pass; the agents say now and then that they are there."""

        def advance() -> None:
            end = self.clock.now() + seconds
            while self.clock.now() < end:
                self.clock.advance(min(5.0, end - self.clock.now()))
                for agent in self._agents.values():
                    renewal = self.leases.renew(agent.id, agent.heartbeat())
                    if renewal is not None:
                        agent.hear(renewal)
                self._settle()

        self.call(advance)

    def resume(self) -> None:
        """Let control act again after ``paused``."""

        def resume() -> None:
            self.paused = False
            self._settle()

        self.call(resume)

    def token(self, owner: Owner = ADA, role: Role = Role.USER) -> str:
        """The secret of a token of the owner's, which is made at the first call."""
        key = (owner, role)
        if key not in self._secrets:
            self._secrets[key] = self.new_token(owner, role)[1]
        return self._secrets[key]

    def new_token(
        self, owner: Owner = ADA, role: Role = Role.USER, **fields: Any
    ) -> tuple[str, str]:
        """The id and the secret of a new token."""
        spec = TokenSpec(domain=owner.domain, user=owner.user, role=role, **fields)

        def make(work: Work, _: Parts) -> tuple[str, str]:
            ensure_user(work, owner)
            token, secret = create_token(work, ROOT, spec)
            return token.id, secret

        return self.run(self.plane.request(make))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def client(self, owner: Owner = ADA, role: Role = Role.USER, **options: Any) -> Client:
        return Client(self.url, self.token(owner, role), **options)

    @contextmanager
    def events(self, owner: Owner = ADA) -> Iterator[Iterator[EventView]]:
        """The changes that an owner is told of from now on."""
        with self.client(owner) as client:
            events = client.events()
            assert next(events).kind == "reset"
            try:
                yield events
            finally:
                cast(Generator[EventView, None, None], events).close()
