"""Reasons of work that waits for machines of pools: why none is made for it."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, UNKNOWN, Reason
from muster.core.reasons.wording import amount, counted, lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRuleUnmet(Reason):
    code = ReasonCode.POOL_RULE_UNMET
    kind = ReasonKind.REQUEST

    pool: str
    rule: str
    has: str | None = None
    lacks: bool = False

    def sentence(self) -> str:
        said = f"machines of pool {self.pool} do not meet {self.rule}"
        if self.has:
            said += f": they have {self.has}"
        if self.lacks:
            said += ": they have no such attribute"
        return said

    def remedy(self) -> str:
        return "Ask for what machines of a pool have, or leave it out."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNotDesignated(Reason):
    code = ReasonCode.POOL_NOT_DESIGNATED
    kind = ReasonKind.REQUEST

    pool: str

    def sentence(self) -> str:
        return (
            f"it may only use agents that it names, and those of pool {self.pool} have no names yet"
        )

    def remedy(self) -> str:
        return "Leave `agents` out, or set agents_only: false."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNoDevice(Reason):
    code = ReasonCode.POOL_NO_DEVICE
    kind = ReasonKind.REQUEST

    pool: str

    def sentence(self) -> str:
        return f"machines of pool {self.pool} have no GPU"

    def remedy(self) -> str:
        return "Ask for none, or add a pool with GPUs."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOtherDevice(Reason):
    code = ReasonCode.POOL_OTHER_DEVICE
    kind = ReasonKind.REQUEST

    pool: str
    has: str
    wanted: str

    def sentence(self) -> str:
        return f"machines of pool {self.pool} have {self.has}, not {self.wanted}"

    def remedy(self) -> str:
        return "Ask for a model that a pool has, or for any."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPortInUse(Reason):
    code = ReasonCode.POOL_PORT_IN_USE
    kind = ReasonKind.REQUEST

    pool: str
    port: int

    def sentence(self) -> str:
        return f"on machines of pool {self.pool} a program that is no kernel has port {self.port}"

    def remedy(self) -> str:
        return (
            "Choose another `port`; without it one is reserved for each. A machine of the pool "
            "is made and asked again after a while."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTooSmall(Reason):
    code = ReasonCode.POOL_TOO_SMALL
    kind = ReasonKind.REQUEST

    pool: str
    resource: str
    requested: int
    capacity: int
    unit: str

    def sentence(self) -> str:
        return (
            f"{self.resource}: {amount(self.requested, self.unit)} asked, a machine of pool "
            f"{self.pool} has {amount(self.capacity, self.unit)}"
        )

    def remedy(self) -> str:
        return "Ask for less per kernel, or add a pool of larger machines."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolGangUnfit(Reason):
    code = ReasonCode.POOL_GANG_UNFIT
    kind = ReasonKind.REQUEST

    pool: str
    placed: int
    kernels: int
    slices: int

    def sentence(self) -> str:
        return (
            f"{self.placed} of {counted(self.kernels, 'kernel')} fit on "
            f"{counted(self.slices, 'new slice')} of pool {self.pool}, and more slices do not "
            "help"
        )

    def remedy(self) -> str:
        return "Ask for fewer or smaller kernels, or for less to be together."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAtMax(Reason):
    code = ReasonCode.POOL_AT_MAX
    kind = ReasonKind.WAITING

    pool: str
    slices: int
    max_slices: int

    def sentence(self) -> str:
        return (
            f"pool {self.pool} makes no more: it has {self.slices} of at most "
            f"{counted(self.max_slices, 'slice')}"
        )

    def remedy(self) -> str:
        return (
            "Work starts when other work ends, or sooner if an operator raises `max_slices` of "
            "the pool."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolGangTooLarge(Reason):
    code = ReasonCode.POOL_GANG_TOO_LARGE
    kind = ReasonKind.WAITING

    pool: str
    placed: int
    kernels: int
    more: int

    def sentence(self) -> str:
        return (
            f"{self.placed} of {counted(self.kernels, 'kernel')} fit if pool {self.pool} gets "
            f"the {counted(self.more, 'slice')} that it may get still"
        )

    def remedy(self) -> str:
        return (
            "It starts when enough running work ends, or sooner if it asks for fewer or smaller "
            "kernels, or an operator raises `max_slices` of the pool."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GangOutOfReach(Reason):
    code = ReasonCode.GANG_OUT_OF_REACH
    kind = ReasonKind.REQUEST

    kernels: int
    request: str
    group: str
    placed: int
    single_node: bool = False
    together: str | None = None
    per_agent: int | None = field(default=None, metadata=PRIVATE)
    machines: int | None = None
    own: int | None = None
    ceiling: str | None = None
    limit: float = UNKNOWN
    unit: str = UNKNOWN

    def sentence(self) -> str:
        said = f"it asks for {counted(self.kernels, 'kernel')} of {self.request} at the same time"
        if self.single_node:
            said += ", on one agent (mode: single-node)"
        if self.together:
            said += f", where {self.together} is the same (together: {self.together})"
        said += f", and group {self.group} can never hold "
        if self.placed:
            said += f"more than {self.placed}"
        else:
            said += "one"
        if self.machines:
            said += (
                f": its pools may have {counted(self.machines, 'machine')} at most that hold "
                "such a kernel"
            )
        if self.ceiling:
            said += f", by its max_{self.ceiling} of {amount(self.limit, self.unit)}"
        if self.own:
            said += f"; its other agents hold {self.own}"
        return said

    def remedy(self) -> str:
        said = "Ask for fewer or smaller kernels. An operator can raise "
        if self.ceiling:
            said += f"`max_{self.ceiling}` of the group"
        else:
            said += "`max_slices` of a pool"
        return said + ", or add larger machines."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolProbed(Reason):
    code = ReasonCode.POOL_PROBED
    kind = ReasonKind.WAITING

    pool: str
    slices: int = field(metadata=PRIVATE)

    def sentence(self) -> str:
        return f"slices of pool {self.pool} failed: one at a time is made, until one is ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAtCeiling(Reason):
    code = ReasonCode.GROUP_AT_CEILING
    kind = ReasonKind.WAITING

    pool: str
    group: str
    what: str
    used: float
    more: float
    limit: float
    unit: str = UNKNOWN
    hourly: bool = False

    def sentence(self) -> str:
        said = (
            f"a slice of pool {self.pool} would bring group {self.group} above its "
            f"max_{self.what} of {amount(self.limit, self.unit)}"
        )
        if self.hourly:
            said += " an hour"
        return said + f": {amount(self.used, self.unit)} + {amount(self.more, self.unit)}"

    def remedy(self) -> str:
        return (
            "Work starts when other work ends, or sooner if an operator raises "
            f"`max_{self.what}` of the group."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsForSlice(Reason):
    code = ReasonCode.WAITS_FOR_SLICE
    kind = ReasonKind.WAITING

    slice: str
    pool: str
    status: str
    for_s: float
    others: int
    usual_s: float | None = None

    def sentence(self) -> str:
        said = (
            f"waits for slice {self.slice} of pool {self.pool}, which is {self.status}, "
            f"{lasting(self.for_s)} after it was asked for"
        )
        if self.usual_s:
            said += f", usually {lasting(self.usual_s)} in all"
        if self.others:
            said += f", and for {self.others} more"
        return said

    def remedy(self) -> str:
        return "Nothing: it starts once the slice is READY."
