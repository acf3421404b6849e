"""The load of routes and deployments, as proxies report it. Nothing of it is stored."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from muster.control.deployment.entity import Route
from muster.core.serving.traffic import LATENCY_BOUNDS_S, LoadReport, RouteLoad, quantile_s

FORGET_S = 15.0
"""The time after which a proxy that reports no more counts as gone, with all that it held."""
MAX_PROXIES = 64
ASKS_AGAIN_S = 60.0
"""The time after which a balancer that asks no more for services sends no more requests."""
LOOK_EVERY_S = 0.9
"""The time in which deployments are looked at once by their loads, however many proxies report; a
little less than that between two reports of one."""
WINDOW_S = 30.0
"""The shortest time of which recent requests are told, and half of the longest."""


@dataclass(slots=True)
class Total:
    """The requests of one route since the controller began.

    ``latencies`` are counts by class.
    """

    requests: int = 0
    failures: int = 0
    latencies: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))

    def add(self, load: RouteLoad) -> None:
        self.requests += max(load.requests, 0)
        self.failures += max(load.failures, 0)
        for index, count in enumerate(load.latencies[: len(self.latencies)]):
            self.latencies[index] += max(count, 0)

    def plus(self, other: "Total") -> None:
        self.requests += other.requests
        self.failures += other.failures
        self.latencies = [a + b for a, b in zip(self.latencies, other.latencies, strict=True)]

    def latency_s(self, part: float) -> float | None:
        return quantile_s(tuple(self.latencies), part)


@dataclass(slots=True)
class _Recent:
    """The requests of one route since ``began_at``, at most ``WINDOW_S`` ago, and in the window
    before."""

    began_at: float
    latest: Total = field(default_factory=Total)
    before: Total = field(default_factory=Total)

    def roll(self, now: float) -> None:
        passed_s = now - self.began_at
        if passed_s >= WINDOW_S:
            self.before = self.latest if passed_s < 2 * WINDOW_S else Total()
            self.latest, self.began_at = Total(), now


@dataclass(slots=True)
class _Proxy:
    heard_at: float
    url: str
    in_flight: Mapping[str, int]
    held: Mapping[str, int]
    rates: Mapping[str, float]


class Loads:
    """The latest report of each proxy, and totals by route and by revision. It outlives the
    mirror.

    Args:
        has_others: whether balancers are told of services that report nothing.
    """

    def __init__(self, *, has_others: bool = False) -> None:
        self._has_others = has_others
        self._asked_at = -inf  # by a balancer that reports nothing
        self._looked_at = -inf
        self.since = ""
        """The moment since which requests are counted, as text."""
        self._proxies: dict[str, _Proxy] = {}
        self._of_route: dict[str, Total] = {}
        self._recent: dict[str, _Recent] = {}

    def told(self, report: LoadReport, now: float) -> bool:
        """Take a report; False if there are too many proxies."""
        self._forget(now)
        if report.proxy not in self._proxies and len(self._proxies) >= MAX_PROXIES:
            return False
        routes = [route for service in report.services for route in service.routes]
        seconds = max(report.seconds, 0.001)
        self._proxies[report.proxy] = _Proxy(
            heard_at=now,
            url=report.url,
            in_flight={each.route: each.in_flight for each in routes if each.in_flight > 0},
            held={each.service: each.held for each in report.services if each.held > 0},
            rates={each.route: each.requests / seconds for each in routes if each.requests},
        )
        for each in routes:
            if each.requests or each.failures:
                self._of_route.setdefault(each.route, Total()).add(each)
                recent = self._recent.setdefault(each.route, _Recent(now))
                recent.roll(now)
                recent.latest.add(each)
        return True

    def are_due(self, now: float) -> bool:
        """Whether deployments are to be looked at by their loads; once in LOOK_EVERY_S."""
        if now < self._looked_at + LOOK_EVERY_S:
            return False
        self._looked_at = now
        return True

    def keep(self, routes: Iterable[Route]) -> None:
        """Forget all routes but these."""
        kept = {route.id for route in routes}
        for gone in self._of_route.keys() - kept:
            del self._of_route[gone], self._recent[gone]

    def of(self, route: Route) -> Total | None:
        """The requests of a route; None if it had none."""
        return self._of_route.get(route.id)

    def recent(self, route: Route, now: float) -> Total:
        """The requests of a route in the last half to whole minute."""
        total = Total()
        if (recent := self._recent.get(route.id)) is not None:
            recent.roll(now)
            total.plus(recent.before)
            total.plus(recent.latest)
        return total

    def in_flight(self, route: Route) -> int:
        """Requests under way at a route."""
        return sum(each.in_flight.get(route.id, 0) for each in self._proxies.values())

    def rate(self, route: Route) -> float:
        """Requests a second at a route."""
        return sum(each.rates.get(route.id, 0.0) for each in self._proxies.values())

    def held(self, deployment: str, now: float) -> int:
        """Requests that wait for a replica of a deployment."""
        self._forget(now)
        return sum(each.held.get(deployment, 0) for each in self._proxies.values())

    def is_known(self, now: float) -> bool:
        """Whether any proxy reports."""
        self._forget(now)
        return bool(self._proxies)

    def urls(self, now: float) -> tuple[str, ...]:
        """The proxies that report, by their URLs for clients."""
        self._forget(now)
        return tuple(sorted({each.url for each in self._proxies.values()} - {""}))

    def is_idle(self, route: Route, since: float) -> bool:
        """Whether all proxies have said, later than ``since``, that no request is under way there.
        Nobody can tell without a proxy, or where a balancer sends requests that reports nothing."""
        if self._has_others or self._asked_at > since - ASKS_AGAIN_S:
            return False
        told = [each for each in self._proxies.values() if each.heard_at > since]
        all_told = len(told) == len(self._proxies) > 0
        return all_told and not any(each.in_flight.get(route.id) for each in told)

    def asked(self, now: float) -> None:
        """Take note of a balancer that asks for services itself, and reports nothing."""
        self._asked_at = now

    def _forget(self, now: float) -> None:
        gone = [name for name, each in self._proxies.items() if now - each.heard_at > FORGET_S]
        for name in gone:
            del self._proxies[name]
