"""Reasons of a job's recovery from broken machines.

A reason names a task, machines and what was found, and never the job, which may be of another."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import after_colon, and_more, counted, lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryChecks(Reason):
    code = ReasonCode.RECOVERY_CHECKS
    kind = ReasonKind.WAITING

    index: int
    pending: int
    agents: int
    in_s: float
    agent: str

    def sentence(self) -> str:
        return (
            f"task {self.index} failed: the check of {self.pending} of "
            f"{counted(self.agents, 'agent')} is awaited, at most {lasting(self.in_s)} more"
        )

    def remedy(self) -> str:
        return (
            f"Nothing: it goes on once the check has ended. `muster why {self.agent}` tells how "
            "far it is."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryHeals(Reason):
    code = ReasonCode.RECOVERY_HEALS
    kind = ReasonKind.WAITING

    agent: str
    others: int
    in_s: float
    replace: bool
    found: str | None = None

    def sentence(self) -> str:
        said = (
            f"waits until agent {self.agent}{and_more(self.others)} is healthy again, at most "
            f"{lasting(self.in_s)} more"
        )
        if self.replace:
            said += ", and for any other that fits from then on"
        return said + after_colon(self.found)

    def remedy(self) -> str:
        return (
            f"Nothing: it is restarted by itself. `muster why {self.agent}` tells how far the "
            "healing is."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRestarts(Reason):
    code = ReasonCode.RECOVERY_RESTARTS
    kind = ReasonKind.WAITING

    restart: int
    most: int

    def sentence(self) -> str:
        said = "is being restarted after a fault of a machine"
        if self.restart:
            said += f": restart {self.restart}"
        else:
            said += ", which costs none"
        return said + f" of at most {counted(self.most, 'restart')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTaskFailed(Reason):
    code = ReasonCode.RECOVERY_TASK_FAILED
    kind = ReasonKind.WAITING

    index: int
    how: str
    agents: int

    def sentence(self) -> str:
        return (
            f"task {self.index} failed ({self.how}): has {counted(self.agents, 'agent')} checked "
            "on which it ran"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryMachineLeft(Reason):
    code = ReasonCode.RECOVERY_MACHINE_LEFT
    kind = ReasonKind.WAITING

    index: int
    how: str
    agents: int

    def sentence(self) -> str:
        return (
            f"task {self.index} had to leave its machine ({self.how}): has "
            f"{counted(self.agents, 'agent')} checked"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryStopsAll(Reason):
    code = ReasonCode.RECOVERY_STOPS_ALL
    kind = ReasonKind.WAITING

    index: int

    def sentence(self) -> str:
        return (
            f"stopped, because task {self.index} failed and all tasks of the job wait with it "
            "(recovery.scope); it begins again with them, and is charged nothing"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryFaulty(Reason):
    code = ReasonCode.RECOVERY_FAULTY
    kind = ReasonKind.WAITING

    agent: str
    others: int
    found: str | None = None

    def sentence(self) -> str:
        return (
            f"agent {self.agent}{and_more(self.others)} was found faulty, and is being "
            f"healed{after_colon(self.found)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryHealthy(Reason):
    code = ReasonCode.RECOVERY_HEALTHY
    kind = ReasonKind.WAITING

    agents: int
    index: int

    def sentence(self) -> str:
        return (
            f"{counted(self.agents, 'agent')} found healthy: the retries of task {self.index} "
            "decide"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryUnchecked(Reason):
    code = ReasonCode.RECOVERY_UNCHECKED
    kind = ReasonKind.WAITING

    pending: int
    agents: int
    timeout_s: float
    index: int

    def sentence(self) -> str:
        said = f"{self.pending} of {counted(self.agents, 'agent')} could not be checked"
        if self.timeout_s:
            said += f" within {lasting(self.timeout_s)}"
        return said + f", and no other is faulty: the retries of task {self.index} decide"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryMachineLost(Reason):
    code = ReasonCode.RECOVERY_MACHINE_LOST
    kind = ReasonKind.WAITING

    index: int
    how: str

    def sentence(self) -> str:
        said = f"task {self.index} is not to blame"
        if self.how:
            said += f": a machine was lost ({self.how})"
        return said + ": the job goes on without a check, and its restarts are not charged"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryNoFault(Reason):
    code = ReasonCode.RECOVERY_NO_FAULT
    kind = ReasonKind.REQUEST

    index: int
    how: str
    agents: int
    pending: int

    def sentence(self) -> str:
        said = (
            f"task {self.index} failed ({self.how}) with no retry left, and no fault was found "
            f"on {counted(self.agents, 'agent')}"
        )
        if self.pending:
            said += f", {self.pending} of which could not be checked"
        return said

    def remedy(self) -> str:
        return (
            "Look at its output: no machine is known to be at fault. `max_retries_failure` "
            "grants further tries."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryMachineGone(Reason):
    code = ReasonCode.RECOVERY_MACHINE_GONE
    kind = ReasonKind.WAITING

    agent: str
    others: int
    found: str | None = field(default=None, metadata=PRIVATE)
    index: int
    how: str

    def sentence(self) -> str:
        return (
            f"agent {self.agent}{and_more(self.others)} was lost before it could be checked, and "
            f"no fault was found: task {self.index} ({self.how}) counts as lost with it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryHealed(Reason):
    code = ReasonCode.RECOVERY_HEALED
    kind = ReasonKind.WAITING

    agent: str
    others: int
    found: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"agent {self.agent}{and_more(self.others)} is healthy again"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReplaced(Reason):
    code = ReasonCode.RECOVERY_REPLACED
    kind = ReasonKind.WAITING

    agent: str
    others: int
    found: str | None = field(default=None, metadata=PRIVATE)
    after_s: float | None = None

    def sentence(self) -> str:
        said = f"agent {self.agent}{and_more(self.others)} is not healthy again"
        if self.after_s:
            said += f" after {lasting(self.after_s)}"
        return said + ": any other that fits is taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRunsAgain(Reason):
    code = ReasonCode.RECOVERY_RUNS_AGAIN
    kind = ReasonKind.WAITING

    after_s: float

    def sentence(self) -> str:
        return f"its tasks run again, after {lasting(self.after_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryUsedUp(Reason):
    code = ReasonCode.RECOVERY_USED_UP
    kind = ReasonKind.OPERATOR

    agent: str
    others: int
    found: str | None = None
    restarts: int

    def sentence(self) -> str:
        return (
            f"agent {self.agent}{and_more(self.others)} was found faulty, and it was restarted "
            f"{counted(self.restarts, 'time')} before, as often as it "
            f"may{after_colon(self.found)}"
        )

    def remedy(self) -> str:
        return (
            f"Look at the machine: `muster agents show {self.agent}`. `recovery.max_restarts` "
            "grants more restarts; `muster retry` runs it again."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryNotReturned(Reason):
    code = ReasonCode.RECOVERY_NOT_RETURNED
    kind = ReasonKind.OPERATOR

    agent: str
    others: int
    found: str | None = None
    gone: bool
    timeout_s: float

    def sentence(self) -> str:
        said = f"agent {self.agent}{and_more(self.others)} was not healthy again "
        if self.gone:
            said += "and is gone"
        else:
            said += f"within {lasting(self.timeout_s)}"
        return said + f", and it takes no other (recovery.replace){after_colon(self.found)}"

    def remedy(self) -> str:
        return (
            f"Look at the machine: `muster agents show {self.agent}`. With `recovery.replace: "
            "true` it would go on elsewhere; `muster retry` runs it again."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryNotStarted(Reason):
    code = ReasonCode.RECOVERY_NOT_STARTED
    kind = ReasonKind.OPERATOR

    timeout_s: float
    how: str

    def sentence(self) -> str:
        return (
            "its tasks could not be started again within "
            f"{lasting(self.timeout_s)}{after_colon(self.how)}"
        )

    def remedy(self) -> str:
        return (
            "Look at `muster agents`; `recovery.restart_timeout` grants more time, and `muster "
            "retry` runs it again."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryJobEnded(Reason):
    code = ReasonCode.RECOVERY_JOB_ENDED
    kind = ReasonKind.WAITING

    state: str
    how: str

    def sentence(self) -> str:
        return f"the job ended as {self.state}{after_colon(self.how)}"
