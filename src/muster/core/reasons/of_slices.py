"""Reasons of slices: why one is made, stays, or goes."""

from dataclasses import dataclass

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import Reason
from muster.core.reasons.wording import amount, counted, lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceForDemand(Reason):
    code = ReasonCode.SLICE_FOR_DEMAND
    kind = ReasonKind.WAITING

    asks: str
    kernels: int | None = None

    def sentence(self) -> str:
        said = f"work waits that asks for {self.asks}"
        if self.kernels:
            said += f" in each of {counted(self.kernels, 'kernel')}"
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceForMin(Reason):
    code = ReasonCode.SLICE_FOR_MIN
    kind = ReasonKind.WAITING

    pool: str
    min_slices: int

    def sentence(self) -> str:
        return f"pool {self.pool} is to have at least {counted(self.min_slices, 'slice')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceForBuffer(Reason):
    code = ReasonCode.SLICE_FOR_BUFFER
    kind = ReasonKind.WAITING

    pool: str
    buffer_slices: int

    def sentence(self) -> str:
        return f"pool {self.pool} keeps {counted(self.buffer_slices, 'idle slice')} ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceDeletedBy(Reason):
    code = ReasonCode.SLICE_DELETED_BY
    kind = ReasonKind.WAITING

    by: str

    def sentence(self) -> str:
        return f"{self.by} deletes it"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceGivenUp(Reason):
    code = ReasonCode.SLICE_GIVEN_UP
    kind = ReasonKind.WAITING

    by: str

    def sentence(self) -> str:
        return f"{self.by} vouches that its machines are off for good"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePoolDeleted(Reason):
    code = ReasonCode.SLICE_POOL_DELETED
    kind = ReasonKind.WAITING

    by: str

    def sentence(self) -> str:
        return f"its pool is deleted by {self.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOutdated(Reason):
    code = ReasonCode.SLICE_OUTDATED
    kind = ReasonKind.WAITING

    revision: int
    now: int

    def sentence(self) -> str:
        return f"it is of revision {self.revision}, and its pool of {self.now}: it is replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceConsolidated(Reason):
    code = ReasonCode.SLICE_CONSOLIDATED
    kind = ReasonKind.WAITING

    sessions: int
    saving: int
    price: float
    unit: str

    def sentence(self) -> str:
        said = (
            f"its {counted(self.sessions, 'session')} can run elsewhere, which saves "
            f"{self.saving} % of what these machines cost"
        )
        if self.price:
            said += f": {amount(self.price, self.unit)} an hour"
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceHeldBy(Reason):
    code = ReasonCode.SLICE_HELD_BY
    kind = ReasonKind.WAITING

    by: str
    what: str

    def sentence(self) -> str:
        return f"{self.by} {self.what} it"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBusy(Reason):
    code = ReasonCode.SLICE_BUSY
    kind = ReasonKind.WAITING

    def sentence(self) -> str:
        return "work runs on it"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePromised(Reason):
    code = ReasonCode.SLICE_PROMISED
    kind = ReasonKind.WAITING

    sessions: int

    def sentence(self) -> str:
        return f"it is promised to {counted(self.sessions, 'waiting session')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceHeld(Reason):
    code = ReasonCode.SLICE_HELD
    kind = ReasonKind.WAITING

    by: str
    slice: str

    def sentence(self) -> str:
        return f"{self.by} holds it"

    def remedy(self) -> str:
        return f"`muster slices release {self.slice}` lets it go."


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceAwaited(Reason):
    code = ReasonCode.SLICE_AWAITED
    kind = ReasonKind.WAITING

    job: str
    in_s: float

    def sentence(self) -> str:
        return (
            f"{self.job} recovers, and waits for a machine of it, for {lasting(self.in_s)} more "
            "at most"
        )

    def remedy(self) -> str:
        return "Nothing: it may go once that job runs again, or waits no longer."


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceIsolated(Reason):
    code = ReasonCode.SLICE_ISOLATED
    kind = ReasonKind.OPERATOR

    agent: str
    slice: str

    def sentence(self) -> str:
        return f"machine {self.agent} of it is isolated"

    def remedy(self) -> str:
        return (
            f"`muster agents return {self.agent}` has it take work again, `muster slices delete "
            f"{self.slice}` has it go."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceAtMin(Reason):
    code = ReasonCode.SLICE_AT_MIN
    kind = ReasonKind.WAITING

    pool: str
    slices: int
    min_slices: int

    def sentence(self) -> str:
        return (
            f"pool {self.pool} has {counted(self.slices, 'slice')}, and keeps at least "
            f"{self.min_slices}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceInBuffer(Reason):
    code = ReasonCode.SLICE_IN_BUFFER
    kind = ReasonKind.WAITING

    pool: str
    buffer_slices: int

    def sentence(self) -> str:
        return (
            f"pool {self.pool} keeps {counted(self.buffer_slices, 'idle slice')} ready for the "
            "next demand"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceIdle(Reason):
    code = ReasonCode.SLICE_IDLE
    kind = ReasonKind.WAITING

    idle_s: float
    in_s: float

    def sentence(self) -> str:
        return f"idle for {lasting(self.idle_s)}; it is deleted in {lasting(self.in_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceIdleTooLong(Reason):
    code = ReasonCode.SLICE_IDLE_TOO_LONG
    kind = ReasonKind.WAITING

    idle_s: float

    def sentence(self) -> str:
        return f"idle for {lasting(self.idle_s)}"
