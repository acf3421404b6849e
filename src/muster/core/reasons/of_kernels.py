"""Reasons of kernels: why an attempt ended, or a try to start one failed."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import after_colon, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Reason):
    code = ReasonCode.EXITED
    kind = ReasonKind.REQUEST

    exit_code: int | None = None
    told: str | None = None
    oom_kills: int | None = field(default=None, metadata=PRIVATE)
    lost_output_bytes: int | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"exited with code {shown(self.exit_code)}{after_colon(self.told)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signaled(Reason):
    code = ReasonCode.SIGNALED
    kind = ReasonKind.REQUEST

    signal: int | None = None
    told: str | None = None
    oom_kills: int | None = field(default=None, metadata=PRIVATE)
    lost_output_bytes: int | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"ended by signal {shown(self.signal)}{after_colon(self.told)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory(Reason):
    code = ReasonCode.OUT_OF_MEMORY
    kind = ReasonKind.REQUEST

    agent: str | None = field(default=None, metadata=PRIVATE)
    detail: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return "killed for using more memory than it asked for"

    def remedy(self) -> str:
        return "Ask for more memory."


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLimit(Reason):
    code = ReasonCode.DISK_LIMIT
    kind = ReasonKind.REQUEST

    agent: str | None = field(default=None, metadata=PRIVATE)
    detail: str

    def sentence(self) -> str:
        return f"killed for keeping more in its scratch directory than it may: {self.detail}"

    def remedy(self) -> str:
        return "Ask for more `disk`, or keep less there."


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandNotFound(Reason):
    code = ReasonCode.COMMAND_NOT_FOUND
    kind = ReasonKind.REQUEST

    agent: str | None = field(default=None, metadata=PRIVATE)
    detail: str

    def sentence(self) -> str:
        return f"command not found: {self.detail}"

    def remedy(self) -> str:
        return "Check the command and PATH on the agent."


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandNotExecutable(Reason):
    code = ReasonCode.COMMAND_NOT_EXECUTABLE
    kind = ReasonKind.REQUEST

    agent: str | None = field(default=None, metadata=PRIVATE)
    detail: str

    def sentence(self) -> str:
        return f"command cannot be executed: {self.detail}"

    def remedy(self) -> str:
        return "Check its permissions and format."


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout(Reason):
    code = ReasonCode.TIMEOUT
    kind = ReasonKind.REQUEST

    timeout_s: float

    def sentence(self) -> str:
        return f"ran longer than its timeout of {shown(self.timeout_s)} s"

    def remedy(self) -> str:
        return "Raise `timeout`, or do less."


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExpired(Reason):
    code = ReasonCode.LEASE_EXPIRED
    kind = ReasonKind.OPERATOR

    lease_s: str
    agent: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"stopped by its agent, which had not heard from the controller for {self.lease_s} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLost(Reason):
    code = ReasonCode.AGENT_LOST
    kind = ReasonKind.OPERATOR

    agent: str

    def sentence(self) -> str:
        return f"agent {self.agent} was silent until the kernel's lease ran out"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGivenUp(Reason):
    code = ReasonCode.AGENT_GIVEN_UP
    kind = ReasonKind.OPERATOR

    agent: str
    by: str

    def sentence(self) -> str:
        return f"the machine of agent {self.agent} is gone or was rebooted, says {self.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRebooted(Reason):
    code = ReasonCode.AGENT_REBOOTED
    kind = ReasonKind.OPERATOR

    agent: str

    def sentence(self) -> str:
        return f"the machine of agent {self.agent} rebooted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorDied(Reason):
    code = ReasonCode.SUPERVISOR_LOST
    kind = ReasonKind.OPERATOR

    agent: str
    detail: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"the process that held the kernel on agent {self.agent} died"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelVanished(Reason):
    code = ReasonCode.KERNEL_VANISHED
    kind = ReasonKind.OPERATOR

    agent: str
    detail: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"agent {self.agent} no longer knows the kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverStarted(Reason):
    code = ReasonCode.NEVER_STARTED
    kind = ReasonKind.WAITING

    agent: str | None = field(default=None, metadata=PRIVATE)
    detail: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return "taken back before it started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Reason):
    code = ReasonCode.STOPPED
    kind = ReasonKind.WAITING

    agent: str | None = field(default=None, metadata=PRIVATE)
    detail: str

    def sentence(self) -> str:
        return f"stopped on request: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkdirMissing(Reason):
    code = ReasonCode.WORKDIR_MISSING
    kind = ReasonKind.REQUEST

    agent: str
    detail: str

    def sentence(self) -> str:
        return f"the working directory cannot be entered on agent {self.agent}: {self.detail}"

    def remedy(self) -> str:
        return "Create it there, let the user enter it as whom the work runs, or change workdir."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAccountOnAgent(Reason):
    code = ReasonCode.NO_ACCOUNT
    kind = ReasonKind.OPERATOR

    agent: str
    detail: str

    def sentence(self) -> str:
        return f"agent {self.agent} has no account for its owner: {self.detail}"

    def remedy(self) -> str:
        return "Map the user to an account of that machine: `muster agent --map-user USER=ACCOUNT`."


@dataclass(frozen=True, slots=True, kw_only=True)
class UidClashOnAgent(Reason):
    code = ReasonCode.UID_CLASH
    kind = ReasonKind.OPERATOR

    agent: str
    detail: str

    def sentence(self) -> str:
        return f"its owner cannot have its uid of this cluster on agent {self.agent}: {self.detail}"

    def remedy(self) -> str:
        return (
            "Free the uid on that machine, or map the user to an account of it: `muster agent "
            "--map-user USER=ACCOUNT`."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoUidOnAgent(Reason):
    code = ReasonCode.NO_UID
    kind = ReasonKind.OPERATOR

    agent: str
    detail: str

    def sentence(self) -> str:
        return f"its owner has no uid on agent {self.agent}: {self.detail}"

    def remedy(self) -> str:
        return (
            "Start the controller with a larger --uid-range, or map the user to an account of "
            "that machine: `muster agent --map-user USER=ACCOUNT`."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePathRefused(Reason):
    code = ReasonCode.BAD_FILE_PATH
    kind = ReasonKind.REQUEST

    agent: str | None = field(default=None, metadata=PRIVATE)
    detail: str

    def sentence(self) -> str:
        return f"a file's path leaves the directory: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFull(Reason):
    code = ReasonCode.DISK_FULL
    kind = ReasonKind.OPERATOR

    agent: str
    detail: str

    def sentence(self) -> str:
        return f"the disk of agent {self.agent} is full: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoProcesses(Reason):
    code = ReasonCode.NO_PROCESSES
    kind = ReasonKind.OPERATOR

    agent: str
    detail: str

    def sentence(self) -> str:
        return f"agent {self.agent} cannot start another process: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPortsOnAgent(Reason):
    code = ReasonCode.NO_PORTS
    kind = ReasonKind.OPERATOR

    agent: str
    detail: str

    def sentence(self) -> str:
        return f"agent {self.agent} has no free port: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortInUseOnAgent(Reason):
    code = ReasonCode.PORT_IN_USE
    kind = ReasonKind.WAITING

    port: int | None = None
    agent: str

    def sentence(self) -> str:
        return f"port {shown(self.port)} is in use on the machine of agent {self.agent}"

    def remedy(self) -> str:
        return "Nothing: other agents are tried, and this one again after a while."


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelNotCreated(Reason):
    code = ReasonCode.CREATE_FAILED
    kind = ReasonKind.OPERATOR

    agent: str
    detail: str

    def sentence(self) -> str:
        return f"agent {self.agent} could not start it: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopUnconfirmed(Reason):
    code = ReasonCode.STOP_UNCONFIRMED
    kind = ReasonKind.OPERATOR

    agent: str
    index: int

    def sentence(self) -> str:
        return (
            f"agent {self.agent} was told to stop kernel {self.index}, and has not reported its end"
        )

    def remedy(self) -> str:
        return (
            "Look at the process there: it may wait for a disk or a driver. Its room stays charged."
        )
