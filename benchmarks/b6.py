"""B6: what a cluster costs that has nothing to do, and what a live session costs in memory."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.cluster import one_agent_cluster
from benchmarks.live_sessions import bytes_per_session
from benchmarks.results import Figure, Results

TITLE = "B6. Idle and memory"


@dataclass(frozen=True, slots=True)
class Plan:
    """``runs`` windows of ``window_s`` after ``settle_s``, and ``runs`` times ``sessions``."""

    settle_s: float
    window_s: float
    sessions: int
    runs: int = 3


FULL = Plan(settle_s=10.0, window_s=60.0, sessions=100_000)
SHORT = Plan(settle_s=5.0, window_s=10.0, sessions=20_000)


def measure(plan: Plan) -> Results:
    """
    Raises:
        MusterError: there is no cluster to measure.
    """
    alike = [bytes_per_session(plan.sessions, distinct=False) for _ in range(plan.runs)]
    distinct = [bytes_per_session(plan.sessions, distinct=True) for _ in range(plan.runs)]
    figures = [
        *_idle(plan),
        Figure(
            "bytes_per_live_session",
            median(alike),
            f"growth of resident memory of a control plane without agents, by each of "
            f"{plan.sessions} waiting sessions that differ by their name",
            "≤ 2,048",
        ),
        Figure(
            "bytes_per_live_session_distinct",
            median(distinct),
            "the same when each has a command of its own",
        ),
    ]
    return Results(plan.runs, figures)


def _idle(plan: Plan) -> Iterator[Figure]:
    """Processor time in windows without a client, and memory after them."""
    cpu_percent: dict[str, list[float]] = {}
    with one_agent_cluster() as cluster:
        cluster.client.close()
        time.sleep(plan.settle_s)
        for _ in range(plan.runs):
            began_s, before = time.monotonic(), cluster.processes.cpu_s()
            time.sleep(plan.window_s)
            passed_s = time.monotonic() - began_s
            for name, cpu_s in cluster.processes.cpu_s().items():
                used = (cpu_s - before[name]) / passed_s
                cpu_percent.setdefault(name, []).append(used * 100)
        rss_mib = cluster.processes.rss_mib()
    yield Figure(
        "idle_cpu_percent",
        median(cpu_percent["controller"]),
        f"of a core, by the controller with one agent and no client; {plan.runs} windows of "
        f"{plan.window_s:g} s after {plan.settle_s:g} s",
        "≤ 0.5",
    )
    for name in ("agent", "supervisor"):
        yield Figure(f"{name}_idle_cpu_percent", median(cpu_percent[name]), f"by the {name}")
    yield Figure(
        "idle_rss_mib", rss_mib["controller"], "resident, controller, after the windows", "≤ 120"
    )
    for name in ("agent", "supervisor"):
        yield Figure(f"{name}_rss_mib", rss_mib[name], f"resident, {name}, likewise")
