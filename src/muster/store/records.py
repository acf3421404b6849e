"""The mirror's records and their tables: agents, jobs, tasks, sessions, kernels. Only a unit of
work changes them.

A record lives here from its creation until the commit after its end; from then on it is read from
SQL. The objects refer to each other, so that a pass needs no look-ups.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from sqlalchemy import BigInteger, String, Text

from muster.core.health.service import Service
from muster.core.ids import AgentId, JobId, KernelId, SessionId
from muster.core.job_remarks import JobRemark
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.specs import JobSpec, SessionSpec, SessionType
from muster.core.specs.matrix import Matrix
from muster.core.specs.service import ServiceSpec
from muster.core.specs.session import Process
from muster.core.states import (
    AGENT_TABLE,
    JOB_TABLE,
    KERNEL_TABLE,
    SESSION_TABLE,
    TASK_TABLE,
    AgentBar,
    AgentStatus,
    JobState,
    KernelStatus,
    SessionStatus,
    TaskState,
)
from muster.core.task_ranges import TaskRanges
from muster.store.entity import Record, Tried
from muster.store.fields import (
    Fixed,
    Key,
    LongInteger,
    LongText,
    Memory,
    Reference,
    Seldom,
    StoredAs,
    id_or_none,
)
from muster.store.kernel_tallies import NO_KERNELS, KernelTally, LoneTally
from muster.store.record_table import Computed, RecordTable
from muster.store.spec_columns import dump_spec, spec_columns
from muster.store.stored_values import (
    dump_bar,
    dump_extra,
    dump_list,
    dump_resources,
    dump_shares,
    load_bar,
    load_list,
    load_resources,
    load_shares,
)

LedgerKey = tuple[KernelId, int]
"""A kernel and its generation."""
MAX_ABSENCES = 64
"""The number of latest absences of an agent that are remembered; during earlier absences it counts
as heard."""
MAX_FAILED_AGENTS = 32
"""The number of latest agents that are remembered on which work failed."""
MAX_LEAPS = 64
"""The number of latest leaps of time of an agent that are remembered; those before them count for
all that began before these."""


@dataclass(slots=True, eq=False, kw_only=True)
class Agent(Record):
    """A machine. ``barred`` says why it gets no new work, if it gets none, ``bar_note`` says so in
    an operator's words; ``leave_by`` is when work must have left a draining agent.

    ``boot_id`` and ``instance`` are the boot and the agent's directory to which its kernels belong,
    ``supervisor`` the process that holds them. ``booted_at`` is when its boot clock was 0, by the
    controller's time of its Hellos in that boot, 0 if not known. ``machine`` is the id of the
    controller's machine for an agent that runs there too, else empty. ``lease_s`` is the longest
    kernel lease that it may count with, ``term_s`` the one that is granted now. ``silence_s`` is
    the longest for which it may have been silent while it is ALIVE, when this is judged next.
    ``seen_at`` moves with each message and is stored with other changes only. ``fixed`` are
    attributes that the token with which it joined gave it, whatever it says itself: those of its
    pool and slice.

    Not stored are ``leaps``, the latest moments at which the controller's time was found to have
    leapt against the agent's boot clock, each with by how much it was ahead of it from then on,
    compared to ``booted_at``; ``term_s``; ``withheld``, why it takes no work for the sake of its
    slice, empty if it may; ``ill``, the same for the sake of its health; ``in_service``, whether a
    service has all of it to itself, as the ledger says; ``connected``, whether it has a stream to
    this process, and ``connected_at``, since when; ``silent_since``, when it was heard last before
    its Hello; ``left_at``, since when it has no stream; its latest ``absences``, each from leaving
    to return; ``lost_at``, when its kernels count as gone unless it is heard before, which is exact
    while it is silent; ``seen_known``, whether ``seen_at`` is when it last spoke, and not only a
    moment after which a former controller heard it; ``disk_full``, as it reports; ``checks``, the
    names of those that it has, empty if it does not tell; ``probes``, whether it can be asked to
    probe replicas, and ``sees_ports``, to tell who listens on their ports; ``clock_offset_s``, by
    which the controller's clock is ahead of the agent's at most; ``offer_told``, the machine that
    history last told of, where that is not the present one, and ``offer_told_at``, when it last
    told of a change; and ``foreign_reports``, how many reports about kernels of other agents came
    on its stream.
    """

    id: Key[AgentId]
    name: Fixed[str]
    group: str
    status: AgentStatus
    credential_hash: str
    boot_id: str
    version: str
    host: str
    capacity: Annotated[Resources, StoredAs(Text, dump_resources, load_resources)]
    devices: tuple[Device, ...]
    attributes: dict[str, str]
    joined_at: Fixed[float]
    seen_at: float
    reason: Reason | None = None
    barred: Annotated[AgentBar | None, StoredAs(String, dump_bar, load_bar, False)] = None
    bar_note: LongText = ""
    leave_by: float | None = None
    connected: Memory[bool] = False
    connected_at: Memory[float] = 0.0
    silent_since: Memory[float] = -math.inf
    left_at: Memory[float | None] = None
    absences: Memory[deque[tuple[float, float]]] = field(
        default_factory=lambda: deque(maxlen=MAX_ABSENCES)
    )
    instance: str = ""
    lease_s: float = 0.0
    silence_s: float = 0.0
    machine: str = ""
    supervisor: str = ""
    booted_at: float = 0.0
    leaps: Memory[deque[tuple[float, float]]] = field(
        default_factory=lambda: deque(maxlen=MAX_LEAPS)
    )
    term_s: Memory[float] = 0.0
    lost_at: Memory[float] = -math.inf
    seen_known: Memory[bool] = True
    disk_full: Memory[bool] = False
    checks: Memory[tuple[str, ...]] = ()
    probes: Memory[bool] = False
    health_commands: Memory[bool] = False
    sees_ports: Memory[bool] = False
    clock_offset_s: Memory[float] = 0.0
    offer_told: Memory[Mapping[str, object] | None] = None
    offer_told_at: Memory[float] = -math.inf
    foreign_reports: Memory[int] = 0
    fixed: dict[str, str] = field(default_factory=dict)
    withheld: Memory[str] = ""
    ill: Memory[str] = ""
    in_service: Memory[bool] = False

    def remember(self, before: "Agent") -> None:
        """Take over the facts that are not stored from the record ``before`` the state was read
        again."""
        self.seen_at = max(self.seen_at, before.seen_at)
        self.seen_known = before.seen_known
        self.connected_at, self.absences = before.connected_at, before.absences
        self.disk_full, self.checks = before.disk_full, before.checks
        self.probes, self.sees_ports = before.probes, before.sees_ports
        self.health_commands = before.health_commands
        self.leaps = before.leaps
        self.clock_offset_s, self.foreign_reports = before.clock_offset_s, before.foreign_reports


@dataclass(slots=True, eq=False, kw_only=True)
class Job(Record):
    """Batch work. ``tasks_total`` is how many tasks it runs; ``counts`` holds the number of task
    rows by state. The tasks from the ``next_task``-th on have no rows yet and are PENDING.
    ``tasks`` are the live tasks by index, ``waiting`` the tasks among them that need a session and
    have none. ``stopped`` are the tasks that people stopped one by one. ``retry_of`` is the job of
    which this one runs tasks again. ``held`` is who keeps its tasks from beginning, and
    ``released_at`` when that last ended. ``remarks`` tell of ends of its tasks what their states do
    not. ``spec_bytes`` is the size of the spec as it was stored first."""

    id: Key[JobId]
    name: Fixed[str]
    owner: Fixed[Owner]
    group: Fixed[str]
    spec: Seldom[JobSpec]
    resources: Memory[Resources]
    status: JobState
    tasks_total: Fixed[LongInteger]
    next_task: LongInteger
    counts: dict[TaskState, int]
    submitted_at: Fixed[float]
    started_at: float | None = None
    finished_at: float | None = None
    reason: Reason | None = None
    retry_of: Fixed[JobId | None] = None
    held: Reason | None = None
    released_at: float | None = None
    stopped: Annotated[TaskRanges | None, StoredAs(Text, str, TaskRanges.parse)] = None
    remarks: tuple[JobRemark, ...] = ()
    spec_bytes: Memory[int] = 0
    tasks: Memory["dict[int, Task]"] = field(default_factory=dict)
    waiting: Memory["dict[int, Task]"] = field(default_factory=dict)

    @property
    def stopped_rows(self) -> int:
        """How many of the tasks that have rows people stopped one by one."""
        if self.stopped is None:
            return 0
        if self.next_task >= self.tasks_total:
            return len(self.stopped)
        return self.stopped.below(self.spec.task_at(self.next_task))


@dataclass(slots=True, eq=False, kw_only=True)
class Task(Tried):
    """One replica of a job; ``attempt`` counts from 1 and is 0 before the first. ``session_id`` is
    the current attempt's, None between two attempts; ``kernel_id`` is the last attempt's. Its tries
    are those to begin an attempt: the latest ones in a row that failed. They are not stored.
    ``failed_agents`` are the agents on which its latest attempts failed, or which failed them."""

    job: Key[Annotated[Job, Reference("job_id")]]
    index: Key[Annotated[int, StoredAs(BigInteger, name="idx")]]
    status: TaskState
    tries: Memory[int] = 0
    attempt: int = 0
    failure_count: int = 0
    preemption_count: int = 0
    session_id: SessionId | None = None
    kernel_id: KernelId | None = None
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    reason: Reason | None = None
    failed_agents: Annotated[tuple[AgentId, ...], StoredAs(Text, dump_list, load_list)] = ()
    timeout_count: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Session(Tried):
    """The unit of placement. ``queued_at`` is when it became PENDING, last; ``barrier_opened_at``
    is when a gang's kernels were first told to run, from when on some may have run; ``stop_at`` is
    the first moment at which one of its kernels has to be told to stop; ``unfit`` are the agents
    that reported that they cannot run it, and why. ``returns_to`` are the names of the agents that
    it prefers where it restarts a job after a fault of a machine; None where it does not.
    ``spec_bytes`` is the size of its own spec as it was stored first, 0 without one. ``tally`` is
    kept by units of work; it, ``stop_at``, ``unfit`` and ``returns_to`` are not stored."""

    id: Key[SessionId]
    job: Annotated[Job | None, Reference("job_id")]
    name: Fixed[str | None]
    type: Fixed[SessionType]
    owner: Fixed[Owner]
    group: Fixed[str]
    priority: Seldom[int]
    spec: Seldom[Annotated[SessionSpec | None, StoredAs(Text, dump_spec)]]
    status: SessionStatus
    created_at: Fixed[float]
    queued_at: float
    kernels: Memory["Sequence[Kernel]"] = ()
    reschedules: int = 0
    failed_agents: Annotated[tuple[AgentId, ...], StoredAs(Text, dump_list, load_list)] = ()
    started_at: float | None = None
    finished_at: float | None = None
    barrier_opened_at: float | None = None
    reason: Reason | None = None
    spec_bytes: Memory[int] = 0
    stop_at: Memory[float] = 0.0
    tally: Memory[KernelTally | LoneTally] = NO_KERNELS
    unfit: Memory[tuple[tuple[AgentId, Reason], ...]] = ()
    returns_to: Memory[tuple[str, ...] | None] = None

    @property
    def timeout_s(self) -> float | None:
        owner = self.spec or (self.job and self.job.spec)
        return owner.timeout if owner else None

    @property
    def leader(self) -> "Kernel | None":
        """The kernel whose good end is the session's; None if all of them have to end."""
        owner = self.spec or (self.job and self.job.spec)
        leader = owner.leader if owner else None
        return None if leader is None else self.kernels[leader]

    @property
    def leader_ended_well(self) -> bool:
        """Whether the session has a leader that ended well, with which it is over."""
        return self.leader is not None and self.leader.ended_well

    @property
    def service(self) -> Service | None:
        """The service that the session carries out on its agent's own machine; None for work."""
        return self.spec.service if isinstance(self.spec, ServiceSpec) else None

    @property
    def scheduling_timeout_s(self) -> float | None:
        owner = self.spec or (self.job and self.job.spec)
        return owner.scheduling_timeout if owner else None


@dataclass(slots=True, eq=False, kw_only=True)
class Kernel(Record):
    """One process tree on one agent. ``failure`` is the last failed try of the phase it is in;
    ``failed_at`` is when that try failed, by the agent's clock: a report with the same time is a
    repetition and no other failure. ``next_try_may_be_lost``, which is not stored, says that the
    agent's last Hello told of a failed try after the next one had been sent. ``recalled`` says that
    the agent was told to give the kernel back unless it had begun, ``stop_sent_at`` when it was
    last told to stop it. ``result`` is the text that a service, or a task with
    parameters, left at its end."""

    session: Key[Annotated[Session, Reference("session_id")]]
    index: Key[Annotated[int, StoredAs(name="idx")]]
    id: Fixed[KernelId]
    process: Memory[Process]
    resources: Memory[Resources]
    status: KernelStatus
    task_index: Fixed[LongInteger | None] = None
    attempt: Fixed[int] = 0
    generation: int = 0
    agent_id: AgentId | None = None
    shares: Annotated[
        tuple[DeviceShare, ...], StoredAs(Text, dump_shares, load_shares, True, "devices")
    ] = ()
    ports: Annotated[tuple[int, ...], StoredAs(Text, dump_list, load_list, True)] = ()
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: Reason | None = None
    failure: Memory[Reason | None] = None
    failed_at: float | None = None
    next_try_may_be_lost: Memory[bool] = False
    recalled: Memory[bool] = False
    stop_sent_at: Memory[float | None] = None
    result: Seldom[LongText | None] = None

    @property
    def ended_well(self) -> bool:
        """Whether the kernel ended by itself, with exit code 0."""
        return self.status is KernelStatus.TERMINATED and self.exit_code == 0


@dataclass(slots=True, eq=False)
class Allocation:
    """A row of the ledger: the room of a kernel's generation on an agent (design: The ledger).

    ``charged`` is false in an agent's backlog. ``boot_id`` is the agent's when the row was made, or
    when it last said after a reboot that the kernel had ended: another one proves the kernel gone.
    Rows are kept by their ``key``.
    """

    kernel_id: Key[KernelId]
    generation: Key[int]
    agent_id: Fixed[AgentId]
    charged: bool
    resources: Memory[Resources]
    shares: Annotated[
        tuple[DeviceShare, ...], StoredAs(Text, dump_shares, load_shares, name="devices")
    ]
    boot_id: str
    since: Fixed[float]
    key: Memory[LedgerKey] = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.kernel_id, self.generation


def _dump_matrix(matrix: Matrix | None) -> str | None:
    return None if matrix is None else matrix.model_dump_json(exclude_defaults=True)


AGENTS = RecordTable(
    Agent,
    "agents",
    AGENT_TABLE,
    lagging=("seen_at",),  # heartbeats cost no commit
)
JOBS = RecordTable(
    Job,
    "jobs",
    JOB_TABLE,
    computed={
        "task_count": Computed(BigInteger, "spec.tasks"),  # the tasks' indexes are below it
        "only": Computed(Text, "spec.only", lambda only: only and str(only), may_be_null=True),
        # Beside the spec, from which it is cut where it is long.
        "matrix": Computed(Text, "spec.matrix", _dump_matrix, may_be_null=True),
        **spec_columns(),
    },
)
TASKS = RecordTable(Task, "tasks", TASK_TABLE, differ=("idx", "session_id", "kernel_id"))
SESSIONS = RecordTable(
    Session,
    "sessions",
    SESSION_TABLE,
    computed=spec_columns(),
    differ=("id", "name"),
    alike=True,
    lagging=("retry_at",),  # the failure for which a session waits is reported again
)
KERNELS = RecordTable(
    Kernel,
    "kernels",
    KERNEL_TABLE,
    computed={"job_id": Computed(String, "session.job", id_or_none, may_be_null=True)},
    differ=("session_id", "idx", "id", "task_index", "agent_id"),
    number="idx",
)
ALLOCATIONS = RecordTable(
    Allocation,
    "allocations",
    computed={
        "cpu_milli": Computed(BigInteger, "resources.cpu_milli"),
        "memory_bytes": Computed(BigInteger, "resources.memory_bytes"),
        "disk_bytes": Computed(BigInteger, "resources.disk_bytes"),
        "gpu_milli": Computed(BigInteger, "resources.gpu_milli"),
        "extra": Computed(Text, "resources.extra", dump_extra),
    },
    differ=("kernel_id", "agent_id"),
)
