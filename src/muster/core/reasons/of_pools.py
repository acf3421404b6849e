"""Reasons of pools: why one makes nothing, and changes of it."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import after_colon, amount, counted, differences, lasting
from muster.core.settings import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPaused(Reason):
    code = ReasonCode.POOL_PAUSED
    kind = ReasonKind.OPERATOR

    pool: str

    def sentence(self) -> str:
        return f"pool {self.pool} is paused"

    def remedy(self) -> str:
        return f"`muster pools resume {self.pool}` has it make machines again."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDeleting(Reason):
    code = ReasonCode.POOL_DELETING
    kind = ReasonKind.OPERATOR

    pool: str

    def sentence(self) -> str:
        return f"pool {self.pool} is being deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStockedOut(Reason):
    code = ReasonCode.POOL_STOCKED_OUT
    kind = ReasonKind.WAITING

    pool: str
    in_s: float
    told: str | None = None

    def sentence(self) -> str:
        return (
            f"pool {self.pool} asks again in {lasting(self.in_s)}: its provider has no such "
            f"machines now{after_colon(self.told)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOutOfQuota(Reason):
    code = ReasonCode.POOL_OUT_OF_QUOTA
    kind = ReasonKind.OPERATOR

    pool: str = field(metadata=PRIVATE)
    in_s: float
    quota_key: str
    told: str | None = None

    def sentence(self) -> str:
        return (
            f"pools of quota {self.quota_key} ask again in {lasting(self.in_s)}: it is used "
            f"up{after_colon(self.told)}"
        )

    def remedy(self) -> str:
        return "Have the provider raise the quota."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolThrottled(Reason):
    code = ReasonCode.POOL_THROTTLED
    kind = ReasonKind.WAITING

    pool: str
    in_s: float
    told: str | None = None

    def sentence(self) -> str:
        return (
            f"pool {self.pool} asks again in {lasting(self.in_s)}: its provider takes requests "
            f"more slowly{after_colon(self.told)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCredentials(Reason):
    code = ReasonCode.POOL_CREDENTIALS
    kind = ReasonKind.OPERATOR

    pool: str
    in_s: float
    told: str | None = None

    def sentence(self) -> str:
        return f"the provider of pool {self.pool} refuses its credentials{after_colon(self.told)}"

    def remedy(self) -> str:
        return (
            f"Mend them; it is tried again in {lasting(self.in_s)}, and at once after `muster "
            f"pools resume {self.pool}`."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBadRequest(Reason):
    code = ReasonCode.POOL_BAD_REQUEST
    kind = ReasonKind.OPERATOR

    pool: str
    in_s: float
    told: str | None = None

    def sentence(self) -> str:
        return (
            f"the provider of pool {self.pool} does not understand its "
            f"settings{after_colon(self.told)}"
        )

    def remedy(self) -> str:
        return f"Mend them and apply the pool again; it is tried again in {lasting(self.in_s)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBackingOff(Reason):
    code = ReasonCode.POOL_BACKING_OFF
    kind = ReasonKind.OPERATOR

    pool: str
    in_s: float
    failures: int
    told: str | None = None

    def sentence(self) -> str:
        return (
            f"pool {self.pool} asks again in {lasting(self.in_s)}, after "
            f"{counted(self.failures, 'failed request')}{after_colon(self.told)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBreaker(Reason):
    code = ReasonCode.POOL_BREAKER
    kind = ReasonKind.OPERATOR

    pool: str
    silent: int
    machines: int
    was_paused: bool = False

    def sentence(self) -> str:
        said = (
            f"{self.silent} of {counted(self.machines, 'machine')} of pool {self.pool} are "
            "silent or unknown at once: nothing of it is made or deleted"
        )
        if self.was_paused:
            said += "; it was paused before"
        return said

    def remedy(self) -> str:
        return f"Look at the network and the provider, then `muster pools resume {self.pool}`."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFailedBefore(Reason):
    code = ReasonCode.POOL_FAILED_BEFORE
    kind = ReasonKind.OPERATOR

    pool: str
    failures: int
    told: str | None = None

    def sentence(self) -> str:
        said = f"pool {self.pool} tries once more, after {counted(self.failures, 'failed request')}"
        if self.told:
            said += f", the last with: {self.told}"
        return said

    def remedy(self) -> str:
        return (
            "Look at what the provider says, and at the machine's own log; `muster history "
            f"{self.pool}` has more."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHeard(Reason):
    code = ReasonCode.POOL_HEARD
    kind = ReasonKind.WAITING

    def sentence(self) -> str:
        return "all of its machines are heard again"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMakesAgain(Reason):
    code = ReasonCode.POOL_MAKES_AGAIN
    kind = ReasonKind.WAITING

    slice: str
    failures: int

    def sentence(self) -> str:
        return f"slice {self.slice} is ready, after {counted(self.failures, 'failed request')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOrphans(Reason):
    code = ReasonCode.POOL_ORPHANS
    kind = ReasonKind.WAITING

    pool: str = field(metadata=PRIVATE)
    slice: str
    machines: int

    def sentence(self) -> str:
        return (
            f"deletes {counted(self.machines, 'machine')} of slice {self.slice}, which is not "
            "known here"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShape(Reason):
    code = ReasonCode.POOL_SHAPE
    kind = ReasonKind.OPERATOR

    pool: str
    resource: str
    declared: int
    reported: int
    unit: str

    def sentence(self) -> str:
        return (
            f"machines of pool {self.pool} report {amount(self.reported, self.unit)} "
            f"{self.resource}, and it declares {amount(self.declared, self.unit)}: what they "
            "report counts"
        )

    def remedy(self) -> str:
        return "Write what they report into the pool's `machine`."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReplacesNoMore(Reason):
    code = ReasonCode.POOL_REPLACES_NO_MORE
    kind = ReasonKind.OPERATOR

    pool: str
    told: str

    def sentence(self) -> str:
        return (
            "slices of the present revision fail, so no more of former ones are replaced: "
            f"{self.told}"
        )

    def remedy(self) -> str:
        return f"Mend the pool, apply it, and `muster pools replace {self.pool}` again."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChangedBy(Reason):
    code = ReasonCode.POOL_CHANGED_BY
    kind = ReasonKind.WAITING

    by: str
    domain: str | None = field(default=None, metadata=PRIVATE)
    token: str | None = field(default=None, metadata=PRIVATE)
    what: str
    changes: tuple[Difference, ...] | None = None

    def sentence(self) -> str:
        said = f"{self.by} {self.what} it"
        if self.changes:
            said += f": {differences(self.changes)}"
        return said
