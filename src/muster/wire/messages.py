"""The messages between controller and agents, as plain values.

The control plane and the agent deal in these; only this layer knows their protobuf form. Commands
are idempotent and keyed by (kernel, generation); reports are numbered by the agent and repeated
until acknowledged (design: Agents).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from muster.core.health.counters import GpuMeans
from muster.core.health.remedy import Remedy
from muster.core.health.service import Service
from muster.core.ids import AgentId, KernelId
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_files import Removal
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.serving.port_holders import PortOrders, PortsSeen
from muster.core.serving.probes import ProbeOrder, ProbeResult
from muster.core.uids import ClusterUid

PROTOCOL = 3
"""The version of agent.proto, and of the limits in ``wire.transport``. Controller and agents are
released together: another version is refused, whatever its agent holds runs on. It is another one
with each change by which one side would misread or refuse what the other says."""

MAX_DETAIL = 4096
"""Characters of a report's text."""

KernelKey = tuple[KernelId, int]
"""A kernel and its generation: the subject of commands and reports."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelTemplate:
    """The part that equal kernels share: one object for all, so that it travels once a batch.

    ``workdir`` None means a scratch directory on the agent, into which ``files`` are written.
    ``cpu_milli`` and ``memory_bytes`` are limits where the agent can set them; 0 sets none. With
    ``least_cpu`` it asked for no cpu, and gets what others leave.
    ``shape`` is equal for kernels that may inherit each other's allocation. ``owner`` is
    "domain/project/user", whose account on the machine the kernel gets. ``uid`` is the one that the
    cluster has allotted to that user; None leaves it to the agent, as older controllers do.
    ``disk_bytes`` bounds the kernel's scratch directory; 0 leaves the bound to the agent. With a
    ``service`` the agent carries that out as itself, by a program of its own, and looks at nothing
    else here but ``grace_s``. With ``stderr_apart`` the output that it writes to stderr is kept by
    itself, too; with ``keeps_result`` its end tells what it wrote to $MUSTER_RESULT.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str | None
    files: Mapping[str, str]
    grace_s: float
    cpu_milli: int
    memory_bytes: int
    shape: str
    owner: str
    disk_bytes: int
    service: Service | None = None
    least_cpu: bool = False
    stderr_apart: bool = False
    keeps_result: bool = False
    uid: ClusterUid | None = None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get ready for a kernel: reserve ``ports`` ports, and the very one on which its program
    listens, if there is such a ``port``. Answer: PREPARED, with those of ``ports``."""

    kernel: KernelId
    generation: int
    ports: int
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Start a kernel; or, if ``queued``, keep it in the backlog until a kernel of its shape ends.
    With ``hold`` get it ready, report CREATED, and let it run when Go comes (design: Gang
    barrier)."""

    kernel: KernelId
    generation: int
    template: KernelTemplate
    env: Mapping[str, str]
    shares: tuple[DeviceShare, ...] = ()
    queued: bool = False
    hold: bool = False


@dataclass(frozen=True, slots=True)
class Go:
    """Let a kernel run that was started with ``hold``; nothing happens if it runs already."""

    kernel: KernelId
    generation: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a kernel, whatever it is doing, and confirm that its processes are gone: ENDED."""

    kernel: KernelId
    generation: int
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Recall:
    """Take a kernel back if it is still queued: ENDED, NEVER_STARTED. A started one runs on."""

    kernel: KernelId
    generation: int


Command = Prepare | Start | Go | Stop | Recall


class ReportKind(StrEnum):
    PREPARED = "PREPARED"
    PREPARE_FAILED = "PREPARE_FAILED"
    CREATED = "CREATED"  # the kernel is held, ready to run; it waits for Go
    STARTED = "STARTED"
    CREATE_FAILED = "CREATE_FAILED"  # no process of it runs; another Start tries again
    ENDED = "ENDED"  # none of its processes is left


@dataclass(frozen=True, slots=True)
class KernelReport:
    """A fact about a kernel. ``at`` is in seconds since the epoch, by the agent's clock.

    An ENDED kernel whose allocation passed to another names it as ``heir``; the heir's STARTED
    names its ``predecessor`` and the devices it got. ``result`` is what an ENDED service, or a task
    with parameters, left, of at most ``MAX_RESULT_BYTES`` characters. ``oom_kills`` is how many
    processes of an ENDED kernel were killed for lack of memory, where it ended otherwise;
    ``lost_output_bytes`` is how much of its output was lost, because the disk was full.
    """

    kernel: KernelId
    generation: int
    kind: ReportKind
    at: float
    exit_code: int | None = None
    signal: int | None = None
    reason: ReasonCode | None = None
    detail: str = ""
    ports: tuple[int, ...] = ()
    shares: tuple[DeviceShare, ...] = ()
    heir: KernelKey | None = None
    predecessor: KernelKey | None = None
    result: str | None = None
    oom_kills: int = 0
    lost_output_bytes: int = 0


class HeldStatus(StrEnum):
    """The state of a kernel that an agent holds; it holds an ended kernel until the end is
    acknowledged.

    An end that was seen (ENDED) is a fact in whatever boot it is told. LOST kernels are gone with
    the supervisor that held them, and nobody has seen how they ended.
    """

    PREPARED = "PREPARED"
    QUEUED = "QUEUED"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    LOST = "LOST"
    CREATE_FAILED = "CREATE_FAILED"


@dataclass(frozen=True, slots=True)
class HeldKernel:
    kernel: KernelId
    generation: int
    status: HeldStatus


@dataclass(frozen=True, slots=True)
class Hello:
    """An agent's identity, capacity and kernels; the first message of each stream.

    ``boot_id`` changes when the machine reboots: kernels of another boot are proven gone. Those
    that ended before the reboot are told as ENDED, and their reports follow.
    ``instance`` tells the agent's directory from any other of this boot, ``supervisor`` the process
    that holds its kernels from any other of this machine. ``sent_s`` is the agent's
    boot clock, ``time_s`` its time of day. ``probes`` says that the agent understands ProbeOrders,
    ``health_commands`` that it does so for probes by command,
    and ``ports`` that it understands PortOrders.
    """

    agent: AgentId
    name: str
    group: str
    boot_id: str
    version: str
    host: str
    capacity: Resources
    devices: tuple[Device, ...]
    attributes: Mapping[str, str]
    kernels: tuple[HeldKernel, ...]
    protocol: int = PROTOCOL
    instance: str = ""
    supervisor: str = ""
    sent_s: float = 0.0
    time_s: float = 0.0
    disk_full: bool = False
    checks: tuple[str, ...] = ()
    probes: bool = False
    health_commands: bool = False
    ports: bool = False


@dataclass(frozen=True, slots=True)
class Reports:
    """A batch of numbered facts; ``last_seq`` is the number of the last one."""

    last_seq: int
    reports: tuple[KernelReport, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The agent is there, and asks for its lease to be renewed.

    ``sent_s`` is the agent's boot clock, ``time_s`` its time of day. ``renewed_s`` is the
    ``sent_s`` that the renewal in force has answered: the agent has forgotten earlier renewals.
    ``gpus`` are means of GPUs that work holds, once in an interval; nothing repeats them.
    """

    sent_s: float
    renewed_s: float = 0.0
    time_s: float = 0.0
    gpus: tuple[GpuMeans, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of the agent's directory is full, or no longer is."""

    full: bool


@dataclass(frozen=True, slots=True)
class Sighting:
    """A fact that speaks against the agent's own machine, seen while nobody was asked.

    ``seq`` numbers an agent's sightings, upwards for as long as its directory lives and beyond.
    ``devices`` are the indexes of the GPUs in question; none stands for the machine. ``confirmed``
    says that the hardware or its driver tells of a fault, and ``remedy`` what that calls for.
    ``what`` is a sentence without its full stop. ``boot_id`` is that of the boot in which it was
    seen, ``at`` the agent's time of day then.
    """

    seq: int
    remedy: Remedy
    what: str
    devices: tuple[int, ...] = ()
    confirmed: bool = False
    boot_id: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class HealthSeen:
    """Sightings in the order of their numbers. An agent repeats them, on each new stream and after
    a while, until the last one's number is noted; it sends no others meanwhile, and none to a
    controller whose renewals do not say that it hears them."""

    sightings: tuple[Sighting, ...]


@dataclass(frozen=True, slots=True)
class ProbesSeen:
    """The last probes of routes that the agent was ordered to probe; nothing repeats them."""

    results: tuple[ProbeResult, ...]


@dataclass(frozen=True, slots=True)
class FileRemoval:
    """The output or the scratch directory of an ended kernel was removed by its agent; ``why`` says
    which of them, and when."""

    kernel: KernelId
    generation: int
    why: Removal


@dataclass(frozen=True, slots=True)
class FilesRemoved:
    """Removals, told once: nothing repeats them, and none are told to a controller whose renewals
    do not say that it hears them."""

    removals: tuple[FileRemoval, ...]


AgentMessage = (
    Hello | Reports | Heartbeat | Disk | HealthSeen | ProbesSeen | PortsSeen | FilesRemoved
)
NewsOfAgent = Hello | Reports | Disk | HealthSeen | ProbesSeen | PortsSeen | FilesRemoved
"""The messages that control hears; heartbeats are answered before."""


@dataclass(frozen=True, slots=True)
class Commands:
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """All reports up to ``seq`` are committed; the agent may forget them."""

    seq: int


@dataclass(frozen=True, slots=True)
class Renew:
    """The kernel lease ends ``lease_s`` after ``sent_s``, the moment on the agent's boot clock at
    which it sent the Hello or heartbeat that this message answers: however long the answer took,
    and even if the lease had a later end before. ``heartbeat_s`` is how often the agent is to ask
    for the next renewal. ``hears_health`` and ``hears_removals`` say that the controller
    understands HealthSeen and FilesRemoved: an older one would end the stream over them."""

    sent_s: float
    lease_s: float
    heartbeat_s: float
    hears_health: bool = True
    hears_removals: bool = True


@dataclass(frozen=True, slots=True)
class HealthNoted:
    """All sightings up to ``seq`` are dealt with; the agent may forget them."""

    seq: int


@dataclass(frozen=True, slots=True)
class ProbeOrders:
    """Orders to probe routes at the agent's own address, until others, for as long as the stream
    lasts."""

    orders: tuple[ProbeOrder, ...]


ControllerMessage = Commands | Acknowledge | Renew | HealthNoted | ProbeOrders | PortOrders


class AgentLink(Protocol):
    """How control reaches agents: a seam that tests and simulation fill otherwise."""

    def welcome(self, hello: Hello) -> None:
        """Control has heard this Hello: later messages to its agent go out on its stream. A stream
        whose Hello control has not heard gets renewals alone, because control's earlier decisions
        are about the kernels that the agent held then, perhaps in another boot."""

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        """Queue a message; never blocks. It is dropped for an agent without a welcome stream: the
        agent is told again which kernels should exist when it says Hello."""

    def close(self, agent: AgentId, why: str) -> None:
        """End the agent's stream, if there is one; it will say Hello again."""


class AgentEvents(Protocol):
    """The wire's calls to control, on one event loop; none blocks."""

    def agent_said(self, agent: AgentId, message: NewsOfAgent) -> None:
        """A message of an authenticated agent's current stream, in order."""

    def agent_left(self, agent: AgentId) -> None:
        """The agent's current stream ended."""


class Occupied(Exception):
    """Another agent with the same credential is connected; the text says what to do."""


class Leases(Protocol):
    """The agents that may connect, and the leases to renew: the gateway asks, without waiting."""

    def admit(self, hello: Hello, *, beside: bool) -> Renew | None:
        """Make a stream the agent's current one. The answer renews the agent's lease, if that is
        allowed before control has heard the Hello. ``beside`` says that the agent talks over the
        loopback interface.

        Raises:
            Occupied: another machine or directory with this credential was heard just now.
            Overtaken: a newer stream of the agent is there.
        """

    def renew(self, agent: AgentId, heartbeat: Heartbeat) -> Renew | None:
        """Answer a heartbeat of the current stream; None if the lease is not to be renewed."""

    def heard(self, agent: AgentId) -> None:
        """Note that the agent sent a message other than a heartbeat."""


class Overtaken(Exception):
    """A stream's Hello is older than that of the agent's current stream."""


class MalformedMessage(Exception):
    """A message that this version cannot understand, or that nobody may send; the text says which
    part is wrong."""
