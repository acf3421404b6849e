"""Reasons of a group's agents: why none of them takes the work, now or ever."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, UNKNOWN, Reason
from muster.core.reasons.wording import counted, starts_when


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoom(Reason):
    code = ReasonCode.NO_ROOM
    kind = ReasonKind.WAITING

    agents: int
    group: str
    meeting: int | None = None
    rules: str = UNKNOWN
    closed: int | None = None
    statuses: str = UNKNOWN
    barred: int | None = None
    isolated: int | None = None
    healing: int | None = None
    withheld: int | None = None
    full: int | None = None
    silent: int | None = None
    request: str
    leaving: bool = False

    def sentence(self) -> str:
        said = f"{_none_of(self)} has {self.request} free now"
        if self.closed:
            said += f"; no new work goes to {self.closed} of them ({self.statuses})"
        return said

    def remedy(self) -> str:
        return (
            "Nothing: it starts "
            f"{starts_when(self.leaving, 'when running work ends')}.{_reopening(self)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GangNoRoom(Reason):
    code = ReasonCode.GANG_NO_ROOM
    kind = ReasonKind.WAITING

    placed: int
    kernels: int
    agents: int
    group: str
    meeting: int | None = None
    rules: str = UNKNOWN
    closed: int | None = None
    statuses: str = UNKNOWN
    barred: int | None = None
    isolated: int | None = None
    healing: int | None = None
    withheld: int | None = None
    full: int | None = None
    silent: int | None = None
    single_node: bool = False
    together: str | None = None
    per_agent: int | None = None
    leaving: bool = False

    def sentence(self) -> str:
        said = (
            f"{self.placed} of {counted(self.kernels, 'kernel')} fit in group {self.group} "
            f"now{_rules_of_gang(self)}"
        )
        if self.closed:
            said += f"; no new work goes to {self.closed} of the agents ({self.statuses})"
        return said + "; a gang starts whole or not at all"

    def remedy(self) -> str:
        return (
            "Nothing: it starts "
            f"{starts_when(self.leaving, 'when enough running work ends')}.{_reopening(self)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsFull(Reason):
    code = ReasonCode.AGENTS_FULL
    kind = ReasonKind.WAITING

    group: str
    most: int
    leaving: bool = False

    def sentence(self) -> str:
        return (
            f"agents of group {self.group} have what it asks for, but hold as many kernels as "
            f"they may, {self.most} each"
        )

    def remedy(self) -> str:
        return (
            f"Nothing: it starts {starts_when(self.leaving, 'when running work ends')}. An "
            "operator can raise `kernels_per_agent` of the group."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTaken(Reason):
    code = ReasonCode.PORT_TAKEN
    kind = ReasonKind.WAITING

    port: int
    agents: int | None = None
    group: str = UNKNOWN
    several: bool | None = None
    some: bool | None = None
    others: int | None = None
    leaving: bool = field(default=False, metadata=PRIVATE)

    def sentence(self) -> str:
        said = f"its port {self.port} is taken{_on_agents(self)}"
        if self.others:
            said += (
                f", on {self.others} by programs that the agents did not start: of another agent "
                "of the machine, or of nobody's"
            )
        return said

    def remedy(self) -> str:
        return (
            "Nothing: it starts on a machine where the port becomes free. An update with "
            "`surge: 0` stops a replica before it starts another; without `port` one is "
            "reserved for each."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PortForeign(Reason):
    code = ReasonCode.PORT_FOREIGN
    kind = ReasonKind.REQUEST

    port: int
    agents: int | None = None
    group: str = UNKNOWN
    several: bool | None = None
    some: bool | None = None
    leaving: bool = field(default=False, metadata=PRIVATE)

    def sentence(self) -> str:
        return (
            f"its port {self.port} is in use{_on_agents(self)}, by programs that the agents did "
            "not start: of another agent of the machine, or of nobody's"
        )

    def remedy(self) -> str:
        return (
            "Choose another `port`; without it one is reserved for each. Agents are asked again "
            "after a while."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAgents(Reason):
    code = ReasonCode.NO_AGENTS
    kind = ReasonKind.OPERATOR

    group: str

    def sentence(self) -> str:
        return f"group {self.group} has no agents"

    def remedy(self) -> str:
        return f"Start one: `muster agent --group {self.group}`, add a pool, or name another group."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAliveAgents(Reason):
    code = ReasonCode.NO_ALIVE_AGENTS
    kind = ReasonKind.OPERATOR

    agents: int
    group: str
    closed: int | None = field(default=None, metadata=PRIVATE)
    statuses: str = UNKNOWN
    barred: int | None = None
    isolated: int | None = None
    healing: int | None = None
    withheld: int | None = None
    full: int | None = None
    silent: int | None = None

    def sentence(self) -> str:
        return (
            f"none of {counted(self.agents, 'agent')} in group {self.group} takes new work: "
            f"{self.statuses}"
        )

    def remedy(self) -> str:
        return f"Look at `muster agents`.{_reopening(self)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAgentMeets(Reason):
    code = ReasonCode.NO_AGENT_MEETS
    kind = ReasonKind.REQUEST

    agents: int
    group: str
    rules: str
    nearest: str | None = None
    missing: str | None = None

    def sentence(self) -> str:
        return (
            f"none of {counted(self.agents, 'agent')} in group {self.group} meets "
            f"{self.rules}{_without(self.missing)}"
        )

    def remedy(self) -> str:
        said = ""
        if self.nearest:
            said += f"Did you mean {self.nearest}? "
        return said + "Ask for what agents have, or leave it out."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSuchAgents(Reason):
    code = ReasonCode.NO_SUCH_AGENTS
    kind = ReasonKind.REQUEST

    agents: int = field(metadata=PRIVATE)
    group: str
    nearest: str | None = None
    missing: str

    def sentence(self) -> str:
        return f"group {self.group} has no agent {self.missing}"

    def remedy(self) -> str:
        said = ""
        if self.nearest:
            said += f"Did you mean {self.nearest}? "
        return said + "Name agents of the group, or leave `agents` out."


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverFits(Reason):
    code = ReasonCode.NEVER_FITS
    kind = ReasonKind.REQUEST

    agents: int
    group: str
    request: str
    meeting: int | None = None
    rules: str = UNKNOWN
    missing: str | None = None

    def sentence(self) -> str:
        return (
            f"{_none_of(self)} is large enough for {self.request}, even when "
            f"empty{_without(self.missing)}"
        )

    def remedy(self) -> str:
        said = "Ask for less per kernel, or add a larger agent"
        if self.meeting:
            said += " that meets that"
        return said + " to the group."


@dataclass(frozen=True, slots=True, kw_only=True)
class GangNeverFits(Reason):
    code = ReasonCode.GANG_NEVER_FITS
    kind = ReasonKind.REQUEST

    placed: int
    kernels: int
    agents: int
    group: str
    meeting: int | None = None
    rules: str = UNKNOWN
    single_node: bool = False
    together: str | None = None
    per_agent: int | None = None
    keys: str | None = None
    most: int | None = None
    missing: str | None = None

    def sentence(self) -> str:
        said = (
            f"only {self.placed} of {counted(self.kernels, 'kernel')} would fit in group "
            f"{self.group} even if it were empty{_rules_of_gang(self)}"
        )
        if self.most:
            said += f", as an agent may hold {self.most} (kernels_per_agent)"
        return said + _without(self.missing)

    def remedy(self) -> str:
        said = "Ask for fewer or smaller kernels"
        if self.keys:
            said += f", leave out {self.keys}"
        said += ", or add"
        if self.single_node:
            said += " larger"
        said += " agents"
        if self.meeting:
            said += " that meet that"
        return said + " to the group."


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsAbsentAgents(Reason):
    code = ReasonCode.NEEDS_ABSENT_AGENTS
    kind = ReasonKind.OPERATOR

    agents: int
    group: str
    closed: int = UNKNOWN
    statuses: str = UNKNOWN
    barred: int | None = None
    isolated: int | None = None
    healing: int | None = None
    withheld: int | None = None
    full: int | None = None
    silent: int | None = None

    def sentence(self) -> str:
        return (
            f"group {self.group} could hold it only with agents that take no new work: "
            f"{self.closed} of {self.agents} ({self.statuses})"
        )

    def remedy(self) -> str:
        return f"Look at `muster agents`.{_reopening(self)}"


def _none_of(why: NoRoom | NeverFits) -> str:
    """The agents none of which has room: those of the group that meet the session's rules."""
    if not why.meeting:
        return f"none of {counted(why.agents, 'agent')} in group {why.group}"
    agents = f"the {why.meeting} of {counted(why.agents, 'agent')}"
    return f"none of {agents} in group {why.group} that meet {why.rules}"


def _rules_of_gang(why: GangNoRoom | GangNeverFits) -> str:
    """The session's rules for all kernels together."""
    said = ""
    if why.meeting:
        said += f", on the {why.meeting} of {counted(why.agents, 'agent')} that meet {why.rules}"
    if why.single_node:
        said += ", with all of them on one agent (mode: single-node)"
    if why.together:
        said += f", with all of them where {why.together} is the same (together: {why.together})"
    if why.per_agent:
        most = f"max_kernels_per_agent: {why.per_agent}"
        said += f", with at most {why.per_agent} on an agent ({most})"
    return said


def _on_agents(why: PortTaken | PortForeign) -> str:
    """The agents on which a port is taken."""
    said = ""
    if why.agents:
        every = "all " if why.several else ""
        said += f" on {every}{counted(why.agents, 'agent')} of group {why.group}"
    if why.some:
        said += " that it may use now"
    return said


def _without(missing: str | None) -> str:
    """The agents that a session names and nobody has."""
    return f"; there is no agent {missing}" if missing else ""


def _reopening(why: NoRoom | GangNoRoom | NoAliveAgents | NeedsAbsentAgents) -> str:
    """The ways to have agents that take no new work take it again."""
    said = ""
    if why.barred:
        said += " `muster uncordon AGENT` has an agent take work again."
    if why.isolated:
        said += " `muster agents return AGENT` has an isolated agent take work again."
    if why.healing:
        said += " Those that are checked or healed come back by themselves."
    if why.withheld:
        said += " Those of slices take work once these are ready, or go with them."
    if why.full:
        said += " Make room on the disks that are full."
    if why.silent:
        said += " Start those that are silent again."
    return said
