"""Reasons of single agents: why one cannot take work, and changes of it."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import amount, counted, differences, in_brackets, lasting, shown
from muster.core.settings import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class LacksFree(Reason):
    code = ReasonCode.LACKS_FREE
    kind = ReasonKind.WAITING

    resource: str
    unit: str
    requested: int
    capacity: int
    free: int

    def sentence(self) -> str:
        return (
            f"{self.resource}: {amount(self.requested, self.unit)} asked, "
            f"{amount(self.free, self.unit)} of {amount(self.capacity, self.unit)} free"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LacksCapacity(Reason):
    code = ReasonCode.LACKS_CAPACITY
    kind = ReasonKind.REQUEST

    resource: str
    unit: str
    requested: int
    capacity: int

    def sentence(self) -> str:
        return (
            f"{self.resource}: {amount(self.requested, self.unit)} asked, the agent has "
            f"{amount(self.capacity, self.unit)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSingleDevice(Reason):
    code = ReasonCode.NO_SINGLE_DEVICE
    kind = ReasonKind.WAITING

    resource: str = field(metadata=PRIVATE)
    unit: str
    requested: int
    capacity: int = field(metadata=PRIVATE)
    free: int

    def sentence(self) -> str:
        return (
            f"gpu: {amount(self.requested, self.unit)} of one device asked, the freest device "
            f"has {amount(self.free, self.unit)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LacksForAll(Reason):
    code = ReasonCode.LACKS_FOR_ALL
    kind = ReasonKind.WAITING

    fit: int
    kernels: int
    where: str

    def sentence(self) -> str:
        return (
            f"room for {self.fit} of {counted(self.kernels, 'kernel')}, which have to be "
            f"{self.where}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentNotAlive(Reason):
    code = ReasonCode.AGENT_NOT_ALIVE
    kind = ReasonKind.OPERATOR

    status: str

    def sentence(self) -> str:
        return f"the agent is {self.status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintNotMet(Reason):
    code = ReasonCode.CONSTRAINT_NOT_MET
    kind = ReasonKind.REQUEST

    attribute: str
    has: str
    asked: str
    others: int | None = None

    def sentence(self) -> str:
        said = f"{self.asked} asked, {self.attribute} is {self.has}"
        if self.others:
            said += f" ({counted(self.others, 'other value')} on the others)"
        return said

    def remedy(self) -> str:
        return "Ask for what agents have, or leave it out."


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDesignated(Reason):
    code = ReasonCode.NOT_DESIGNATED
    kind = ReasonKind.REQUEST

    def sentence(self) -> str:
        return "it is not one of the designated agents"

    def remedy(self) -> str:
        return "Name it, or set agents_only: false."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUnfit(Reason):
    code = ReasonCode.AGENT_UNFIT
    kind = ReasonKind.REQUEST

    def sentence(self) -> str:
        return "it said that it cannot run this"

    def remedy(self) -> str:
        return "`muster history` has what it said."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJoined(Reason):
    code = ReasonCode.AGENT_JOINED
    kind = ReasonKind.WAITING

    group: str

    def sentence(self) -> str:
        return f"joined group {self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSilent(Reason):
    code = ReasonCode.AGENT_SILENT
    kind = ReasonKind.OPERATOR

    silent_s: float

    def sentence(self) -> str:
        return f"silent for {shown(self.silent_s)} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReturned(Reason):
    code = ReasonCode.AGENT_RETURNED
    kind = ReasonKind.WAITING

    def sentence(self) -> str:
        return "speaks again"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOffersOther(Reason):
    code = ReasonCode.AGENT_OFFERS_OTHER
    kind = ReasonKind.WAITING

    changes: tuple[Difference, ...]

    def sentence(self) -> str:
        return f"its machine has changed: {differences(self.changes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRemoved(Reason):
    code = ReasonCode.AGENT_REMOVED
    kind = ReasonKind.WAITING

    by: str

    def sentence(self) -> str:
        return f"removed by {self.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRemovedAsLost(Reason):
    code = ReasonCode.AGENT_REMOVED_AS_LOST
    kind = ReasonKind.WAITING

    by: str

    def sentence(self) -> str:
        return f"removed by {self.by}, who says that its machine is gone or was rebooted"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReplaced(Reason):
    code = ReasonCode.AGENT_REPLACED
    kind = ReasonKind.WAITING

    by: str

    def sentence(self) -> str:
        return f"another machine has its name now, as {self.by} allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSliceGone(Reason):
    code = ReasonCode.AGENT_SLICE_GONE
    kind = ReasonKind.WAITING

    slice: str
    pool: str

    def sentence(self) -> str:
        return f"slice {self.slice} of pool {self.pool} is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReport(Reason):
    code = ReasonCode.FOREIGN_REPORT
    kind = ReasonKind.OPERATOR

    kernel: str
    agent: str

    def sentence(self) -> str:
        return (
            f"reported kernel {self.kernel}, which is on agent {self.agent}; that was not believed"
        )

    def remedy(self) -> str:
        return "Remove the agent, unless it is known why it says so."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBarred(Reason):
    code = ReasonCode.AGENT_BARRED
    kind = ReasonKind.OPERATOR

    bar: str
    note: str | None = None
    by: str | None = None
    agent: str | None = None

    def sentence(self) -> str:
        said = f"{self.bar}"
        if self.by:
            said += f" by {self.by}"
        return said + f"{in_brackets(self.note)}: it takes nothing new"

    def remedy(self) -> str:
        return f"`muster uncordon {self.agent or 'AGENT'}` has it take work again."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUnbarred(Reason):
    code = ReasonCode.AGENT_UNBARRED
    kind = ReasonKind.WAITING

    bar: str | None = field(default=None, metadata=PRIVATE)
    note: str | None = field(default=None, metadata=PRIVATE)
    by: str
    agent: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"takes work again, says {self.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWithheld(Reason):
    code = ReasonCode.AGENT_WITHHELD
    kind = ReasonKind.WAITING

    why: str

    def sentence(self) -> str:
        return f"{self.why}: it takes nothing new"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToLeave(Reason):
    code = ReasonCode.TO_LEAVE
    kind = ReasonKind.OPERATOR

    agent: str
    note: str
    in_s: float

    def sentence(self) -> str:
        return (
            f"agent {self.agent} is being drained{in_brackets(self.note)}: what still runs there "
            f"in {lasting(self.in_s)} is stopped"
        )

    def remedy(self) -> str:
        return "Nothing: the tasks of jobs start again on another agent."
