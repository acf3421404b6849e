"""The prober's orders and results (design: Effects)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from muster.control.deployment.book import AgentAsked, Heard, Routes, Seen
from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.port_watch import (
    be_told_anew,
    may_get_secret,
    ports_seen,
    taken,
)
from muster.control.deployment.probing.effects import Watch
from muster.control.deployment.probing.orders import order_of
from muster.control.deployment.standing import session_of
from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.tell_agent import TellAgent
from muster.core.host_port import parted
from muster.core.serving.port_holders import PortSeen
from muster.core.serving.probes import ProbeOrder, ProbeResult, Watched
from muster.core.specs.serving import ProbeSide
from muster.core.states import AgentStatus
from muster.core.states.deployment import PROBED, ROUTE_TABLE, RouteStatus
from muster.serving.probing import Asked, Weight, weigh
from muster.store.live import Live
from muster.store.records import Agent

log = logging.getLogger(__name__)


class WatchRoutes(FollowingHandler[Route]):
    """Has the addresses of routes that run probed, and no others."""

    name = "WatchRoutes"
    stage = Stage.TELL
    entity = Route
    statuses = frozenset(ROUTE_TABLE.live) | ROUTE_TABLE.terminal

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def follow(self, record: Route, work: Work) -> None:
        if record.status not in PROBED:
            self._routes.sight.forget(record.name)
            if record.status is not RouteStatus.PROVISIONING:
                heard = self._routes.heard_of(record.name)
                unwatch(record.name, work, heard)
                call_off(record.name, work, heard)
            if record.status is RouteStatus.TERMINATED:
                self._routes.forget(record)
            return
        if record.address is not None:
            self._watch(record, work)

    def _watch(self, record: Route, work: Work) -> None:
        heard, side = self._routes.heard(record), record.probe.side
        if heard.asked_at is None:
            heard.asked_at = work.now
        if side is ProbeSide.AGENT:
            self._routes.sight.forget(record.name)
            unwatch(record.name, work, heard)
            if heard.asked is None:
                self._ask(record, work)
        else:
            self._watch_from_here(record, heard, work)
        if side is ProbeSide.CONTROLLER:
            ask_no_more(record.name, work, self._routes)
        if heard.asked is not None:
            self._watch_from_agent(record, heard.asked, work)

    def _ask(self, record: Route, work: Work) -> None:
        agent = agent_of(record, work.live)
        if agent is not None:
            self._routes.ask(record, agent.id, work.now)

    def _watch_from_here(self, record: Route, heard: Heard, work: Work) -> None:
        generation = record.deployment.probe_version
        has_secret = may_get_secret(self._routes, record, work.live)
        is_heard = _is_heard(record, heard.heard_at(), work)
        is_told = heard.watched == generation and heard.has_secret == has_secret
        if is_told and is_heard:
            return
        if heard.ordered_at and not is_heard and heard.asked is None:
            self._ask(record, work)  # this side finds nothing out
        heard.watched, heard.ordered_at = generation, work.now
        heard.has_secret = has_secret
        work.emit(Watch(record.name, generation, _watched(record, has_secret=has_secret)))

    def _watch_from_agent(self, record: Route, asked: AgentAsked, work: Work) -> None:
        generation, agent = record.deployment.probe_version, work.live.agents.get(asked.agent)
        if agent is None or not (agent.connected and can_probe(agent, record)):
            asked.told = None
            return
        has_secret = may_get_secret(self._routes, record, work.live)
        is_told = asked.told == generation and asked.has_secret == has_secret
        if is_told and _is_heard(record, asked.heard_at(), work):
            return
        asked.told, asked.ordered_at = generation, work.now
        asked.has_secret = has_secret
        watched = _watched(record, has_secret=has_secret)
        session = session_of(record, work.live)
        if record.probe.command is not None and session is not None:
            kernel = session.kernels[0]
            watched = replace(watched, kernel=kernel.id, kernel_generation=kernel.generation)
        work.emit(TellAgent(agent.id, order_of(watched)))


def _is_heard(record: Route, heard_at: float, work: Work) -> bool:
    return work.now < heard_at + record.probe.stale_after_s()


def _watched(record: Route, *, has_secret: bool) -> Watched:
    """The address of a route, and how it is probed.

    Args:
        has_secret: whether probes carry its deployment's secret.
    """
    assert record.address is not None
    host, port = parted(record.address)
    scale = record.deployment.spec.scale
    return Watched(
        route=record.name,
        generation=record.deployment.probe_version,
        host=host,
        port=int(port),
        probe=record.probe,
        metric=scale if scale is not None and scale.name is not None else None,
        secret=record.deployment.secret if has_secret else "",
    )


def unwatch(name: str, work: Work, heard: Heard | None) -> None:
    """Have the controller's prober not probe a route any more."""
    if heard is not None and heard.watched is not None:
        work.emit(Watch(name, heard.watched, None))
        heard.watched = None


def ask_no_more(name: str, work: Work, routes: Routes) -> None:
    """Have the agent not probe a route any more, if it was asked to."""
    call_off(name, work, routes.heard_of(name))
    routes.ask_no_more(name)


def call_off(name: str, work: Work, heard: Heard | None) -> None:
    """Tell the agent that probes a route, if one does, to probe it no more. It stays the one that
    is asked: where the wake is not stored it is told again to go on."""
    asked = None if heard is None else heard.asked
    if asked is not None and asked.told is not None:
        work.emit(TellAgent(asked.agent, ProbeOrder(name, asked.told)))
        asked.told = None


def agent_of(route: Route, live: Live) -> Agent | None:
    """The machine of a route."""
    session = session_of(route, live)
    agent_id = None if session is None else session.kernels[0].agent_id
    return None if agent_id is None else live.agents.get(agent_id)


@dataclass(frozen=True, slots=True)
class ProbesTold(Input):
    """Results of the controller's prober. Those of routes that have ended, or of an older probe,
    change nothing; the prober is told again not to watch those that are none of ours."""

    results: Sequence[ProbeResult]

    @property
    def amount(self) -> int:
        return max(len(self.results), 1)

    def take(self, work: Work, parts: Parts) -> None:
        taking = _Taking(parts[Routes], work)
        for result in self.results:
            taking.from_here(result)
        taking.end()

    def refuse(self, error: Exception) -> None:
        log.warning("%d results of probes are dropped: %s", len(self.results), error)

    def apart(self) -> Sequence[Input]:
        half = len(self.results) // 2
        if not half:
            return (self,)
        return (ProbesTold(self.results[:half]), ProbesTold(self.results[half:]))


class ProbesByAgents:
    """Takes results of agents about routes on their own machines (``ProbeListener``)."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def greeted(self, work: Work, agent: Agent) -> None:
        """Have the agent ordered anew what it is asked to probe."""
        found = work.live.of(Route)
        for name in self._routes.asked_of(agent.id):
            if (route := found.get(name)) is not None:
                self._routes.heard(route).be_ordered_anew()
                work.mark(route)
        be_told_anew(self._routes, agent, work)

    def heard(self, work: Work, agent: Agent, results: Sequence[ProbeResult]) -> None:
        taking = _Taking(self._routes, work)
        for result in results:
            taking.from_agent(agent, result)
        taking.end()

    def ports_seen(self, work: Work, agent: Agent, ports: Sequence[PortSeen]) -> None:
        ports_seen(self._routes, agent, ports, work)


class _Taking:
    """Takes results in a wake."""

    def __init__(self, routes: Routes, work: Work) -> None:
        self._routes = routes
        self._work = work
        self._found = work.live.of(Route)
        self._scaled: dict[Deployment, None] = {}

    def from_here(self, result: ProbeResult) -> None:
        """Take a result of the controller's prober."""
        work, routes = self._work, self._routes
        route = self._found.get(result.route)
        if route is None or route.status not in PROBED:
            work.emit(Watch(result.route, result.generation, None))
            return
        heard = routes.heard(route)
        completed_at = work.now - max(result.age_s, 0.0)
        is_late = heard.here_at is not None and completed_at < heard.here_at
        if is_late or result.generation != route.deployment.probe_version:
            return
        agent = agent_of(route, work.live)
        if taken(routes, route) is None:  # what a thief lets through tells nothing of the way
            _look(routes, route, heard, result, agent, work.now)
        heard.here_at, heard.found_here = completed_at, result.detail
        match self._weight(route, heard, result, agent):
            case Weight.COUNTS:
                self._count(route, heard, result, completed_at)
            case Weight.ASKS_AGENT if agent is not None:
                routes.ask(route, agent.id, work.now)
                work.mark(route)
            case Weight.ENDS_ASKING:
                ask_no_more(route.name, work, routes)
                self._count(route, heard, result, completed_at)

    def from_agent(self, agent: Agent, result: ProbeResult) -> None:
        """Take a result of an agent, which is told again not to probe what it is not asked to."""
        work, route = self._work, self._found.get(result.route)
        is_probed = route is not None and route.status in PROBED
        heard = self._routes.heard_of(result.route) if is_probed else None
        asked = None if heard is None else heard.asked
        if route is None or heard is None or asked is None or asked.agent != agent.id:
            work.emit(TellAgent(agent.id, ProbeOrder(result.route, result.generation)))
            return
        if result.generation != route.deployment.probe_version:
            return
        completed_at = work.now - max(result.age_s, 0.0)
        asked.answered_at = max(asked.answered_at or 0.0, completed_at)
        self._count(route, heard, result, completed_at)

    def end(self) -> None:
        """Have looked at what the results together may have changed."""
        for deployment in self._scaled:
            self._work.mark(deployment)
        if self._routes.sight.is_changed():
            _judge_anew(self._routes, self._work)

    def _weight(
        self, route: Route, heard: Heard, result: ProbeResult, agent: Agent | None
    ) -> Weight:
        asked = heard.asked
        return weigh(
            route.probe,
            good=result.good,
            reached=result.reached,
            asked=None if asked is None else self._asked(asked),
            may_ask=agent is not None and _may_be_asked(agent),
        )

    def _asked(self, asked: AgentAsked) -> Asked:
        return Asked(self._work.now - asked.since, asked.answered_at is not None)

    def _count(self, route: Route, heard: Heard, result: ProbeResult, completed_at: float) -> None:
        """Take note of a result that counts."""
        if heard.completed_at is not None and completed_at < heard.completed_at:
            return
        heard.good, heard.streak, heard.detail = result.good, result.streak, result.detail
        value = None if taken(self._routes, route) else result.value
        heard.completed_at, heard.value = completed_at, value
        if not result.good and not self._routes.is_out_of_sight(route, self._work.now):
            heard.bad_at = completed_at
        settled = RouteStatus.HEALTHY if result.good else RouteStatus.UNHEALTHY
        if result.good is not route.good or route.status is not settled:
            self._work.mark(route)
        if value is not None:
            self._scaled[route.deployment] = None


def can_probe(agent: Agent, route: Route) -> bool:
    """Whether the agent is of a version that knows how to probe a route."""
    return agent.probes and (route.probe.command is None or agent.health_commands)


def _may_be_asked(agent: Agent) -> bool:
    """Whether an agent can be asked to probe; one that is away for a moment may be, too."""
    return agent.status is AgentStatus.ALIVE and (agent.probes or not agent.connected)


def _look(
    routes: Routes, route: Route, heard: Heard, result: ProbeResult, agent: Agent | None, now: float
) -> None:
    """Take note of what a probe tells of the prober's own sight."""
    if heard.reached and not result.reached:
        heard.seen = Seen(now, route.good, route.healthy_since)
    heard.reached = result.reached
    if agent is not None:
        routes.sight.looked(route.name, agent.id, reached=result.reached)


def _judge_anew(routes: Routes, work: Work) -> None:
    """Have the routes judged that the prober does not reach, now that it is blind; once it sees
    again, they are judged by what it finds from then on."""
    found, sight = work.live.of(Route), routes.sight
    for name in sight.unreached():
        if (route := found.get(name)) is None or routes.heard(route).is_seen_by_agent:
            continue
        if sight.is_blind:
            work.mark(route)
        else:
            routes.heard(route).good = None
    if sight.is_blind:
        log.warning(
            "the prober does not reach %d of %d machines at once: nobody is replaced, and traffic "
            "stands as it was",
            sight.out_of_reach,
            sight.machines,
        )
    else:
        log.warning("the prober reaches most machines again")
