"""Reasons of work that waits for other work, or for a moment."""

from dataclasses import dataclass

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyNotMet(Reason):
    code = ReasonCode.DEPENDENCY_NOT_MET
    kind = ReasonKind.WAITING

    on: str
    condition: str
    state: str

    def sentence(self) -> str:
        return f"waits until {self.on} {self.condition}; it is {self.state}"

    def remedy(self) -> str:
        return "Nothing: it starts after that."


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyFailed(Reason):
    code = ReasonCode.DEPENDENCY_FAILED
    kind = ReasonKind.REQUEST

    on: str
    condition: str

    def sentence(self) -> str:
        return (
            f"waits until {self.on} {self.condition}, which can no longer be: it ended without "
            "success"
        )

    def remedy(self) -> str:
        return f"Run {self.on} again and hand this in anew, or make it depend on {self.on}:ended."


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencySucceeded(Reason):
    code = ReasonCode.DEPENDENCY_SUCCEEDED
    kind = ReasonKind.REQUEST

    on: str
    condition: str

    def sentence(self) -> str:
        return f"waits until {self.on} {self.condition}, which can no longer be: it succeeded"

    def remedy(self) -> str:
        return (
            f"Nothing, if this is for the case that {self.on} fails; or make it depend on "
            f"{self.on}:ended."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyMissing(Reason):
    code = ReasonCode.DEPENDENCY_MISSING
    kind = ReasonKind.REQUEST

    on: str
    condition: str

    def sentence(self) -> str:
        return f"waits until {self.on} {self.condition}, and there is no such job or session"

    def remedy(self) -> str:
        return f"Check the name in `after`, or hand in {self.on} first."


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyNotHealthy(Reason):
    code = ReasonCode.DEPENDENCY_NOT_HEALTHY
    kind = ReasonKind.WAITING

    on: str
    healthy: int
    wanted: int

    def sentence(self) -> str:
        return f"deployment {self.on} is not healthy yet: {self.healthy} of {self.wanted} replicas"

    def remedy(self) -> str:
        return f"Nothing: it starts after that. `muster why {self.on}` tells what {self.on} lacks."


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyTakenDown(Reason):
    code = ReasonCode.DEPENDENCY_TAKEN_DOWN
    kind = ReasonKind.REQUEST

    on: str

    def sentence(self) -> str:
        return (
            f"waits until deployment {self.on} is healthy, which can no longer be: it was taken "
            "down"
        )

    def remedy(self) -> str:
        return f"Deploy {self.on} again, and hand this in anew."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAddressYet(Reason):
    code = ReasonCode.NO_ADDRESS_YET
    kind = ReasonKind.WAITING

    on: str

    def sentence(self) -> str:
        return (
            f"it uses deployment {self.on}, whose address is not known: no proxy that its "
            "machine reaches reports to the controller"
        )

    def remedy(self) -> str:
        return "Nothing if a proxy is about to start. `muster doctor` tells what became of it."


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeStartTime(Reason):
    code = ReasonCode.BEFORE_START_TIME
    kind = ReasonKind.WAITING

    moment: str

    def sentence(self) -> str:
        return f"starts not before {self.moment}"
