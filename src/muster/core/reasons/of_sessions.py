"""Reasons of sessions: what else they wait for, and why they were stopped or given up."""

from dataclasses import dataclass

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import Reason
from muster.core.reasons.wording import counted, in_brackets, lasting, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBackoff(Reason):
    code = ReasonCode.RETRY_BACKOFF
    kind = ReasonKind.WAITING

    seconds: float

    def sentence(self) -> str:
        return f"the next try is in {shown(self.seconds)} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentIsUnreachable(Reason):
    code = ReasonCode.AGENT_UNREACHABLE
    kind = ReasonKind.WAITING

    agent: str
    silent_s: float
    ends_in_s: float | None = None
    endless: bool = False

    def sentence(self) -> str:
        said = (
            f"agent {self.agent} has been silent for {shown(self.silent_s)} s; its kernels count "
            "as running until "
        )
        if not self.endless:
            said += "their lease ends"
        if self.ends_in_s:
            said += f", in {shown(self.ends_in_s)} s"
        if self.endless:
            said += "it is heard again, or seen gone: beside the controller a lease has no end"
        return said

    def remedy(self) -> str:
        return (
            "Nothing if it was only cut off, or the controller has just begun: it comes back by "
            "itself. Else start the agent again; if its machine is gone or was rebooted, an "
            f"administrator says so with `muster agents remove --lost {self.agent}`."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningUp(Reason):
    code = ReasonCode.CLEANING_UP
    kind = ReasonKind.WAITING

    agent: str

    def sentence(self) -> str:
        return f"the processes of the last attempt are not yet confirmed gone on agent {self.agent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtBarrier(Reason):
    code = ReasonCode.AT_BARRIER
    kind = ReasonKind.WAITING

    ready: int
    kernels: int
    agent: str | None = None

    def sentence(self) -> str:
        said = (
            f"{self.ready} of {counted(self.kernels, 'kernel')} of the gang are ready to run; "
            "none runs before all of them can"
        )
        if self.agent:
            said += f", and agent {self.agent} has not said so yet"
        return said

    def remedy(self) -> str:
        return "Nothing: it starts when the last is ready, or is placed anew."


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomTakenMeanwhile(Reason):
    code = ReasonCode.LOST_RACE
    kind = ReasonKind.WAITING

    def sentence(self) -> str:
        return "the room it was given was taken meanwhile"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerError(Reason):
    code = ReasonCode.HANDLER_ERROR
    kind = ReasonKind.OPERATOR

    handler: str
    error: str

    def sentence(self) -> str:
        return f"{self.handler} raised {self.error}"

    def remedy(self) -> str:
        return "This is a defect of Muster; please report it."


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesNotUsed(Reason):
    code = ReasonCode.VARIABLES_NOT_USED
    kind = ReasonKind.REQUEST

    names: str
    several: bool

    def sentence(self) -> str:
        them = "them" if self.several else "it"
        return f"its values of {self.names} are not used: Muster sets {them} for each kernel"

    def remedy(self) -> str:
        them = "them" if self.several else "it"
        return f"Leave {them} out of `env`; the command may set another value by itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerSuspected(Reason):
    code = ReasonCode.STRAGGLER
    kind = ReasonKind.WAITING

    member: str
    agent: str
    device: int
    what: str

    def sentence(self) -> str:
        return (
            f"{self.member} may hold up its gang: GPU {self.device} of agent {self.agent} is "
            f"unlike the others, {self.what}"
        )

    def remedy(self) -> str:
        return (
            "Nothing happens by itself. An operator can have the machine checked, for which its "
            f"work leaves: `muster agents check {self.agent}`."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Reason):
    code = ReasonCode.CANCELLED
    kind = ReasonKind.WAITING

    by: str
    forced: bool = False

    def sentence(self) -> str:
        said = f"cancelled by {self.by}"
        if self.forced:
            said += ", with force"
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(Reason):
    code = ReasonCode.COMPLETED
    kind = ReasonKind.WAITING

    def sentence(self) -> str:
        return "all kernels ended well"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEnded(Reason):
    code = ReasonCode.KERNEL_ENDED
    kind = ReasonKind.REQUEST

    index: int
    how: str

    def sentence(self) -> str:
        return f"kernel {self.index} ended: {self.how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEnded(Reason):
    code = ReasonCode.LEADER_ENDED
    kind = ReasonKind.WAITING

    index: int

    def sentence(self) -> str:
        return f"kernel {self.index}, its leader, ended well"


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersRunOn(Reason):
    code = ReasonCode.OTHERS_RUN_ON
    kind = ReasonKind.REQUEST

    ended: int
    kernels: int
    index: int
    since_s: float
    left: int

    def sentence(self) -> str:
        return (
            f"{self.ended} of its {counted(self.kernels, 'kernel')} ended well, kernel "
            f"{self.index} first, {lasting(self.since_s)} ago; it is over once "
            f"{counted(self.left, 'other')} ended too"
        )

    def remedy(self) -> str:
        return (
            f"With `leader: {self.index}` in its spec it is over once kernel {self.index} ends "
            "well, and the others are stopped then. `muster cancel` stops them now."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted(Reason):
    code = ReasonCode.PREEMPTED
    kind = ReasonKind.WAITING

    priority: int

    def sentence(self) -> str:
        return f"displaced by work of priority {self.priority}; it goes back to the queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedForGood(Reason):
    code = ReasonCode.PREEMPTED_FOR_GOOD
    kind = ReasonKind.WAITING

    priority: int

    def sentence(self) -> str:
        return f"ended for work of priority {self.priority}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained(Reason):
    code = ReasonCode.DRAINED
    kind = ReasonKind.OPERATOR

    agent: str
    note: str

    def sentence(self) -> str:
        return (
            f"agent {self.agent} was drained{in_brackets(self.note)} and its time to leave was over"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingTimeout(Reason):
    code = ReasonCode.SCHEDULING_TIMEOUT
    kind = ReasonKind.REQUEST

    timeout_s: float

    def sentence(self) -> str:
        return f"not started within its scheduling timeout of {shown(self.timeout_s)} s"

    def remedy(self) -> str:
        return "Look at the reasons before it in `muster history`."


@dataclass(frozen=True, slots=True, kw_only=True)
class RescheduleLimit(Reason):
    code = ReasonCode.RESCHEDULE_LIMIT
    kind = ReasonKind.OPERATOR

    tried: int
    how: str

    def sentence(self) -> str:
        return f"could not be started on {counted(self.tried, 'placement')}; the last: {self.how}"

    def remedy(self) -> str:
        return "Look at `muster history` and at those agents."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAgentAble(Reason):
    code = ReasonCode.NO_AGENT_ABLE
    kind = ReasonKind.REQUEST

    how: str

    def sentence(self) -> str:
        return f"no agent can run it, each has said why; the last: {self.how}"

    def remedy(self) -> str:
        return "Mend what they say, then hand it in again."


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseExpired(Reason):
    code = ReasonCode.PHASE_EXPIRED
    kind = ReasonKind.OPERATOR

    phase: str
    timeout_s: float

    def sentence(self) -> str:
        return f"{self.phase} took longer than {shown(self.timeout_s)} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseGaveUp(Reason):
    code = ReasonCode.PHASE_GAVE_UP
    kind = ReasonKind.OPERATOR

    phase: str
    tries: int
    how: str

    def sentence(self) -> str:
        return f"{self.phase} failed {counted(self.tries, 'time')}: {self.how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reprioritised(Reason):
    code = ReasonCode.REPRIORITISED
    kind = ReasonKind.WAITING

    before: int
    after: int
    by: str

    def sentence(self) -> str:
        return f"priority {self.before} → {self.after}, by {self.by}"
