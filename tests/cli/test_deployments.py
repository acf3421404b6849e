"""Commands that change deployments, and wait until they are as wished."""

import http.server
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from tests.api.served import BOB, ServedCluster
from tests.cli.deployed import AGENTS, WEB, deployed, passing_time, typed
from tests.cli.test_status_line import terminal_of
from tests.client.authority import certificate, served

from muster.cli.cluster import Cluster
from muster.cli.follow import deployment as follow_module
from muster.cli.follow.deployment import Follower, rolled_out
from muster.cli.words import moment
from muster.control.deployment.load_reports import take_load
from muster.core.owner import Role
from muster.core.serving.traffic import LoadReport


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedCluster]:
    monkeypatch.setattr(follow_module, "LOOK_S", 0.01)
    cluster = ServedCluster(tmp_path, AGENTS)
    cluster.start()
    yield cluster
    cluster.stop()


def test_deploy_scale_and_undo_tell_each_change_once(cluster: ServedCluster) -> None:
    with passing_time(cluster):
        made = typed(cluster, "deploy", "-", stdin=WEB)
        changed = typed(cluster, "deploy", "-", stdin=WEB.replace("forever", "other"))
        more = typed(cluster, "scale", "web", "3")
        fewer = typed(cluster, "scale", "web", "0")
        back = typed(cluster, "rollout", "undo", "web", "--json")
    for result, first, last in (
        (made, "deployment web: 0 of 2 replicas healthy", "2 of 2 replicas healthy"),
        (changed, "; rolling from revision 1 to 2", "2 of 2 replicas healthy"),
        (more, "deployment web: 2 of 3 replicas healthy", "3 of 3 replicas healthy"),
        (fewer, "deployment web: 3 replicas healthy, 0 wanted", "0 of 0 replicas healthy"),
    ):  # fmt: skip
        assert (result.exit_code, result.stdout) == (0, ""), result.output
        lines = result.stderr.splitlines()
        assert first in lines[0]
        assert lines[-1] == f"deployment web: {last}"
        assert all(one != other for one, other in pairwise(lines))
    assert (back.exit_code, back.stderr) == (0, "")
    assert '"revision": 3' in back.stdout


def test_detached_command_waits_for_nothing(cluster: ServedCluster) -> None:
    made = typed(cluster, "deploy", "-d", "-", stdin=WEB)
    assert (made.exit_code, made.stdout) == (0, "deployment web: 0 of 2 replicas healthy\n")
    scaled = typed(cluster, "scale", "web", "1", "-d")
    assert (scaled.exit_code, scaled.stdout) == (0, "deployment web wants 1 replica\n")


def test_access_of_people_whom_nobody_knows_is_warned_of(cluster: ServedCluster) -> None:
    cluster.token(BOB)
    known = typed(cluster, "deploy", "-d", "-", stdin=f"{WEB}access: {{users: [bob]}}")
    assert (known.exit_code, known.stderr) == (0, "")
    access = "access: {users: [bob, nobodyhere], projects: [default, ghost]}"
    unknown = typed(cluster, "deploy", "-d", "-", stdin=WEB + access)
    assert (unknown.exit_code, unknown.stderr) == (
        0,
        "warning: access names user nobodyhere, project ghost: unknown in domain default. Look "
        "whether the names are right; whoever is added later gets in then.\n",
    )


def test_number_below_none_is_no_option_that_is_not_there(cluster: ServedCluster) -> None:
    result = typed(cluster, "scale", "web", "-15")
    assert (result.exit_code, result.stderr) == (
        2,
        "muster: -1 begins no option, and no number here is below 0 (see `muster scale --help`)\n",
    )


def test_show_tells_how_a_deployment_is_reached_and_a_route_s_times(cluster: ServedCluster) -> None:
    with cluster.client(role=Role.ADMIN) as admin:
        admin.set_hosts("default", ["example.org"])
    with cluster.client() as client:
        keys = {
            "access": {"users": ["bob"]},
            "scale": {"min": 1, "max": 3},
            "host": "w.example.org",
            "after": ["prep:running"],
        }
        client.submit(name="prep", command=["true"])
        made = deployed(cluster, client, **keys)
        (route,) = client.routes(deployment="web")
    lines = dict(
        re.split(r" {2,}", line, maxsplit=1)
        for line in typed(cluster, "show", "web").stdout.splitlines()
        if not line.startswith(" ")
    )
    assert {key: lines[key] for key in ("command", "reached at", "host", "access", "after")} == {
        "command": "forever",
        "reached at": "/web/ of a proxy: `muster open web`",
        "host": "w.example.org",
        "access": "owner; users bob",
        "after": "prep:running",
    }
    assert lines["replicas"] == "1 of 1 replica healthy, follows load from 1 to 3"
    assert lines["strategy"] == "rolling"
    told = typed(cluster, "show", route.id).stdout
    assert f"deployment  web ({made.id})\n" in told
    assert "last probe  good\n" in told
    assert f"made {moment(route.created_at)}, healthy for " in told
    assert not re.search(r"[0-9]{9}\.", told), "no seconds since the epoch"


def test_wait_that_is_over_leaves_the_deployment_alone(cluster: ServedCluster) -> None:
    result = typed(cluster, "deploy", "-", "--timeout", "0", stdin=WEB)
    assert result.exit_code == 2
    *_, last = result.stderr.splitlines()
    assert last == (
        "web goes on: `muster rollout status --wait web` watches it, `muster cancel web` takes it "
        "down"
    )
    with cluster.client() as client:
        assert client.deployments.show("web").finished_at is None


def test_reason_for_which_it_waits_is_told_once(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "ASK_WHY_AFTER_S", 0.0)
    monkeypatch.setattr(follow_module, "ASK_WHY_EVERY_S", 0.0)
    large = WEB.replace("10m", "64")
    typed(cluster, "deploy", "-d", "-", stdin=large)
    cluster.pass_time(5.0)
    with passing_time(cluster):
        result = typed(cluster, "deploy", "-", "--timeout", "1", stdin=large)
    assert result.exit_code == 2
    told = [line for line in result.stderr.splitlines() if line.startswith("web waits: ")]
    assert told == [
        "web waits: none of 1 agent in group default is large enough for 64 cpu, even when empty"
    ]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_ends_the_wait_and_not_the_update(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    with cluster.client() as client:
        deployed(cluster, client)

    def pressed(_: object) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr("muster.cli.follow.deployment.time.sleep", pressed)
    result = typed(cluster, "deploy", "-", stdin=WEB.replace("forever", "other"))
    assert result.exit_code == code
    assert "`muster rollout undo web` goes back" in result.stderr
    with cluster.client() as client:
        assert client.deployments.show("web").rollout is not None


def test_revision_that_is_given_up_ends_the_wait_with_what_to_do(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        deployed(cluster, client, replicas=1)
        client.deploy(
            {"name": "web", "command": ["forever"], "resources": {"cpu": "64"}, "drain": 0,
             "update": {"progress_deadline": 20}}
        )  # fmt: skip
    with passing_time(cluster):
        result = typed(cluster, "rollout", "status", "web", "--watch")
    assert result.exit_code == 1
    *_, last = result.stderr.splitlines()
    assert "update.progress_deadline; the revision is tried again by `muster rollout" in last
    assert last.endswith("`muster rollout undo web --to 2`.")
    assert result.stderr.count("revision 2 was given up") == 1
    assert "revision 1 serves, not 2" not in result.stderr, "the reason says so"
    assert typed(cluster, "rollout", "status", "web").exit_code == 1
    with passing_time(cluster):
        scaled = typed(cluster, "scale", "web", "2")
    assert scaled.exit_code == 0, "that has nothing to do with it"
    first, *lines = scaled.stderr.splitlines()
    assert "; revision 2 was given up: " in first
    assert lines
    for line in lines:
        assert line.endswith("revision 1 serves, not 2") or line.startswith("web waits: ")


def test_first_revision_of_which_no_replica_gets_healthy_ends_the_wait_and_says_why(
    cluster: ServedCluster,
) -> None:
    cluster.behaviour = lambda start: Run(0.5, exit_code=1)
    failing = WEB.replace("replicas: 2", "replicas: 1")
    with passing_time(cluster):
        result = typed(cluster, "deploy", "-", stdin=failing)
        assert result.exit_code == 1, result.stderr
        assert "no more are tried: session ses-" in result.stderr
        assert "exited with code 1" in result.stderr
        assert "`muster logs rte-" in result.stderr
        assert typed(cluster, "rollout", "status", "web", "--watch").exit_code == 1
    listed = typed(cluster, "deployments").stdout
    assert "no more are tried" in " ".join(listed.split())
    assert "0/1" in listed


def test_replicas_that_are_missing_are_listed_with_how_they_are(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        deployed(cluster, client, replicas=1)
        client.deploy({"name": "huge", "command": ["forever"], "resources": {"cpu": "64"}})
    listed = " ".join(typed(cluster, "deployments").stdout.split())
    assert "1 pending" in listed
    rows = [line.split() for line in typed(cluster, "deployments").stdout.splitlines()]
    assert [row[1] for row in rows if row[0] == "web"] == ["ready"]
    assert [row[1:3] for row in rows if row[0] == "huge"] == [["not", "ready"]]
    shown = typed(cluster, "show", "huge").stdout
    assert shown.startswith("huge  not ready ")
    assert "  pending  revision 1" in shown or "  provisioning  revision 1" in shown
    assert "READY" not in typed(cluster, "why", "huge").stdout
    assert "deployment huge: 0 of 1 replica healthy" in typed(cluster, "why", "huge").stdout


def test_line_on_a_terminal_changes_in_place(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.client() as client:
        made = client.deploy({"name": "web", "command": ["x"], "resources": {"cpu": "10m"}})
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(follow_module, "stderr", lambda: terminal.console)
    with passing_time(cluster):
        follower = Follower(Cluster(cluster.url, cluster.token()), made, rolled_out)
        assert follower.run(None)[1] == 0
    shown = terminal.text()
    assert shown.count("\n") == 1
    assert " deployment web: 0 of 1 replica healthy" in shown
    assert shown.endswith("\r\x1b[2Kdeployment web: 1 of 1 replica healthy\n")


def test_deployment_that_is_taken_down_is_changed_by_no_command(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        deployed(cluster, client)
        client.cancel("web")
    for words in (("scale", "web", "1"), ("rollout", "undo", "web"), ("open", "web")):
        result = typed(cluster, *words)
        assert result.exit_code == 1
        assert result.stderr.startswith("muster: deployment web was taken down")


def test_name_that_nothing_has_is_answered_with_one_alike(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        client.deploy({"name": "chat-web", "command": ["x"], "resources": {"cpu": "10m"}})
        client.submit({"name": "train", "command": ["x"], "resources": {"cpu": "10m"}})
    for words in (
        ("scale", "chat-wb", "1"), ("rollout", "status", "chat-wb"), ("open", "chat-wb"),
        ("top", "chat-wb"), ("routes", "chat-wb"),
    ):  # fmt: skip
        result = typed(cluster, *words)
        assert result.exit_code == 1
        assert result.stderr == (
            "muster: there is no deployment 'chat-wb'; did you mean chat-web?\n"
        )
        of_job = typed(cluster, *("train" if each == "chat-wb" else each for each in words))
        assert of_job.stderr == "muster: there is no deployment 'train': train is a job\n"
        others = typed(cluster, *words, owner=BOB)
        assert others.stderr == "muster: there is no deployment 'chat-wb'\n"


def test_empty_listing_says_where_more_may_be(cluster: ServedCluster) -> None:
    for words, said in (
        (("deployments",), "no deployments; `muster deploy FILE` makes one, and `-a` lists those"),
        (("routes",), "no routes; `-a` lists those that ended\n"),
        (("routes", "-a"), "no routes\n"),
    ):
        result = typed(cluster, *words)
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr.startswith(said)
        assert typed(cluster, *words, "--json").stdout == "[]\n"
    unknown = typed(cluster, "deployments", "-g", "nothing")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "there is no group 'nothing'" in unknown.stderr


def test_workdir_in_a_file_is_relative_to_where_the_file_is(
    cluster: ServedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "web.yaml").write_text(WEB + "workdir: ../data\n")
    monkeypatch.chdir(tmp_path)
    assert typed(cluster, "deploy", "-d", "services/web.yaml").exit_code == 0
    with cluster.client() as client:
        assert client.deployments.show("web").spec["workdir"] == str(tmp_path / "data")


# -- muster open ---------------------------------------------------------------------------------


class _Proxy(http.server.BaseHTTPRequestHandler):
    """A stand-in that answers as the proxy does a request for no service."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_error(401)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[http.server.HTTPServer]:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Proxy)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def report(cluster: ServedCluster, url: str) -> None:
    """Have a proxy tell the controller where it is reached."""
    told = LoadReport(proxy=url, url=url, seconds=1.0)
    cluster.run(cluster.plane.request(lambda work, parts: take_load(work, parts, told)))


def test_open_prints_the_url_alone_once_the_proxy_has_answered(
    cluster: ServedCluster, proxy: http.server.HTTPServer
) -> None:
    with cluster.client() as client:
        deployed(cluster, client)
    url = f"http://127.0.0.1:{proxy.server_port}"
    nobody = typed(cluster, "open", "web")
    assert (nobody.exit_code, nobody.stdout) == (1, "")
    assert "no proxy reports to the controller" in nobody.stderr

    report(cluster, "http://127.0.0.1:1")
    deaf = typed(cluster, "open", "web")
    assert (deaf.exit_code, deaf.stdout) == (1, "")
    assert "no proxy answers here: http://127.0.0.1:1: Connection refused" in deaf.stderr

    report(cluster, url)
    found = typed(cluster, "open", "web")
    assert (found.exit_code, found.stdout) == (0, f"{url}/web/\n")
    assert "Authorization: Bearer TOKEN" in found.stderr
    assert proxy.asked == ["/"]  # type: ignore[attr-defined]
    as_json = typed(cluster, "open", "web", "--json").stdout
    assert cluster.token() not in found.output + as_json
    assert '"public": false' in as_json


def test_open_says_why_a_proxy_does_not_answer_here_and_takes_one_that_does(
    cluster: ServedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.cli.proxies.TIMEOUT_S", 0.2)
    with cluster.client() as client:
        deployed(cluster, client)
    with (
        served(tls=certificate(tmp_path / "tls")) as port,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        url, hangs = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{silent.getsockname()[1]}"
        for each in (url, hangs):
            report(cluster, each)
        unknown = typed(cluster, "open", "web")
        assert (unknown.exit_code, unknown.stdout) == (1, "")
        assert f"{url}: its certificate is not trusted here (" in unknown.stderr
        assert f"{hangs}: no answer within 0.2 s" in unknown.stderr
        known = typed(cluster, "open", "web", "--ca", str(tmp_path / "tls" / "ca.pem"))
        assert (known.exit_code, known.stdout) == (0, f"{url}/web/\n"), known.output


def test_open_waits_for_a_healthy_replica(
    cluster: ServedCluster, proxy: http.server.HTTPServer
) -> None:
    url = f"http://127.0.0.1:{proxy.server_port}"
    report(cluster, url)
    with cluster.client() as client:
        client.deploy({"name": "web", "command": ["x"], "access": "public", "replicas": 1})
    early = typed(cluster, "open", "web")
    assert (early.exit_code, early.stdout) == (0, f"{url}/web/\n")
    assert "no replica is healthy" in early.stderr
    never = typed(cluster, "open", "web", "--wait", "--timeout", "0")
    assert (never.exit_code, never.stdout) == (2, "")
    with passing_time(cluster):
        report(cluster, url)
        found = typed(cluster, "open", "web", "--wait")
    assert (found.exit_code, found.stdout) == (0, f"{url}/web/\n"), found.output
    assert found.stderr.endswith("deployment web: 1 of 1 replica healthy\n")


@pytest.mark.parametrize(
    ("keys", "words", "opened"),
    [
        ({"access": "public"}, (), True),
        ({"access": "public"}, ("--no-browser",), False),
        ({"access": "public"}, ("--json",), False),
        ({}, (), False),
    ],
)
def test_browser_shows_public_deployments_to_people_at_a_terminal(
    cluster: ServedCluster,
    proxy: http.server.HTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, str],
    words: tuple[str, ...],
    opened: bool,
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    monkeypatch.setenv("BROWSER", "true")
    with cluster.client() as client:
        deployed(cluster, client, **keys)
    url = f"http://127.0.0.1:{proxy.server_port}"
    report(cluster, url)
    assert typed(cluster, "open", "web", *words).exit_code == 0
    assert shown == [], "stdout is no terminal"
    from muster.cli.commands import open as command

    class Terminal:
        def isatty(self) -> bool:
            return True

    class Sys:
        stdout = Terminal()
        platform = sys.platform

    monkeypatch.setattr(command, "sys", Sys)
    assert typed(cluster, "open", "web", *words).exit_code == 0
    assert shown == ([f"{url}/web/"] if opened else [])
