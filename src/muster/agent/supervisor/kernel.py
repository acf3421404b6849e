"""A kernel as the supervisor knows it, and the events that it reports about kernels."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Required, TypedDict

from muster.agent.supervisor.cgroups import Slot
from muster.agent.supervisor.output import Output
from muster.agent.supervisor.protocol import Device, KernelOrder, Key
from muster.agent.supervisor.scratch import Tenant


class Status(StrEnum):
    """The status of a kernel, as the supervisor tells it."""

    QUEUED = "queued"  # accepted; waits to be started, or for the end of another
    CREATED = "created"  # held: ready to run, waits for `go`
    STANDBY = "standby"  # queued; a process of its user spawns it when one of its shape ends
    STARTING = "starting"  # a process of its user is about to spawn it
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    CREATE_FAILED = "create_failed"


class EndReason(StrEnum):
    """The reason why a kernel ended, in the words of the protocol."""

    EXITED = "exited"
    SIGNALED = "signaled"
    OUT_OF_MEMORY = "out_of_memory"
    COMMAND_NOT_FOUND = "command_not_found"
    COMMAND_NOT_EXECUTABLE = "command_not_executable"
    STOPPED = "stopped"
    LEASE_EXPIRED = "lease_expired"
    DISK_LIMIT = "disk_limit"
    NEVER_STARTED = "never_started"
    SUPERVISOR_LOST = "supervisor_lost"
    UNKNOWN_KERNEL = "unknown_kernel"


class CreateFailure(StrEnum):
    """The reason why a kernel was not made, in the words of the protocol."""

    WORKDIR_MISSING = "workdir_missing"
    BAD_FILE_PATH = "bad_file_path"
    DISK_FULL = "disk_full"
    NO_PROCESSES = "no_processes"
    NO_ACCOUNT = "no_account"
    INTERNAL = "internal"


class Event(TypedDict, total=False):
    """One numbered fact about a kernel, as it is journalled and sent."""

    seq: int
    kernel: Required[str]
    generation: Required[int]
    kind: Required[str]  # created, started, ended, create_failed
    at: Required[float]  # seconds since the epoch
    reason: str
    detail: str
    pid: int
    exit_code: int
    signal: int
    devices: list[Device]
    device_milli: int  # of each device, in thousandths; beside `devices`
    heir: Key
    predecessor: Key
    output_dropped_bytes: int
    oom_kills: int  # its processes that were killed for lack of memory, where it ended otherwise
    result: str  # the text that it left for its agent


@dataclass(slots=True, eq=False)
class OwnKernel:
    """One kernel, an (id, generation), from its acceptance until its end is acknowledged."""

    key: Key
    shape: str = ""
    devices: tuple[Device, ...] = ()
    device_milli: int = 1000
    order: KernelOrder | None = None  # None once it has ended, so that its template can go
    status: Status = Status.QUEUED
    prefilled: bool = False  # prefilled: it has no room until another ends, or room is granted
    predecessor: Key | None = None  # whose devices it inherited
    heir: "OwnKernel | None" = (
        None  # the kernel that a process of its user has spawned in its place
    )
    waits_for: "OwnKernel | None" = None  # an older generation that must be gone first
    successor: "OwnKernel | None" = None  # the newer generation that waits for this one
    announced: bool = False  # an event has told its devices

    uid: int = -1  # the user that it runs as
    may_run: bool = False  # `go` was said of a held kernel

    pid: int = 0
    started_at: float = 0.0
    born_ticks: tuple[int, int] = (0, 0)  # bounds of its start time, as in /proc/<pid>/stat
    wait_status: int | None = None  # of its main process, once reaped
    orphans: set[int] = field(default_factory=set)  # its processes whose parent is the supervisor
    output: Output | None = None
    slot: Slot | None = None
    scratch: str = ""
    tenant: Tenant | None = None  # whose the scratch directory is; None: there is none

    stop_reason: EndReason | None = None
    stop_detail: str = ""
    stop_deadline_s: float = 0.0
    killed: bool = False
    is_lost: bool = False  # it ended with a dead supervisor, and nobody has seen how
    last_final_seq: int = 0  # of the newest event after whose acknowledgement it may be forgotten

    @property
    def id(self) -> str:
        return self.key[0]

    @property
    def generation(self) -> int:
        return self.key[1]

    @property
    def own_grace_s(self) -> float:
        """The grace of its order, for a stop that names none."""
        return self.order.template.grace_s if self.order is not None else 0.0

    @property
    def in_grace(self) -> bool:
        """Whether the rest of its tree was asked to end and still has time."""
        return self.stop_reason is not None and not self.killed

    def lose(self, detail: str) -> None:
        """Note that its end will never be reported; if it was being stopped, that remains the
        reason of its end."""
        if self.stop_reason is None:
            self.stop_reason, self.stop_detail = EndReason.SUPERVISOR_LOST, detail
        self.status, self.killed = Status.STOPPING, True
