"""The load that HAProxy counts, as a report like those of Muster's own proxies."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from muster.core.serving.traffic import (
    LATENCY_BOUNDS_S,
    LoadReport,
    RouteLoad,
    ServiceLoad,
    TrafficService,
    latency_class,
)

NAME = "haproxy"


class Counters(NamedTuple):
    """HAProxy's counters of a server.

    Args:
        current: requests under way.
        total: requests since HAProxy began, those under way included.
        failures: those that ended without an answer, or with a status of 500 or more.
        mean_ms: how long the last thousand of them took, on an average.
    """

    current: int = 0
    total: int = 0
    failures: int = 0
    mean_ms: int = 0


class Growth:
    """The counters as they were read last, by the backend of each server and its route."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Counters] | None = None
        self._at_s = 0.0

    def report(
        self,
        counted: Mapping[tuple[str, str], Counters],
        services: Sequence[TrafficService],
        now_s: float,
    ) -> LoadReport | None:
        """The load since the last call; None in the first, which cannot tell how old the counts
        are."""
        last, self._last = self._last, dict(counted)
        seconds, self._at_s = now_s - self._at_s, now_s
        if last is None:
            return None
        service_of = {target.route: each.id for each in services for target in each.targets}
        loads: dict[str, list[RouteLoad]] = {}
        for key, now in counted.items():
            grown = _grown(key[1], last.get(key, Counters()), now)
            if key[1] in service_of and (grown.in_flight or grown.requests):
                loads.setdefault(service_of[key[1]], []).append(grown)
        told = tuple(ServiceLoad(service=id, routes=tuple(each)) for id, each in loads.items())
        return LoadReport(proxy=NAME, seconds=seconds, services=told)


def _grown(route: str, last: Counters, now: Counters) -> RouteLoad:
    if now.total < last.total:  # HAProxy was started or reloaded: it counts anew
        last = Counters()
    failures = max(now.failures - last.failures, 0)
    ended = (now.total - now.current) - (last.total - last.current)
    requests = max(ended, failures, 0)
    latencies = [0] * (len(LATENCY_BOUNDS_S) + 1)
    latencies[latency_class(now.mean_ms / 1000)] = requests
    return RouteLoad(
        route=route,
        in_flight=now.current,
        requests=requests,
        failures=failures,
        latencies=tuple(latencies) if requests else (),
    )
