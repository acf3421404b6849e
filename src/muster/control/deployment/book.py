"""The live deployments by their names, and their routes, with what was heard of these."""

from collections.abc import Collection
from dataclasses import dataclass

from muster.control.deployment.entity import Deployment, DeploymentId, Route
from muster.control.deployment.sight import Sight
from muster.core.ids import SessionId
from muster.serving.probing import LastProbe
from muster.store.live import Live


@dataclass(frozen=True, slots=True)
class Seen:
    """The grounds on which a route got traffic, or none, at a moment."""

    at: float
    good: bool | None
    healthy_since: float | None


@dataclass(slots=True)
class Heard:
    """The last of what the prober told of one route, and of what it was told; none of it is stored.

    Args:
        watched: the generation under which the route is watched, None while it is not.
        asked_at: since when this controller has had it watched.
        ordered_at: when the prober was told so last; it is again where nothing is heard of it.
        good, streak, detail: of the last completed probe.
        completed_at: when that was.
        value: of its metric, None where none was read.
        reached: whether that probe reached the replica's machine.
        seen: the route as it was before the first of the probes that do not reach it.
    """

    watched: int | None = None
    asked_at: float | None = None
    ordered_at: float = 0.0
    good: bool | None = None
    streak: int = 0
    detail: str = ""
    completed_at: float | None = None
    value: float | None = None
    reached: bool = True
    seen: Seen | None = None

    def last(self, now: float) -> LastProbe | None:
        """The last completed probe; None before the first."""
        if self.good is None or self.completed_at is None:
            return None
        return LastProbe(self.good, self.streak, max(now - self.completed_at, 0.0))

    def heard_at(self) -> float:
        """When a probe was completed, or ordered, last."""
        return max(self.ordered_at, self.completed_at or 0.0)

    def unheard_s(self, now: float) -> float:
        """For how long this controller has had it watched."""
        return 0.0 if self.asked_at is None else now - self.asked_at


class Routes:
    """The routes that have not ended, by deployment and by session. What was heard outlives the
    mirror, so that a mirror that is read anew does not make every route stale."""

    def __init__(self, live: Live, heard: dict[str, Heard]) -> None:
        self._of: dict[DeploymentId, dict[Route, None]] = {}
        self._of_session: dict[SessionId, Route] = {}
        self._names: dict[str, Deployment] = {}
        self._hosts: dict[str, Deployment] = {}
        self._heard = heard
        self.due: dict[DeploymentId, float] = {}
        """When the next step of a roll-out may be due, if nothing else happens."""
        self.sight = Sight()
        for deployment in live.of(Deployment).values():
            self.named(deployment)
        for route in live.of(Route).values():
            self.made(route)
        for each in heard.values():
            each.watched = None  # the wake that had it watched may not have been stored
        for gone in heard.keys() - live.of(Route).keys():
            del heard[gone]

    # -- deployments ---------------------------------------------------------------------------

    def called(self, name: str) -> Deployment | None:
        """The live deployment of this name."""
        return self._names.get(name)

    def at(self, host: str) -> Deployment | None:
        """The live deployment that requests for this host reach."""
        return self._hosts.get(host)

    def named(self, deployment: Deployment, former_host: str | None = None) -> None:
        """Take note of the names of a deployment."""
        self._names[deployment.name] = deployment
        if former_host is not None and self._hosts.get(former_host) is deployment:
            del self._hosts[former_host]
        if deployment.host is not None:
            self._hosts[deployment.host] = deployment

    def unnamed(self, deployment: Deployment) -> None:
        """Forget the names of a deployment that is taken down: another may have them."""
        if self._names.get(deployment.name) is deployment:
            del self._names[deployment.name]
        if deployment.host is not None and self._hosts.get(deployment.host) is deployment:
            del self._hosts[deployment.host]

    # -- routes --------------------------------------------------------------------------------

    def of(self, deployment: Deployment) -> Collection[Route]:
        """The routes of a deployment that have not ended, oldest first."""
        return self._of.get(deployment.id, {}).keys()

    def of_session(self, session: SessionId) -> Route | None:
        """The route whose session this is."""
        return self._of_session.get(session)

    def made(self, route: Route) -> None:
        """Take note of a route."""
        self._of.setdefault(route.deployment.id, {})[route] = None
        if route.session_id is not None:
            self._of_session[route.session_id] = route

    def has_session(self, route: Route) -> None:
        """Take note of the route's session."""
        assert route.session_id is not None
        self._of_session[route.session_id] = route

    def ended(self, route: Route) -> None:
        """Forget a route that has ended."""
        of_deployment = self._of.get(route.deployment.id, {})
        of_deployment.pop(route, None)
        if not of_deployment:
            self._of.pop(route.deployment.id, None)
        if route.session_id is not None:
            self._of_session.pop(route.session_id, None)

    def forget(self, route: Route) -> None:
        """Forget what was heard of a route that has ended."""
        self._heard.pop(route.name, None)

    def is_out_of_sight(self, route: Route) -> bool:
        """Whether nothing is known of a route because the prober is blind: its last probe did not
        reach its machine, nor those of many others."""
        heard = self._heard.get(route.name)
        return self.sight.is_blind and heard is not None and not heard.reached

    def heard_of(self, name: str) -> Heard | None:
        """The last that was heard of the route of this name; None if nothing was."""
        return self._heard.get(name)

    def heard(self, route: Route) -> Heard:
        """The last that was heard of a route."""
        return self._heard.setdefault(route.name, Heard())
