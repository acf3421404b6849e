"""The benchmarks run, in the smallest form, and write all figures that are compared."""

import json
from io import StringIO
from pathlib import Path

import pytest
from benchmarks import (
    b1,
    b2,
    b6,
    commands,
    health,
    probes,
    proxy,
    publishing,
    recovery,
    results,
    shares,
)
from benchmarks.__main__ import main
from benchmarks.results import Figure, Results
from rich.console import Console
from tests.control.deployment.publishing.balancers import needs_haproxy
from tests.databases import why_not

# `up` leaves the controller running when it returns: that is what it is for.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")

TINY_B1 = b1.Plan(lone_jobs=3, runs=1, few_tasks=5, many_tasks=20, floor_spawns=20)
TINY_B2 = b2.Plan(runs=1, sessions=50, paced=20, growth=(60,), loaded=30, agents=5)
TINY_B6 = b6.Plan(settle_s=0.0, window_s=0.5, sessions=2_000, runs=1)
TINY_PUBLISHING = publishing.Plan(deployments=3, changes=1, idle_s=0.5)
TINY_PROBES = probes.Plan(window_s=2.0, routes=20, runs=1)
TINY_PROXY = proxy.Plan(window_s=0.5, runs=1, pace_per_s=100, least_part=0.2)
TINY_SHARES = shares.Plan(seconds=1.0, calm_s=1.0, agents=(1,), requests=("jobs",))
TINY_HEALTH = health.Plan(window_s=0.5, agents=5, runs=1)


def figures(found: Results) -> dict[str, results.Value]:
    return {figure.key: figure.value for figure in found.figures}


def test_b1_in_the_smallest_form_measures_every_key() -> None:
    found = figures(b1.measure(TINY_B1))

    assert found["durable"] is True
    for key in ("n1_start_ms_p50", "tasks_per_s_1000", "tasks_per_s_10000", "floor_per_s"):
        value = found[key]
        assert isinstance(value, float)
        assert value > 0, key


def test_b2_in_the_smallest_form_measures_every_key() -> None:
    found = figures(b2.measure(TINY_B2))

    keys = ["sqlite_sessions_per_s", "start_ms_p99_at_500", "sqlite_load_s"]
    if why_not() is None:
        keys += ["postgres_sessions_per_s"]
    for key in keys:
        value = found[key]
        assert isinstance(value, float)
        assert value > 0, key


def test_b6_in_the_smallest_form_measures_every_key() -> None:
    found = figures(b6.measure(TINY_B6))

    for key in ("idle_rss_mib", "agent_rss_mib", "supervisor_rss_mib", "bytes_per_live_session"):
        value = found[key]
        assert isinstance(value, float)
        assert value > 0, key
    assert isinstance(found["idle_cpu_percent"], float)


def test_health_in_the_smallest_form_measures_every_key() -> None:
    found = figures(health.measure(TINY_HEALTH))

    for key in ("agent_cpu_percent", "controller_cpu_percent", "sighting_ms"):
        value = found[key]
        assert isinstance(value, float)
        assert value > 0, key


def test_recovery_in_the_smallest_form_measures_every_key() -> None:
    found = figures(recovery.measure(recovery.Plan(runs=1)))

    for key in ("failure_to_check_ms", "failure_to_last_check_ms", "healthy_to_restart_ms"):
        value = found[key]
        assert isinstance(value, float)
        assert value > 0, key


def test_probes_in_the_smallest_form_measure_every_key() -> None:
    found = figures(probes.measure(TINY_PROBES))

    for key in ("probes_cpu_percent", "tcp_probes_cpu_percent", "results_per_s"):
        value = found[key]
        assert isinstance(value, float)
        assert value > 0, key


def test_commands_in_the_smallest_form_measure_every_key() -> None:
    found = figures(commands.measure(commands.Plan(rounds=1)))

    assert {"python_ms", *commands.COMMANDS} == set(found)
    for key, value in found.items():
        assert isinstance(value, float)
        assert value > 0, key


@needs_haproxy
def test_publishing_in_the_smallest_form_measures_every_key() -> None:
    found = figures(publishing.measure(TINY_PUBLISHING))

    for key in ("withdrawn_ms", "withdrawn_p95_ms", "back_ms", "back_p95_ms", "idle_percent"):
        value = found[key]
        assert isinstance(value, float)
        assert value > 0, key


def test_shares_in_the_smallest_form_measure_every_key() -> None:
    found = figures(shares.measure(TINY_SHARES))

    floods = ("jobs", "short tasks, cpu 0, agents 1", "short tasks, cpu 1, agents 1")
    for flood in floods:
        for what in ("ratio", "99th, ms", "wait", "memory, MB"):
            value = found[f"{flood}: {what}"]
            assert isinstance(value, float)
            assert value > 0, (flood, what)
    assert f"{floods[1]}: cancel, s" in found


def test_results_written_are_one_flat_object_with_where_they_come_from(tmp_path: Path) -> None:
    found = Results(3, [Figure("tasks_per_s", 2400.0, "how fast"), Figure("durable", True, "so")])

    path = results.write("b0", found, short=True, directory=tmp_path)

    kept = json.loads(path.read_text())
    assert path.name == "b0.json"
    assert {"machine", "commit", "runs", "short", "tasks_per_s", "durable"} == set(kept)
    assert (kept["runs"], kept["tasks_per_s"], kept["durable"]) == (3, 2400.0, True)


def test_results_shown_name_each_figure_with_its_goal() -> None:
    screen = StringIO()
    figure = Figure("tasks_per_s", 2345.6, "how fast", "≥ 2,400")

    results.show(Console(width=120, file=screen), "B0. Something", Results(3, [figure]))

    (line,) = (line for line in screen.getvalue().splitlines() if "tasks_per_s" in line)
    assert "2,346" in line
    assert "≥ 2,400" in line


def test_an_unknown_benchmark_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(SystemExit, match="no benchmark 'b0'; there are: b1, "):
        main(["b0"])


def test_proxy_in_the_smallest_form_measures_every_key() -> None:
    found = figures(proxy.measure(TINY_PROXY))

    for key in ("requests_per_s", "cpu_us", "direct_ms_p50"):
        value = found[key]
        assert isinstance(value, float)
        assert value > 0, key
    assert isinstance(found["added_ms_p50"], float)  # the difference of two that are hardly apart
