"""The live deployments by their names, and their routes, with what was heard of these."""

from collections.abc import Collection
from dataclasses import dataclass

from muster.control.deployment.entity import Deployment, DeploymentId, Route
from muster.control.deployment.sight import Sight
from muster.core.ids import AgentId, KernelId, SessionId
from muster.core.serving.port_holders import PortHolder
from muster.serving.probing import LastProbe
from muster.store.live import Live


@dataclass(frozen=True, slots=True)
class Seen:
    """The grounds on which a route got traffic, or none, at a moment."""

    at: float
    good: bool | None
    healthy_since: float | None


@dataclass(slots=True)
class AgentAsked:
    """The agent that is asked to probe a route on its machine.

    Args:
        since: when it was asked.
        told: the generation that it was told on its stream, None before.
        has_secret: whether its probes were told to carry the deployment's secret.
        ordered_at: when it was told so last.
        answered_at: when the last probe of which it told was completed, None before the first.
    """

    agent: AgentId
    since: float
    told: int | None = None
    has_secret: bool = False
    ordered_at: float = 0.0
    answered_at: float | None = None

    def heard_at(self) -> float:
        """When a probe was completed, or ordered, last."""
        return max(self.ordered_at, self.answered_at or 0.0)


@dataclass(slots=True)
class PortWatched:
    """The port of a route, at whose listeners its agent looks.

    Args:
        agent, kernel, generation: the replica's.
        is_told: whether the agent was told so on its stream.
        holder: who listens there, as it told last; None before.
    """

    agent: AgentId
    kernel: KernelId
    generation: int
    is_told: bool = False
    holder: PortHolder | None = None

    @property
    def key(self) -> tuple[AgentId, KernelId, int]:
        return self.agent, self.kernel, self.generation


@dataclass(slots=True)
class Heard:
    """The last of what probers told of one route, and of what they were told; none of it is stored.

    Args:
        watched: the generation under which the controller's prober watches it, None while it does
            not.
        has_secret: whether these probes were told to carry the deployment's secret.
        asked_at: since when this controller has had it watched.
        ordered_at: when the controller's prober was told so last; it is again where nothing is
            heard of it.
        here_at: when the last probe by the controller's prober was completed, None before.
        found_here: its detail.
        reached: whether it reached the replica's machine.
        good, streak, detail: of the last completed probe that counts.
        completed_at: when that was.
        bad_at: when the last bad one of these was completed, None before the first.
        value: of its metric, None where none was read.
        seen: the route as it was before the first of the probes that do not reach it.
        asked: the agent that is asked to probe it, None while the controller's probes are enough.
        port: its port, at which its agent looks; None before it runs.
    """

    watched: int | None = None
    has_secret: bool = False
    asked_at: float | None = None
    ordered_at: float = 0.0
    here_at: float | None = None
    found_here: str = ""
    good: bool | None = None
    streak: int = 0
    detail: str = ""
    completed_at: float | None = None
    bad_at: float | None = None
    value: float | None = None
    reached: bool = True
    seen: Seen | None = None
    asked: AgentAsked | None = None
    port: PortWatched | None = None

    def last(self, now: float) -> LastProbe | None:
        """The last completed probe; None before the first."""
        if self.good is None or self.completed_at is None:
            return None
        return LastProbe(self.good, self.streak, max(now - self.completed_at, 0.0))

    def heard_at(self) -> float:
        """When a probe by the controller's prober was completed, or ordered, last."""
        return max(self.ordered_at, self.here_at or 0.0)

    def be_ordered_anew(self) -> None:
        """Have probers told again what they are to probe: perhaps they lost it."""
        self.watched = None
        if self.asked is not None:
            self.asked.told = None
        if self.port is not None:
            self.port.is_told = False

    @property
    def holder(self) -> PortHolder | None:
        """The holder of its port; None if its agent has not told."""
        return None if self.port is None else self.port.holder

    @property
    def is_seen_by_agent(self) -> bool:
        """Whether its agent tells how it is."""
        return self.asked is not None and self.asked.answered_at is not None

    def unheard_s(self, now: float) -> float:
        """For how long this controller has had it watched."""
        return 0.0 if self.asked_at is None else now - self.asked_at


class Routes:
    """The routes that have not ended, by deployment and by session. What was heard, and the
    prober's sight, outlive the mirror, so that a mirror that is read anew makes no route stale, and
    none unhealthy of which the prober was blind."""

    def __init__(self, live: Live, heard: dict[str, Heard], sight: Sight) -> None:
        self._of = live.index(Route, by="deployment")
        self._of_session = live.index(Route, by="session_id")
        self._names = live.index(Deployment, by="name")
        self._hosts = live.index(Deployment, by="host")
        self._heard = heard
        self.due: dict[DeploymentId, float] = {}
        """When the next step of a roll-out may be due, if nothing else happens."""
        self.sight = sight
        self._of_agent: dict[AgentId, dict[str, None]] = {}
        for gone in heard.keys() - live.of(Route).keys():
            del heard[gone]
            sight.forget(gone)
        for name, each in heard.items():
            each.be_ordered_anew()  # the wake that had it watched may not have been stored
            if each.asked is not None:
                self._of_agent.setdefault(each.asked.agent, {})[name] = None

    def called(self, name: str) -> Deployment | None:
        """The live deployment of this name."""
        return self._names.newest(name)

    def at(self, host: str) -> Deployment | None:
        """The live deployment that requests for this host reach."""
        return self._hosts.newest(host)

    def of(self, deployment: Deployment) -> Collection[Route]:
        """The routes of a deployment that have not ended, oldest first."""
        return self._of.of(deployment)

    def of_session(self, session: SessionId) -> Route | None:
        """The route whose session this is."""
        return self._of_session.newest(session)

    def forget(self, route: Route) -> None:
        """Forget what was heard of a route that has ended."""
        self.ask_no_more(route.name)
        self._heard.pop(route.name, None)

    def ask(self, route: Route, agent: AgentId, now: float) -> None:
        """Have the agent asked to probe a route on its machine."""
        self.heard(route).asked = AgentAsked(agent, now)
        self._of_agent.setdefault(agent, {})[route.name] = None

    def ask_no_more(self, name: str) -> AgentAsked | None:
        """Have no agent asked any more to probe a route; the answer is the one that was."""
        heard = self._heard.get(name)
        if heard is None or heard.asked is None:
            return None
        asked, heard.asked = heard.asked, None
        mine = self._of_agent[asked.agent]
        del mine[name]
        if not mine:
            del self._of_agent[asked.agent]
        return asked

    def asked_of(self, agent: AgentId) -> Collection[str]:
        """The names of the routes that an agent is asked to probe."""
        return self._of_agent.get(agent, {}).keys()

    def is_out_of_sight(self, route: Route, now: float) -> bool:
        """Whether nothing is known of a route because the prober is blind: its last probe did not
        reach its machine, nor those of many others. What its agent tells, or is about to tell, is
        known all the same."""
        heard = self._heard.get(route.name)
        if not self.sight.is_blind or heard is None or heard.reached:
            return False
        asked = heard.asked
        if asked is None or asked.answered_at is not None:
            return asked is None
        return now > asked.since + route.probe.stale_after_s()

    def heard_of(self, name: str) -> Heard | None:
        """The last that was heard of the route of this name; None if nothing was."""
        return self._heard.get(name)

    def listens(self, route: Route) -> bool:
        """Whether a route's own program may listen on its port, as far as its agent has told."""
        heard = self._heard.get(route.name)
        return heard is None or heard.holder in (None, PortHolder.REPLICA)

    def heard(self, route: Route) -> Heard:
        """The last that was heard of a route."""
        return self._heard.setdefault(route.name, Heard())
