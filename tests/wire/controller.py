"""A controller for agents under test: the real gateway, with a control plane that notes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from muster.core.ids import AgentId, KernelId
from muster.core.serving.port_holders import PortSeen, PortsSeen
from muster.wire.calls import (
    AgentTurnedAway,
    Dismissed,
    JoinReply,
    JoinRequest,
    NotNow,
)
from muster.wire.messages import (
    Acknowledge,
    Command,
    Commands,
    Disk,
    HealthNoted,
    HealthSeen,
    Heartbeat,
    Hello,
    KernelReport,
    KernelTemplate,
    NewsOfAgent,
    Occupied,
    Overtaken,
    Renew,
    ReportKind,
    Reports,
    Start,
)
from muster.wire.server import AgentGateway
from muster.wire.transport import KeepAlive

TOKEN = "join-me"
TOO_EARLY = "join-me-later"
OWNER = "default/default/somebody"
QUICK = KeepAlive(interval_s=1.0, timeout_s=1.0)


def template(*command: str, **fields: object) -> KernelTemplate:
    """A kernel that runs ``command`` in a scratch directory, without limits."""
    defaults: dict[str, object] = {
        "env": {},
        "workdir": None,
        "files": {},
        "grace_s": 5.0,
        "cpu_milli": 0,
        "memory_bytes": 0,
        "shape": "1000/0/0/0/",
        "owner": OWNER,
        "disk_bytes": 0,
    }
    return KernelTemplate(command, **(defaults | fields))  # type: ignore[arg-type]


@dataclass
class Controller:
    """Answers as a control plane would, and keeps what it was told."""

    lease_s: float = 60.0
    heartbeat_s: float = 0.5
    acknowledging: bool = True
    renewing: bool = True
    welcoming: bool = True
    refusal: Occupied | Overtaken | None = None  # of the next streams
    disks: list[bool] = field(default_factory=list)
    ports_seen: list[PortSeen] = field(default_factory=list)
    seen: list[HealthSeen] = field(default_factory=list)
    credentials: dict[str, AgentId] = field(default_factory=dict)
    dismissed: set[AgentId] = field(default_factory=set)
    joins: list[JoinRequest] = field(default_factory=list)
    hellos: list[Hello] = field(default_factory=list)
    batches: list[Reports] = field(default_factory=list)
    heartbeats: int = 0
    connected: set[AgentId] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    gateway: AgentGateway = field(init=False)
    port: int = 0

    def __post_init__(self) -> None:
        self.gateway = AgentGateway(self, self, self, keepalive=QUICK)

    # Gatekeeper

    async def join(self, request: JoinRequest) -> JoinReply:
        self.joins.append(request)
        if request.token == TOO_EARLY:
            raise NotNow("the name is not free yet")
        if request.token != TOKEN:
            raise AgentTurnedAway("the join token is not valid")
        agent = AgentId(f"agt-{len(self.joins)}")
        self.credentials[request.credential] = agent
        return JoinReply(agent)

    def authenticate(self, credential: str) -> AgentId | None:
        agent = self.credentials.get(credential)
        if agent in self.dismissed:
            raise Dismissed("this agent is no more")
        return agent

    # Leases

    def admit(self, hello: Hello, *, beside: bool) -> Renew | None:
        assert beside, "tests speak over loopback"
        if self.refusal is not None:
            raise self.refusal
        return Renew(hello.sent_s, self.lease_s, self.heartbeat_s)

    def renew(self, agent: AgentId, heartbeat: Heartbeat) -> Renew | None:
        self.heartbeats += 1
        self.changed.set()
        answer = Renew(heartbeat.sent_s, self.lease_s, self.heartbeat_s)
        return answer if self.renewing else None

    def heard(self, agent: AgentId) -> None:
        pass

    # AgentEvents

    def agent_said(self, agent: AgentId, message: NewsOfAgent) -> None:
        match message:
            case Hello():
                self.hellos.append(message)
                if self.welcoming:
                    self.gateway.welcome(message)
                self.connected.add(agent)
            case Reports():
                self.batches.append(message)
                if self.acknowledging:
                    self.gateway.send(agent, Acknowledge(message.last_seq))
            case Disk():
                self.disks.append(message.full)
            case PortsSeen():
                self.ports_seen += message.ports
            case HealthSeen():
                self.seen.append(message)
                self.gateway.send(agent, HealthNoted(message.sightings[-1].seq))
        self.changed.set()

    def agent_left(self, agent: AgentId) -> None:
        self.connected.discard(agent)
        self.changed.set()

    # For tests

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def agent(self) -> AgentId:
        """The agent that spoke last."""
        return self.hellos[-1].agent

    @property
    def reports(self) -> list[KernelReport]:
        return [report for batch in self.batches for report in batch.reports]

    def of(self, kernel: str, kind: ReportKind) -> list[KernelReport]:
        """The reports of a kernel."""
        return [each for each in self.reports if each.kernel == kernel and each.kind is kind]

    def command(self, *commands: Command) -> None:
        self.gateway.send(self.agent, Commands(commands))

    def start(self, kernel: str, *command: str) -> None:
        self.command(Start(KernelId(kernel), 1, template(*command), {}))

    async def until(self, condition: Callable[[], object], timeout_s: float = 15.0) -> None:
        """Wait until something that was said makes ``condition`` true."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def report(self, kernel: str, kind: ReportKind, timeout_s: float = 15.0) -> KernelReport:
        """Wait for a report of that kind about a kernel."""
        await self.until(lambda: self.of(kernel, kind), timeout_s)
        return self.of(kernel, kind)[0]


@asynccontextmanager
async def controller(port: int = 0, **fields: object) -> AsyncIterator[Controller]:
    """A controller that listens on a loopback port."""
    made = Controller(**fields)  # type: ignore[arg-type]
    made.port = await made.gateway.start(f"127.0.0.1:{port}")
    try:
        yield made
    finally:
        await made.gateway.stop()
