"""Reasons of what is no longer kept: long specs, output and scratch directories of ended work."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import amount, before_colon, lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecNotKept(Reason):
    code = ReasonCode.SPEC_NOT_KEPT
    kind = ReasonKind.LIMIT

    at: str
    size: int
    limit: int
    unit: str

    def sentence(self) -> str:
        return (
            f"long values were removed from its spec of {amount(self.size, self.unit)} at "
            f"{self.at}, because specs of its owner's ended work took more than "
            f"{amount(self.limit, self.unit)}"
        )

    def remedy(self) -> str:
        return (
            "Hand the work in anew from your own file; an operator may set a larger `ended_specs`."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAboveShare(Reason):
    code = ReasonCode.OUTPUT_ABOVE_SHARE
    kind = ReasonKind.LIMIT

    at: str
    used: int
    limit: int
    unit: str
    of: str | None = None

    def sentence(self) -> str:
        return (
            f"{before_colon(self.of)}its output was removed at {self.at}, because output of its "
            f"owner took {amount(self.used, self.unit)} on its machine, more than the share of "
            f"{amount(self.limit, self.unit)}, and the oldest goes first"
        )

    def remedy(self) -> str:
        return (
            "Have less written, or copy output while it is there; an operator may give output "
            "more room (`logs_max_bytes` of the agent)."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTooOld(Reason):
    code = ReasonCode.OUTPUT_TOO_OLD
    kind = ReasonKind.LIMIT

    at: str
    kept_s: float
    of: str | None = None

    def sentence(self) -> str:
        return (
            f"{before_colon(self.of)}its output was removed at {self.at}, because an agent keeps "
            f"output for {lasting(self.kept_s)}"
        )

    def remedy(self) -> str:
        return "Copy output while it is there: `muster logs --save DIR`."


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputWasRemoved(Reason):
    code = ReasonCode.OUTPUT_REMOVED
    kind = ReasonKind.LIMIT

    of: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return "its output was removed by its agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchAboveShare(Reason):
    code = ReasonCode.SCRATCH_ABOVE_SHARE
    kind = ReasonKind.LIMIT

    at: str
    used: int
    limit: int
    unit: str
    of: str | None = None

    def sentence(self) -> str:
        return (
            f"{before_colon(self.of)}its scratch directory was removed at {self.at}, because "
            f"those of its owner's ended kernels took {amount(self.used, self.unit)} on its "
            f"machine, more than the share of {amount(self.limit, self.unit)}, and the oldest "
            "goes first"
        )

    def remedy(self) -> str:
        return (
            "Have less left there, or copy it while it is there; an operator may give it more "
            "room (`kept_scratch_max_bytes` of the agent)."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchTooOld(Reason):
    code = ReasonCode.SCRATCH_TOO_OLD
    kind = ReasonKind.LIMIT

    at: str
    kept_s: float
    of: str | None = None

    def sentence(self) -> str:
        return (
            f"{before_colon(self.of)}its scratch directory was removed at {self.at}, because an "
            f"agent keeps it for {lasting(self.kept_s)}"
        )

    def remedy(self) -> str:
        return "Copy what is to be kept while it is there."


Removal = OutputAboveShare | OutputTooOld | OutputWasRemoved | ScratchAboveShare | ScratchTooOld
"""Reasons for which an agent removed files of a kernel; ``of`` is the kernel, of a gang."""

REMOVALS: Mapping[str, type[Removal]] = {
    kind.code: kind for kind in (OutputAboveShare, OutputTooOld, ScratchAboveShare, ScratchTooOld)
}
"""The removals that an agent tells, by their codes."""
