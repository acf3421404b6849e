"""Reasons of a slice's machines: why they do not come, or are gone."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, UNKNOWN, Reason
from muster.core.reasons.wording import after_colon, counted, lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRefused(Reason):
    code = ReasonCode.PROVIDER_REFUSED
    kind = ReasonKind.OPERATOR

    provider: str
    outcome: str
    told: str | None = None

    def sentence(self) -> str:
        return f"provider {self.provider} did not make it ({self.outcome}){after_colon(self.told)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFailed(Reason):
    code = ReasonCode.PROVIDER_FAILED
    kind = ReasonKind.OPERATOR

    provider: str
    told: str

    def sentence(self) -> str:
        return f"provider {self.provider}: {self.told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSilent(Reason):
    code = ReasonCode.PROVIDER_SILENT
    kind = ReasonKind.OPERATOR

    timeout_s: float

    def sentence(self) -> str:
        return f"its provider did not answer within {lasting(self.timeout_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTriedAgain(Reason):
    code = ReasonCode.SLICE_TRIED_AGAIN
    kind = ReasonKind.OPERATOR

    slice: str
    tries: int
    how: str
    in_s: float | None = None

    def sentence(self) -> str:
        said = (
            f"slice {self.slice} was asked for {counted(self.tries, 'time')}, and is not made "
            f"yet: {self.how}; it is asked for "
        )
        if self.in_s:
            said += f"again in {lasting(self.in_s)}"
        else:
            said += "at this moment"
        return said

    def remedy(self) -> str:
        return f"Look at what the provider says: `muster history {self.slice}` has all of it."


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceNotMade(Reason):
    code = ReasonCode.SLICE_NOT_MADE
    kind = ReasonKind.OPERATOR

    timeout_s: float

    def sentence(self) -> str:
        return f"its provider made nothing within {lasting(self.timeout_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceNotBooted(Reason):
    code = ReasonCode.SLICE_NOT_BOOTED
    kind = ReasonKind.OPERATOR

    joined: int
    machines: int
    timeout_s: float
    machine: str = UNKNOWN
    told: str | None = None

    def sentence(self) -> str:
        said = (
            f"{self.joined} of its {counted(self.machines, 'machine')} joined within "
            f"{lasting(self.timeout_s)}"
        )
        if self.told:
            said += f"; {self.machine}: {self.told}"
        return said

    def remedy(self) -> str:
        return "Look at the machine's own log, and whether it reaches the controller."


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceNotJoined(Reason):
    code = ReasonCode.SLICE_NOT_JOINED
    kind = ReasonKind.OPERATOR

    joined: int
    machines: int
    timeout_s: float
    machine: str = UNKNOWN
    told: str | None = None

    def sentence(self) -> str:
        said = (
            f"{self.joined} of its {counted(self.machines, 'machine')} are there after "
            f"{lasting(self.timeout_s)} more"
        )
        if self.told:
            said += f"; {self.machine}: {self.told}"
        return said

    def remedy(self) -> str:
        return "Look at the other machines' own logs."


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMachineRefuses(Reason):
    code = ReasonCode.SLICE_MACHINE_REFUSES
    kind = ReasonKind.OPERATOR

    slice: str = field(metadata=PRIVATE)
    machine: str
    told: str

    def sentence(self) -> str:
        return f"its machine {self.machine} has not joined: {self.told}"

    def remedy(self) -> str:
        return "Mend the cause of these words, which are of the machine or its provider."


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMismatch(Reason):
    code = ReasonCode.SLICE_MISMATCH
    kind = ReasonKind.OPERATOR

    agent: str
    has: str
    declared: str

    def sentence(self) -> str:
        return (
            f"agent {self.agent} has {self.has}, and its pool declares {self.declared}: what it "
            "reports counts"
        )

    def remedy(self) -> str:
        return "Mend the machine's driver, or the pool's `machine`."


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSilent(Reason):
    code = ReasonCode.SLICE_SILENT
    kind = ReasonKind.OPERATOR

    slice: str
    machine: str
    silent_s: float
    others: int
    held: str | None = None
    gone: bool = False
    in_s: float | None = None
    endless: bool = False

    def sentence(self) -> str:
        said = f"its machine {self.machine} has been silent for {lasting(self.silent_s)}"
        if self.others:
            said += f", and so have been {self.others} more"
        said += ": "
        if self.held:
            said += f"nothing is replaced while pool {self.held} stands still"
        if self.gone:
            said += "the slice is replaced if the next list of its provider lacks the machine, too"
        if self.in_s:
            said += f"the slice is replaced in {lasting(self.in_s)} unless it is heard again"
        if self.endless:
            said += "the slice is replaced once its provider lists it no more"
        return said

    def remedy(self) -> str:
        return (
            "Nothing if it was only cut off: it comes back by itself. `muster slices delete "
            f"{self.slice}` replaces the slice at once."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMachineGone(Reason):
    code = ReasonCode.SLICE_MACHINE_GONE
    kind = ReasonKind.OPERATOR

    machine: str

    def sentence(self) -> str:
        return f"its machine {self.machine} is silent, and its provider has it no more"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMachineDead(Reason):
    code = ReasonCode.SLICE_MACHINE_DEAD
    kind = ReasonKind.OPERATOR

    machine: str
    silent_s: float

    def sentence(self) -> str:
        return (
            f"its machine {self.machine} has been silent for {lasting(self.silent_s)}, though "
            "its provider lists it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTakenAway(Reason):
    code = ReasonCode.SLICE_TAKEN_AWAY
    kind = ReasonKind.WAITING

    machine: str
    in_s: float

    def sentence(self) -> str:
        return f"its provider takes machine {self.machine} away in {lasting(self.in_s)}"
