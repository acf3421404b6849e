"""The way of a change of health to HAProxy, with 1,000 routes.

A real HAProxy with the frame of docs/traffic.md. A change is a replica that is withdrawn or comes
back; it has arrived when HAProxy's runtime API tells of it.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.results import Figure, Results
from tests.control.deployment.publishing.balancers import HAPROXY, Haproxy, service
from tests.patience import until

from muster.control.deployment.publishing.effects import PublishServices
from muster.control.deployment.publishing.performer import TrafficPublisher
from muster.control.deployment.publishing.runtime_api import RuntimeApi
from muster.control.deployment.publishing.settings import TrafficSettings
from muster.core.serving.traffic import Target, TrafficService

TITLE = "Publishing: from a change of health to HAProxy"
REPLICAS = 10
PAUSE_S = 0.5
GOAL = "<= 200 ms"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: ``deployments`` of ten replicas, ``changes`` each way."""

    deployments: int
    changes: int
    idle_s: float


FULL = Plan(deployments=100, changes=50, idle_s=20.0)
SHORT = Plan(deployments=100, changes=10, idle_s=4.0)


def measure(plan: Plan) -> Results:
    if HAPROXY is None:
        return Results(0, [Figure("haproxy", False, "it is not installed")])
    with tempfile.TemporaryDirectory() as place:
        haproxy = Haproxy(Path(place))
        settings = TrafficSettings(haproxy=haproxy.settings())
        performer = TrafficPublisher(settings, lambda _: None)
        haproxy.start()
        try:
            return _measure(plan, haproxy, performer)
        finally:
            performer.close()
            haproxy.kill()


def _measure(plan: Plan, haproxy: Haproxy, performer: TrafficPublisher) -> Results:
    performer.perform([PublishServices(0, _services(plan, are_all=True))])
    until(lambda: len(haproxy.servers()) == plan.deployments * REPLICAS)
    gone_ms: list[float] = []
    back_ms: list[float] = []
    for change in range(1, 2 * plan.changes + 1):
        is_there = change % 2 == 0
        effect = PublishServices(change, _services(plan, are_all=is_there))
        time.sleep(PAUSE_S)
        took_ms = _change(haproxy, performer, effect, is_there=is_there)
        (back_ms if is_there else gone_ms).append(took_ms)
    began_s = time.process_time()
    time.sleep(plan.idle_s)
    idle_percent = 100 * (time.process_time() - began_s) / plan.idle_s
    return Results(
        plan.changes,
        [
            Figure("withdrawn_ms", median(gone_ms), "a replica gets no new requests", GOAL),
            Figure("withdrawn_p95_ms", _p95(gone_ms), "the same, 95 of 100", GOAL),
            Figure("back_ms", median(back_ms), "a replica gets requests again", GOAL),
            Figure("back_p95_ms", _p95(back_ms), "the same, 95 of 100", GOAL),
            Figure("idle_percent", idle_percent, "of a core, while nothing changes"),
        ],
    )


def _change(
    haproxy: Haproxy, performer: TrafficPublisher, effect: PublishServices, *, is_there: bool
) -> float:
    """Milliseconds until HAProxy has a change."""
    with RuntimeApi(haproxy.settings().socket) as api:
        [backend] = [each for each in api.backends() if each.startswith("muster-s0-")]
        began_s = time.perf_counter()
        performer.perform([effect])
        until(lambda: _is_serving(api, backend) == is_there, pause_s=0.001)
        return 1000 * (time.perf_counter() - began_s)


def _is_serving(api: RuntimeApi, backend: str) -> bool:
    """Whether the replica that comes and goes gets requests."""
    rows = [line.split() for line in api.ask(f"show servers state {backend}").splitlines()]
    return any(row[3:4] == ["rte-0-0"] and row[6] == "0" for row in rows)


def _services(plan: Plan, *, are_all: bool) -> tuple[TrafficService, ...]:
    """The services; one replica may be missing."""
    return tuple(
        service(
            f"s{number}",
            *(
                Target(route=f"rte-{number}-{each}", host="127.0.0.1", port=9, revision=1)
                for each in range(REPLICAS)
                if are_all or number or each
            ),
            drain_s=0.0,
        )
        for number in range(plan.deployments)
    )


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]
