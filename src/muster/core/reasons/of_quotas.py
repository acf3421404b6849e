"""Reasons of quotas: why work is refused, or has to wait."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import amount, in_brackets


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaInUse(Reason):
    code = ReasonCode.QUOTA_IN_USE
    kind = ReasonKind.LIMIT

    resource: str
    unit: str
    used: int
    requested: int
    limit: int
    over: int
    model: str | None = None
    in_group: str | None = None
    level: str
    owner: str
    ahead: bool = False

    def sentence(self) -> str:
        return (
            f"{self.resource}{_part(self)}: used {amount(self.used, self.unit)} + requested "
            f"{amount(self.requested, self.unit)} > limit {amount(self.limit, self.unit)}, over "
            f"by {amount(self.over, self.unit)} (quota of {self.level} "
            f"{self.owner}{_ahead(self.ahead)})"
        )

    def remedy(self) -> str:
        return (
            f"Nothing: it starts when enough other work of that {self.level} ends. An operator "
            "can raise the quota."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuotaInUse(Reason):
    code = ReasonCode.MODEL_QUOTA_IN_USE
    kind = ReasonKind.LIMIT

    resource: str
    unit: str
    used: int
    requested: int
    limit: int
    over: int
    model: str | None = None
    in_group: str | None = None
    level: str
    owner: str
    ahead: bool = False

    def sentence(self) -> str:
        return (
            f"it may get {self.resource}{_part(self)}: used {amount(self.used, self.unit)} + "
            f"requested {amount(self.requested, self.unit)} > limit "
            f"{amount(self.limit, self.unit)}, over by {amount(self.over, self.unit)} (quota of "
            f"{self.level} {self.owner}{_ahead(self.ahead)})"
        )

    def remedy(self) -> str:
        return (
            "Name a model with room in `gpu_model`; or wait until enough other work of that "
            f"{self.level} ends. An operator can raise the quota."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AboveQuota(Reason):
    code = ReasonCode.ABOVE_QUOTA
    kind = ReasonKind.LIMIT

    resource: str
    unit: str
    requested: int
    limit: int
    over: int
    model: str | None = None
    in_group: str | None = None
    level: str
    owner: str

    def sentence(self) -> str:
        return (
            f"{self.resource}{_part(self)}: requested {amount(self.requested, self.unit)} > "
            f"limit {amount(self.limit, self.unit)}, over by {amount(self.over, self.unit)} "
            f"(quota of {self.level} {self.owner})"
        )

    def remedy(self) -> str:
        return "Ask for less, or ask an operator for a larger quota."


@dataclass(frozen=True, slots=True, kw_only=True)
class AboveLargest(Reason):
    code = ReasonCode.ABOVE_LARGEST
    kind = ReasonKind.LIMIT

    resource: str
    unit: str
    requested: int
    limit: int
    over: int
    model: str | None = None
    in_group: str | None = None
    level: str
    owner: str

    def sentence(self) -> str:
        return (
            f"{self.resource}{_part(self)}: requested {amount(self.requested, self.unit)} > "
            f"limit {amount(self.limit, self.unit)} of one session, over by "
            f"{amount(self.over, self.unit)} (quota of {self.level} {self.owner})"
        )

    def remedy(self) -> str:
        return "Ask for less, or ask an operator for a larger quota."


@dataclass(frozen=True, slots=True, kw_only=True)
class TooManyPending(Reason):
    code = ReasonCode.TOO_MANY_PENDING
    kind = ReasonKind.LIMIT

    resource: str = field(metadata=PRIVATE)
    unit: str = field(metadata=PRIVATE)
    used: int
    requested: int
    limit: int
    over: int
    level: str
    owner: str

    def sentence(self) -> str:
        return (
            f"sessions waiting: {self.used} + requested {self.requested} > limit {self.limit}, "
            f"over by {self.over} (quota of {self.level} {self.owner})"
        )

    def remedy(self) -> str:
        return "Hand it in when some of them have started, or ask an operator for a larger quota."


@dataclass(frozen=True, slots=True, kw_only=True)
class TooMuchOpenWork(Reason):
    code = ReasonCode.TOO_MUCH_OPEN_WORK
    kind = ReasonKind.LIMIT

    unit: str = field(metadata=PRIVATE)
    used: int
    requested: int
    limit: int
    over: int
    level: str
    owner: str

    def sentence(self) -> str:
        return (
            f"jobs, sessions and deployments that have not ended: {self.used} + requested "
            f"{self.requested} > limit {self.limit}, over by {self.over} (quota of {self.level} "
            f"{self.owner})"
        )

    def remedy(self) -> str:
        return (
            "Hand it in when some of them have ended or were cancelled, or ask an operator for "
            "a larger `open_work`."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpecsTooLarge(Reason):
    code = ReasonCode.OPEN_SPECS_TOO_LARGE
    kind = ReasonKind.LIMIT

    unit: str
    used: int
    requested: int
    limit: int
    over: int
    level: str
    owner: str

    def sentence(self) -> str:
        return (
            f"specs of work that has not ended: {amount(self.used, self.unit)} + requested "
            f"{amount(self.requested, self.unit)} > limit {amount(self.limit, self.unit)}, over "
            f"by {amount(self.over, self.unit)} (quota of {self.level} {self.owner})"
        )

    def remedy(self) -> str:
        return (
            "Put large values into files that the work reads, hand it in when other work has "
            "ended or was cancelled, or ask an operator for a larger `open_specs`."
        )


def _part(why: QuotaInUse | ModelQuotaInUse | AboveQuota | AboveLargest) -> str:
    """The part of a resource that a limit counts."""
    said = in_brackets(why.model)
    if why.in_group:
        said += f" in group {why.in_group}"
    return said


def _ahead(ahead: bool) -> str:
    return ", of which the work ahead that waits for machines uses a part" if ahead else ""
