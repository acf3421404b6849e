"""Reasons of a group's queue: who goes first, and whose work the group takes."""

from dataclasses import dataclass, field

from muster.core.ids import SessionId
from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import lasting, shown, starts_when


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindStarving(Reason):
    code = ReasonCode.BEHIND_STARVING
    kind = ReasonKind.WAITING

    group: str
    session: SessionId = field(metadata=PRIVATE)
    after_s: float
    leaving: bool = False

    def sentence(self) -> str:
        return (
            f"group {self.group} keeps its room for a session that has waited longer than "
            f"{shown(self.after_s)} s"
        )

    def remedy(self) -> str:
        return f"Nothing: it starts {starts_when(self.leaving, 'after that one')}."


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindReservation(Reason):
    code = ReasonCode.BEHIND_RESERVATION
    kind = ReasonKind.WAITING

    group: str
    session: SessionId = field(metadata=PRIVATE)
    in_s: float
    leaving: bool = False

    def sentence(self) -> str:
        return (
            f"would delay the session ahead of it in group {self.group}, which is to start in "
            f"{lasting(self.in_s)}"
        )

    def remedy(self) -> str:
        return (
            f"Nothing: it starts {starts_when(self.leaving, 'after that one')}. With a `timeout` "
            "short enough it would start before."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindPromise(Reason):
    code = ReasonCode.BEHIND_PROMISE
    kind = ReasonKind.WAITING

    group: str
    session: SessionId = field(metadata=PRIVATE)
    leaving: bool = field(default=False, metadata=PRIVATE)

    def sentence(self) -> str:
        return (
            f"group {self.group} keeps the room for work to which it was promised: its machines "
            "are coming"
        )

    def remedy(self) -> str:
        return "Nothing: it starts after that work, or on machines of its own."


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictOrder(Reason):
    code = ReasonCode.STRICT_ORDER
    kind = ReasonKind.WAITING

    group: str
    session: SessionId = field(metadata=PRIVATE)

    def sentence(self) -> str:
        return (
            f"group {self.group} runs in strict order, and the session ahead of it has no room yet"
        )

    def remedy(self) -> str:
        return "Nothing: it starts after that one."


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindShape(Reason):
    code = ReasonCode.BEHIND_SHAPE
    kind = ReasonKind.WAITING

    agent: str

    def sentence(self) -> str:
        return (
            f"prefilled on agent {self.agent}: it starts when a kernel of the same shape ends there"
        )

    def remedy(self) -> str:
        return "Nothing: it is next in line."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoGroupAccess(Reason):
    code = ReasonCode.NO_GROUP_ACCESS
    kind = ReasonKind.REQUEST

    group: str
    project: str

    def sentence(self) -> str:
        return f"group {self.group} takes no work of project {self.project}"

    def remedy(self) -> str:
        return "Name another group, or ask an operator for access to this one."


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRefused(Reason):
    code = ReasonCode.PLUGIN_REFUSED
    kind = ReasonKind.OPERATOR

    plugin: str
    name: str
    group: str
    why: str

    def sentence(self) -> str:
        return f"{self.plugin} {self.name} of group {self.group} is not used: it {self.why}"

    def remedy(self) -> str:
        return "Mend the plug-in, then write the group again: `muster groups apply FILE`."
