"""The requests of deployments, as `muster top` tells them."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.served import BOB, ServedCluster
from tests.cli.deployed import AGENTS, deployed, typed
from tests.cli.rendered import narrow

from muster.control.deployment.load_reports import take_load
from muster.core.serving.traffic import LoadReport, RouteLoad, ServiceLoad
from muster.core.views.deployments import DeploymentView


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, AGENTS)
    cluster.start()
    yield cluster
    cluster.stop()


def report(cluster: ServedCluster, of: DeploymentView, requests: int, failures: int = 0) -> None:
    """Have a proxy tell of requests of the last second, which took 20 ms, and of two that wait."""
    with cluster.client() as client:
        route = client.deployments.show(of.id).routes[0].id
    load = RouteLoad(
        route=route,
        in_flight=3,
        requests=requests,
        failures=failures,
        latencies=(0, 0, 0, 0, requests),
    )
    service = ServiceLoad(service=of.id, held=2, routes=(load,))
    told = LoadReport(proxy="p", url="", seconds=1.0, services=(service,))
    cluster.run(cluster.plane.request(lambda work, parts: take_load(work, parts, told)))


def test_top_without_a_name_shows_the_busiest_deployments_of_the_user(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as client:
        deployed(cluster, client, name="calm")
        busy = deployed(cluster, client, name="busy", replicas=2)
    with cluster.client(BOB) as others:
        deployed(cluster, others, name="hidden")
    report(cluster, busy, 40, failures=10)
    head, *rows = typed(cluster, "top").stdout.splitlines()
    assert head.split() == [
        "NAME", "HEALTHY", "WAITING", "UNDER", "WAY", "PER", "S", "FAILED", "P50", "P99",
    ]  # fmt: skip
    assert [" ".join(row.split()) for row in rows] == [
        "busy 2/2 2 3 40.0 25.0 % ≤25 ms ≤25 ms",
        "calm 1/1 0 0 0.0 - - -",
    ]
    one = typed(cluster, "top", "--limit", "1")
    assert len(one.stdout.splitlines()) == 2
    assert "--limit 10 shows more" in one.stderr
    shown = json.loads(typed(cluster, "top", "--json").stdout)
    assert [each["deployment"]["name"] for each in shown] == ["busy", "calm"]
    assert "no deployments" not in typed(cluster, "top", "-g", "nothing").stderr
    assert "there is no group 'nothing'" in typed(cluster, "top", "-g", "nothing").stderr


def test_listing_of_loads_goes_on_from_page_to_page(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.client.deployments.PAGE", 2)
    with cluster.client() as client:
        for number in range(5):
            client.deploy({"name": f"web-{number}", "command": ["x"], "replicas": 0})
        for limit, found in ((10, 5), (3, 3), (2, 2)):
            names = [each.deployment.name for each in client.loads(limit=limit)]
            assert names == [f"web-{4 - number}" for number in range(found)]


def test_top_of_nothing_says_how_a_deployment_is_made(cluster: ServedCluster) -> None:
    result = typed(cluster, "top")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no deployments; `muster deploy FILE` makes one\n"
    assert typed(cluster, "top", "--json").stdout == "[]\n"


def test_requests_under_way_are_shown_before_any_has_ended(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        made = deployed(cluster, client)
    report(cluster, made, 0)
    first, _, row = typed(cluster, "top", "web").stdout.splitlines()
    assert first == (
        "web: 1 of 1 replica healthy, 3 under way, 0.0 a second, none ended in the last minute; "
        "2 requests wait for a replica"
    )
    assert row.split()[1:4] == ["healthy", "1", "3"]


def test_failures_and_latencies_are_those_of_the_last_minute(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        made = deployed(cluster, client)
        report(cluster, made, 10, failures=10)
        cluster.pass_time(40.0)
        report(cluster, made, 30)
        load = client.top("web").load
        assert (load.recent, load.recent_failures) == (40, 10)
        cluster.pass_time(40.0)
        load = client.top("web").load
        assert (load.recent, load.recent_failures, load.p50_s) == (30, 0, 0.025)
        cluster.pass_time(70.0)
        load = client.top("web").load
        assert (load.recent, load.requests, load.failures, load.p50_s) == (0, 40, 10, None)


def test_top_is_shown_again_and_again_on_a_terminal(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.client() as client:
        made = deployed(cluster, client)
    screen, looks = narrow(100), []

    def pause(_: float) -> None:
        looks.append(1)
        if len(looks) == 2:
            raise KeyboardInterrupt
        report(cluster, made, 7)

    monkeypatch.setattr("muster.cli.screen.stdout", lambda: screen)
    monkeypatch.setattr("muster.cli.watching.time.sleep", pause)
    assert typed(cluster, "top", "--watch").exit_code == 0
    assert isinstance(screen.file, io.StringIO)
    before, *_, after = screen.file.getvalue().split("P99")[1:]
    assert "0.0" in before
    assert "7.0" in after


def test_watching_needs_a_terminal(cluster: ServedCluster) -> None:
    result = typed(cluster, "top", "--watch")
    assert result.exit_code == 2
    assert "--watch: it needs a terminal" in result.stderr
    assert typed(cluster, "top", "web", "-g", "default").exit_code == 2
