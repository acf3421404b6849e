"""What is alive, in memory: the mirror's records. Only a unit of work changes them.

A record lives here from its creation until the commit after its end; from then on it is read from
SQL. The objects refer to each other, so that a pass needs no look-ups.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from muster.core.ids import AgentId, JobId, KernelId, SessionId
from muster.core.owner import Owner
from muster.core.reasons import Reason, ReasonCode
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.results import SchedulingResult
from muster.core.specs import JobSpec, SessionSpec, SessionType
from muster.core.specs.session import Process
from muster.core.states import (
    AgentBar,
    AgentStatus,
    JobState,
    KernelStatus,
    SessionStatus,
    TaskState,
)

LedgerKey = tuple[KernelId, int]
"""A kernel and its generation."""
MAX_ABSENCES = 64
"""Of an agent, that are remembered; in earlier ones it counts as heard."""


@dataclass(slots=True, eq=False)
class Agent:
    """A machine. ``barred`` says why it gets nothing new, if it does not, ``bar_note`` in an
    operator's words; ``leave_by`` is when work must have left one that is draining.

    ``boot_id`` and ``instance`` tell the boot and the agent's directory whose kernels are its own,
    ``supervisor`` the process that holds them. ``machine`` is the controller's own, by its id, for
    an agent that runs there too; else it is empty.
    ``lease_s`` is the longest kernel lease that it may count with, ``term_s`` the one that is
    granted now. ``silence_s`` is the longest for which it may have been silent while it is ALIVE.
    ``seen_at`` moves with each message and is stored with other changes only.

    Not stored are ``term_s``; ``connected``, that it has a stream to this process, since
    ``connected_at``; ``left_at``, since when it has none, and the latest of its ``absences``, each
    from when it left until it was back; ``leased_until``, when the last of the leases ends that it
    may count with, which is exact while it is silent; ``disk_full``, what it says of its disk;
    ``clock_offset_s``, by how much the controller's clock is ahead of its own, at most; and
    ``reported_foreign``, that it told of a kernel not its own.
    """

    id: AgentId
    name: str
    group: str
    status: AgentStatus
    status_changed_at: float
    credential_hash: str
    boot_id: str
    version: str
    host: str
    capacity: Resources
    devices: tuple[Device, ...]
    attributes: dict[str, str]
    joined_at: float
    seen_at: float
    reason: Reason | None = None
    barred: AgentBar | None = None
    bar_note: str = ""
    leave_by: float | None = None
    connected: bool = False
    connected_at: float = 0.0
    left_at: float | None = None
    absences: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MAX_ABSENCES))
    instance: str = ""
    lease_s: float = 0.0
    silence_s: float = 0.0
    machine: str = ""
    supervisor: str = ""
    term_s: float = 0.0
    leased_until: float = -math.inf
    disk_full: bool = False
    clock_offset_s: float = 0.0
    reported_foreign: bool = False

    def remember(self, before: "Agent") -> None:
        """Know what is not stored as it was known ``before`` the state was read again."""
        self.seen_at = max(self.seen_at, before.seen_at)
        self.connected_at, self.absences = before.connected_at, before.absences
        self.disk_full = before.disk_full
        self.clock_offset_s, self.reported_foreign = before.clock_offset_s, before.reported_foreign


@dataclass(slots=True, eq=False)
class Job:
    """Batch work. ``tasks_total`` is how many tasks it runs; ``counts`` holds the number of their
    rows by state. The tasks from the ``next_task``-th on have no rows yet and are PENDING.
    ``tasks`` are the live rows by index; ``waiting`` those of them that have no session and need
    one. ``retry_of`` is the job of which this one runs tasks again."""

    id: JobId
    name: str
    owner: Owner
    group: str
    spec: JobSpec
    resources: Resources
    status: JobState
    status_changed_at: float
    tasks_total: int
    next_task: int
    counts: dict[TaskState, int]
    submitted_at: float
    started_at: float | None = None
    finished_at: float | None = None
    reason: Reason | None = None
    retry_of: JobId | None = None
    tasks: "dict[int, Task]" = field(default_factory=dict)
    waiting: "dict[int, Task]" = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Task:
    """One replica of a job; ``attempt`` counts from 1, 0 before the first. ``session_id`` is the
    current attempt's, None between two; ``kernel_id`` is the last one's. ``lost_starts`` are the
    attempts in a row that were lost before they began, ``retry_at`` the earliest moment of the next
    after those; neither is stored."""

    job: Job
    index: int
    status: TaskState
    status_changed_at: float
    attempt: int = 0
    failure_count: int = 0
    preemption_count: int = 0
    session_id: SessionId | None = None
    kernel_id: KernelId | None = None
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    reason: Reason | None = None
    lost_starts: int = 0
    retry_at: float = 0.0


_NONE: "Mapping[Kernel, None]" = MappingProxyType({})


class Tally:
    """A session's kernels, counted, so that nobody who looks at a gang need look at all of it."""

    __slots__ = ("_by_status", "_unjudged", "ended_well", "failed", "grace_s", "held")

    def __init__(self, kernels: "Sequence[Kernel]") -> None:
        self.ended_well = sum(kernel.ended_well for kernel in kernels)
        """How many ended with 0."""
        self.failed: dict[Kernel, None] = {}
        """Those that have a ``failure``."""
        self.held: dict[Kernel, None] = {}
        """Those of a gang that agents hold, ready to run."""
        self.grace_s = max((kernel.process.grace for kernel in kernels), default=0.0)
        """The longest that any of them may take to end."""
        self._by_status = Counter([kernel.status for kernel in kernels])
        self._unjudged: list[Kernel] = []

    def moved(self, kernel: "Kernel", before: KernelStatus) -> None:
        """The kernel has its status now, and had the one ``before``."""
        self._by_status[before] -= 1
        self._by_status[kernel.status] += 1
        if kernel.ended_well:
            self.ended_well += 1

    def among(self, statuses: Collection[KernelStatus]) -> int:
        """How many kernels have one of these statuses."""
        return sum(count for status, count in self._by_status.items() if status in statuses)

    def note_failure(self, kernel: "Kernel") -> None:
        """The kernel has a ``failure``, or has none any more."""
        if kernel.failure is None:
            self.failed.pop(kernel, None)
        else:
            self.failed[kernel] = None
            self._unjudged.append(kernel)

    def take_unjudged(self) -> "Sequence[Kernel]":
        """Those that have failed and that nobody has looked at yet."""
        unjudged, self._unjudged = self._unjudged, []
        return unjudged

    def note_held(self, kernel: "Kernel", held: bool) -> None:
        """The agent holds the kernel, ready to run, or no longer."""
        if held:
            self.held[kernel] = None
        else:
            self.held.pop(kernel, None)


class LoneTally:
    """The same of a session's only kernel, which tells all of it itself: such sessions are many."""

    __slots__ = ("_is_unjudged", "_kernel")

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._is_unjudged = False

    @property
    def ended_well(self) -> int:
        return int(self._kernel.ended_well)

    @property
    def failed(self) -> "Mapping[Kernel, None]":
        return _NONE if self._kernel.failure is None else {self._kernel: None}

    @property
    def held(self) -> "Mapping[Kernel, None]":
        return _NONE  # it waits at no barrier

    @property
    def grace_s(self) -> float:
        return self._kernel.process.grace

    def moved(self, kernel: "Kernel", before: KernelStatus) -> None:
        pass

    def among(self, statuses: Collection[KernelStatus]) -> int:
        return int(self._kernel.status in statuses)

    def note_failure(self, kernel: "Kernel") -> None:
        self._is_unjudged = kernel.failure is not None

    def take_unjudged(self) -> "Sequence[Kernel]":
        if not self._is_unjudged:
            return ()
        self._is_unjudged = False
        return (self._kernel,)

    def note_held(self, kernel: "Kernel", held: bool) -> None:
        pass


def tally_of(kernels: "Sequence[Kernel]") -> Tally | LoneTally:
    return LoneTally(kernels[0]) if len(kernels) == 1 else Tally(kernels)


_EMPTY = Tally(())


@dataclass(slots=True, eq=False)
class Session:
    """What is placed. ``queued_at`` is when it (again) became PENDING; ``tries`` belong to the
    phase it is in; ``barrier_opened_at`` is when a gang's kernels were first told to run, so that
    some may have; ``retry_at`` is the earliest moment of the next try, and ``stop_at`` the first
    moment at which one of its kernels has to be told to stop. ``unfit`` are the agents that said
    that they cannot run it, and why. ``tally`` is kept by units of work; it, ``stop_at`` and
    ``unfit`` are not stored."""

    id: SessionId
    job: Job | None
    name: str | None
    type: SessionType
    owner: Owner
    group: str
    priority: int
    spec: SessionSpec | None
    status: SessionStatus
    status_changed_at: float
    created_at: float
    queued_at: float
    kernels: "Sequence[Kernel]" = ()
    tries: int = 0
    retry_at: float = 0.0
    reschedules: int = 0
    failed_agents: tuple[AgentId, ...] = ()
    started_at: float | None = None
    finished_at: float | None = None
    barrier_opened_at: float | None = None
    reason: Reason | None = None
    repeats: "tuple[Repeat, ...]" = ()
    stop_at: float = 0.0
    tally: Tally | LoneTally = _EMPTY
    unfit: tuple[tuple[AgentId, Reason], ...] = ()

    @property
    def timeout_s(self) -> float | None:
        owner = self.spec or (self.job and self.job.spec)
        return owner.timeout if owner else None

    @property
    def scheduling_timeout_s(self) -> float | None:
        owner = self.spec or (self.job and self.job.spec)
        return owner.scheduling_timeout if owner else None


@dataclass(slots=True, eq=False)
class Repeat:
    """A history row of a session, ``seq``, with which equal ones merge; ``written_at`` is when its
    count was last stored."""

    phase: str
    result: SchedulingResult
    reasons: tuple[Reason, ...]
    count: int
    last_at: float
    written_at: float
    seq: int

    def is_of(self, phase: str, result: SchedulingResult, codes: Sequence[ReasonCode]) -> bool:
        """Whether a row of this phase, result and reasons is the same one again."""
        if self.phase != phase or self.result is not result or len(self.reasons) != len(codes):
            return False
        return all(one.code is code for one, code in zip(self.reasons, codes, strict=True))


@dataclass(slots=True, eq=False)
class Kernel:
    """One process tree on one agent. ``failure`` is the last failed try of the phase it is in;
    ``failed_at`` when the last one failed, by the agent's clock: what is told again of it is no
    other failure. ``stop_sent_at`` is when it was last told to stop."""

    id: KernelId
    session: Session
    index: int
    process: Process
    resources: Resources
    status: KernelStatus
    status_changed_at: float
    task_index: int | None = None
    attempt: int = 0
    generation: int = 0
    agent_id: AgentId | None = None
    shares: tuple[DeviceShare, ...] = ()
    ports: tuple[int, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: Reason | None = None
    failure: Reason | None = None
    failed_at: float | None = None
    stop_sent_at: float | None = None

    @property
    def ended_well(self) -> bool:
        """Whether it ended by itself, with 0."""
        return self.status is KernelStatus.TERMINATED and self.exit_code == 0


@dataclass(slots=True, eq=False)
class Allocation:
    """A row of the ledger: what a kernel's generation holds on an agent (DESIGN rule 5).

    ``charged`` is false in an agent's backlog. ``boot_id`` is the agent's when it was made: a new
    one proves the kernel gone. Whoever keeps rows does so by their ``key``.
    """

    kernel_id: KernelId
    generation: int
    agent_id: AgentId
    charged: bool
    resources: Resources
    shares: tuple[DeviceShare, ...]
    boot_id: str
    since: float
    key: LedgerKey = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.kernel_id, self.generation
