"""The prober's orders and results (design: Effects)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from muster.control.deployment.book import Heard, Routes, Seen
from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.probing.effects import Watch
from muster.control.deployment.standing import session_of
from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.core.serving.probes import ProbeResult, Watched
from muster.core.states.deployment import PROBED, ROUTE_TABLE, RouteStatus

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
                unwatch(record.name, work, self._routes.heard_of(record.name))
            if record.status is RouteStatus.TERMINATED:
                self._routes.forget(record)
            return
        heard = self._routes.heard(record)
        generation = record.deployment.probe_version
        is_heard = work.now < heard.heard_at() + record.deployment.spec.probe.stale_after_s()
        if record.address is None or (heard.watched == generation and is_heard):
            return
        host, _, port = record.address.rpartition(":")
        scale = record.deployment.spec.scale
        watched = Watched(
            route=record.name,
            generation=generation,
            host=host,
            port=int(port),
            probe=record.deployment.spec.probe,
            metric=scale if scale is not None and scale.name is not None else None,
        )
        heard.watched, heard.ordered_at = generation, work.now
        if heard.asked_at is None:
            heard.asked_at = work.now
        work.emit(Watch(record.name, generation, watched))


def unwatch(name: str, work: Work, heard: Heard | None) -> None:
    """Have a route not be probed any more."""
    if heard is not None and heard.watched is not None:
        work.emit(Watch(name, heard.watched, None))
        heard.watched = None


@dataclass(frozen=True, slots=True)
class ProbesTold(Input):
    """Results of probes. Those of routes that have ended, or of an older probe, change nothing;
    the prober is told again not to watch those that are none of ours."""

    results: Sequence[ProbeResult]

    @property
    def amount(self) -> int:
        return max(len(self.results), 1)

    def take(self, work: Work, parts: Parts) -> None:
        routes = parts[Routes]
        found = work.live.of(Route)
        scaled: dict[Deployment, None] = {}
        for result in self.results:
            route = found.get(result.route)
            if route is None or route.status not in PROBED:
                work.emit(Watch(result.route, result.generation, None))
                continue
            if result.generation != route.deployment.probe_version:
                continue
            heard = routes.heard(route)
            completed_at = work.now - max(result.age_s, 0.0)
            if heard.completed_at is not None and completed_at < heard.completed_at:
                continue
            heard.good, heard.streak, heard.detail = result.good, result.streak, result.detail
            heard.completed_at, heard.value = completed_at, result.value
            _look(routes, route, heard, result.reached, work)
            settled = RouteStatus.HEALTHY if result.good else RouteStatus.UNHEALTHY
            if result.good is not route.good or route.status is not settled:
                work.mark(route)
            if result.value is not None:
                scaled[route.deployment] = None
        for deployment in scaled:
            work.mark(deployment)
        if routes.sight.is_changed():
            _judge_anew(routes, work)

    def refuse(self, error: Exception) -> None:
        log.warning("%d results of probes are dropped: %s", len(self.results), error)

    def apart(self) -> Sequence[Input]:
        half = len(self.results) // 2
        if not half:
            return (self,)
        return (ProbesTold(self.results[:half]), ProbesTold(self.results[half:]))


def _look(routes: Routes, route: Route, heard: Heard, reached: bool, work: Work) -> None:
    """Take note of what a probe tells of the prober's own sight."""
    if heard.reached and not reached:
        heard.seen = Seen(work.now, route.good, route.healthy_since)
    heard.reached = reached
    session = session_of(route, work.live)
    agent_id = None if session is None else session.kernels[0].agent_id
    if agent_id is not None:
        routes.sight.looked(route.name, agent_id, reached=reached)


def _judge_anew(routes: Routes, work: Work) -> None:
    """Have the routes judged that the prober does not reach, now that it is blind; once it sees
    again, they are judged by what it finds from then on."""
    found, sight = work.live.of(Route), routes.sight
    for name in sight.unreached():
        if (route := found.get(name)) is None:
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
