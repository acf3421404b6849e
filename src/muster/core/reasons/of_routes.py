"""Reasons of routes: what is known of a replica's health, and why it is taken away."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import after_colon, counted, lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteStarts(Reason):
    code = ReasonCode.ROUTE_STARTS
    kind = ReasonKind.WAITING

    status: str
    session: str = field(metadata=PRIVATE)

    def sentence(self) -> str:
        return f"its session is {self.status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteNotTaken(Reason):
    code = ReasonCode.ROUTE_NOT_TAKEN
    kind = ReasonKind.REQUEST

    how: str

    def sentence(self) -> str:
        return f"its session is refused: {self.how}"

    def remedy(self) -> str:
        return "Change the deployment: `muster deploy FILE`."


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteQuota(Reason):
    code = ReasonCode.ROUTE_QUOTA
    kind = ReasonKind.LIMIT

    how: str

    def sentence(self) -> str:
        return f"a replica's session is not taken yet: {self.how}"

    def remedy(self) -> str:
        return "It is tried again by itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEnded(Reason):
    code = ReasonCode.ROUTE_ENDED
    kind = ReasonKind.REQUEST

    how: str
    session: str
    lost: bool = field(metadata=PRIVATE)

    def sentence(self) -> str:
        return f"session {self.session} ended{after_colon(self.how)}"

    def remedy(self) -> str:
        return f"`muster logs {self.session}` shows what it wrote."


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteNeverGood(Reason):
    code = ReasonCode.ROUTE_NEVER_GOOD
    kind = ReasonKind.REQUEST

    after_s: float
    found: str
    by_command: bool | None = None

    def sentence(self) -> str:
        return (
            f"no probe was good within {lasting(self.after_s)} of its "
            f"start{after_colon(self.found)}"
        )

    def remedy(self) -> str:
        return f"{_look(self)}; or set a longer probe.start_timeout."


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteNotProbed(Reason):
    code = ReasonCode.ROUTE_NOT_PROBED
    kind = ReasonKind.WAITING

    def sentence(self) -> str:
        return "it was not probed yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteNotYetGood(Reason):
    code = ReasonCode.ROUTE_NOT_YET_GOOD
    kind = ReasonKind.WAITING

    streak: int
    found: str
    by_command: bool | None = None
    route: str
    limit_s: float

    def sentence(self) -> str:
        return (
            f"it is not healthy yet: {counted(self.streak, 'bad probe')} in a "
            f"row{after_colon(self.found)}; {lasting(self.limit_s)} after its start it counts as "
            "failed"
        )

    def remedy(self) -> str:
        return f"It may still be starting. {_look(self)}: `muster logs {self.route}`."


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteBad(Reason):
    code = ReasonCode.ROUTE_BAD
    kind = ReasonKind.REQUEST

    streak: int
    found: str
    by_command: bool | None = None
    route: str | None = None

    def sentence(self) -> str:
        return f"{counted(self.streak, 'bad probe')} in a row{after_colon(self.found)}"

    def remedy(self) -> str:
        said = _look(self)
        if self.route:
            said += f": `muster logs {self.route}`"
        return said + "."


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePortTaken(Reason):
    code = ReasonCode.ROUTE_PORT_TAKEN
    kind = ReasonKind.OPERATOR

    who: str
    port: int

    def sentence(self) -> str:
        return f"{self.who} listens on its port {self.port}: it gets no requests"

    def remedy(self) -> str:
        return (
            "It is replaced, with another port where it has none of its own. The log of the "
            "machine's agent names the account."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePortUnseen(Reason):
    code = ReasonCode.ROUTE_PORT_UNSEEN
    kind = ReasonKind.WAITING

    port: int
    route: str

    def sentence(self) -> str:
        return f"probes are good, but its agent does not see it listen on its port {self.port}"

    def remedy(self) -> str:
        return (
            "Its program has to listen on the machine's own network, as the account of its "
            f"kernel or as root: `muster logs {self.route}`."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteStale(Reason):
    code = ReasonCode.ROUTE_STALE
    kind = ReasonKind.OPERATOR

    after_s: float

    def sentence(self) -> str:
        return (
            f"no probe of it was completed for {lasting(self.after_s)}: nothing is known of its "
            "health"
        )

    def remedy(self) -> str:
        return "Look whether the controller is overloaded; traffic goes on as before."


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOutOfSight(Reason):
    code = ReasonCode.ROUTE_OUT_OF_SIGHT
    kind = ReasonKind.OPERATOR

    unreached: int
    machines: int

    def sentence(self) -> str:
        return (
            f"the controller's probes reach {self.unreached} of "
            f"{counted(self.machines, 'machine')} no more: nothing is known of its health"
        )

    def remedy(self) -> str:
        return (
            "Look at the network of the controller's machine; traffic goes on as before, and "
            "nobody is replaced."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSeenByAgent(Reason):
    code = ReasonCode.ROUTE_SEEN_BY_AGENT
    kind = ReasonKind.OPERATOR

    found: str

    def sentence(self) -> str:
        return (
            "its agent probes it, because the controller's probes do not reach its machine: "
            f"{self.found}"
        )

    def remedy(self) -> str:
        return (
            "Look whether balancers and proxies reach it; set probe.side to controller if only "
            "what is reached from there is to get traffic."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteAgentCannotProbe(Reason):
    code = ReasonCode.ROUTE_AGENT_CANNOT_PROBE
    kind = ReasonKind.OPERATOR

    def sentence(self) -> str:
        return "its agent is to probe it, and is of a version that cannot"

    def remedy(self) -> str:
        return (
            "Update the agent, or probe it in another way: with probe.side auto, and no "
            "probe.command."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEvicted(Reason):
    code = ReasonCode.ROUTE_EVICTED
    kind = ReasonKind.WAITING

    after_s: float
    found: str

    def sentence(self) -> str:
        return (
            "it is replaced, because it was unhealthy for "
            f"{lasting(self.after_s)}{after_colon(self.found)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteNotNeeded(Reason):
    code = ReasonCode.ROUTE_NOT_NEEDED
    kind = ReasonKind.WAITING

    def sentence(self) -> str:
        return "it is not needed any more"


def _look(why: RouteNeverGood | RouteNotYetGood | RouteBad) -> str:
    """The remedy for probes that are bad; stored reasons may lack how they were made."""
    if why.by_command:
        return "Look why its probe.command fails"
    return "Look whether its program listens on PORT and answers the probe"
