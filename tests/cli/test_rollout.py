"""Words of commands about updates, and their exit codes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.api.served import LARGE, ServedCluster
from tests.cli.deployed import deployed, passing_time, settled, typed

from muster.cli.cluster import Cluster
from muster.cli.exits import ExitCode
from muster.cli.follow import deployment as follow_module
from muster.cli.program import app

SPEC = {"name": "web", "command": ["forever"], "resources": {"cpu": "10m"}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedCluster]:
    monkeypatch.setattr(follow_module, "LOOK_S", 0.01)
    cluster = ServedCluster(tmp_path, {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


def test_replica_that_is_still_to_come_is_no_update_that_was_given_up(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as client:
        client.deploy({**SPEC, "replicas": 2})
        cluster.pass_time(1.0)
        found = client.deployments.show("web")
        assert (found.rollout, found.healthy) == (None, 0)
    obj = Cluster(cluster.url, cluster.token())
    result = CliRunner().invoke(app, ["rollout", "status", "web"], obj=obj)
    assert result.exit_code == ExitCode.OK, result.output


def test_undo_of_an_update_that_was_given_up_says_that_nothing_is_rolled_out(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as client:
        deployed(cluster, client)
        client.deploy(
            {**SPEC, "drain": 0, "resources": {"cpu": "64"}, "update": {"progress_deadline": 20}}
        )
        settled(cluster, client, "web", lambda found: found.rollout is None)
    undone = typed(cluster, "rollout", "undo", "web")
    assert (undone.exit_code, undone.stdout) == (0, "")
    assert undone.stderr.splitlines() == [
        "deployment web: revision 1 serves already; revision 2, which was given up, is not wished "
        "any more",
        "deployment web: 1 of 1 replica healthy",
    ]
    again = typed(cluster, "rollout", "undo", "web", "--to", "1", "--detach")
    said = "deployment web: revision 1 serves already: nothing is rolled out\n"
    assert (again.exit_code, again.stdout) == (0, said)


def test_undo_names_the_revision_to_which_it_goes_back(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        deployed(cluster, client)
        client.deploy({**SPEC, "drain": 0, "command": ["other"]})
        stopped = typed(cluster, "rollout", "undo", "web", "--detach")
        assert stopped.stdout == (
            "deployment web goes back to revision 1; the update to revision 2 is undone\n"
        )
        client.deploy({**SPEC, "drain": 0, "command": ["third"]})
        settled(cluster, client, "web", lambda found: found.stable == 3 and found.healthy == 1)
    with passing_time(cluster):
        undone = typed(cluster, "rollout", "undo", "web", "--to", "1")
    lines = undone.stderr.splitlines()
    assert lines[0] == "deployment web goes back to revision 1, as revision 4"
    assert lines[1].endswith("; rolling from revision 3 back to 1 (as 4)")
    same = typed(cluster, "rollout", "undo", "web", "--to", "1", "-d").stdout
    assert same == (
        "deployment web: revision 4 serves already, and is the same as revision 1: nothing is "
        "rolled out\n"
    )


def test_history_tells_what_each_revision_changed_and_what_became_of_it(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as client:
        keys = {"env": {"VERSION": "v1", "API_TOKEN": "hush"}, "files": {"serve.py": "1"}}
        deployed(cluster, client, **keys)
        changed = {
            **keys, "resources": {"cpu": "64", "memory": "1GiB"},
            "env": {"VERSION": "v2", "API_TOKEN": "hush-hush", "LONG": "x" * 99}, "files": {},
            "update": {"progress_deadline": 20},
        }  # fmt: skip
        client.deploy({**SPEC, "drain": 0, **changed})
        settled(cluster, client, "web", lambda found: found.rollout is None)
        client.deploy({**SPEC, "drain": 0, "command": ["other"]})
        settled(cluster, client, "web", lambda found: found.stable == 3 and found.healthy == 1)
        client.undo_rollout("web", 1)
    result = typed(cluster, "rollout", "history", "web")
    assert result.exit_code == 0, result.output
    assert "hush" not in result.stdout
    rows = [re.split(r" {2,}", line.strip()) for line in result.stdout.splitlines()[1:]]
    assert [(row[0], row[3:]) for row in rows] == [
        ("1", ["command: forever"]),
        ("2", ["given up: no room",
               "env.VERSION v1→v2, env.API_TOKEN, +env.LONG, -files.serve.py, "
               "resources.cpu 0.01→64, resources.memory 0B→1GiB"]),
        ("3", ["serves",
               "command: other, -env.VERSION, -env.API_TOKEN, -env.LONG, "
               "resources.cpu 64→0.01, resources.memory 1GiB→0B"]),
        ("4", ["under way, back to 1",
               "command: forever, +env.VERSION v1, +env.API_TOKEN, +files.serve.py"]),
    ]  # fmt: skip


def test_history_of_a_deployment_tells_who_did_what_and_which_routes_came(
    cluster: ServedCluster,
) -> None:
    with cluster.client() as client:
        deployed(cluster, client)
        client.scale("web", 2)
        settled(cluster, client, "web", lambda found: found.healthy == 2)
        client.deploy({**SPEC, "drain": 0, "replicas": 2, "command": ["other"], "priority": 40})
        client.deploy({**SPEC, "drain": 0, "replicas": 2, "command": ["other"], "priority": 40})
        client.pause_rollout("web")
        client.pause_rollout("web")
        client.resume_rollout("web")
        client.undo_rollout("web")
        newest = client.routes("all", deployment="web")[0]
    told = typed(cluster, "history", "web").stdout
    rows = [re.split(r" {2,}", line.strip()) for line in told.splitlines()]
    assert [row[-1] for row in rows if "ada" in row[-1]] == [
        "ada hands it in, as revision 1",
        "ada scales it: 1 → 2 replicas",
        "ada hands it in, as revision 2: command, priority",
        "ada pauses the update to revision 2",
        "ada has the update to revision 2 go on",
        "ada goes back to revision 1",
    ]
    assert "rolls out a new revision  revision 1 → 2\n" in re.sub(r" {2,}", "  ", told)
    assert f"{newest.id}, revision {newest.revision}  " in told


def test_update_is_paused_and_goes_on(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        deployed(cluster, client)
        client.deploy({**SPEC, "drain": 0, "command": ["other"]})
    assert typed(cluster, "rollout", "pause", "web").stdout == "the update of web is paused\n"
    resumed = typed(cluster, "rollout", "resume", "web", "--json")
    assert json.loads(resumed.stdout)["name"] == "web"
    assert typed(cluster, "rollout", "pause", "web", "webb").exit_code == ExitCode.USAGE
    unknown = typed(cluster, "rollout", "pause", "webb")
    assert unknown.exit_code == ExitCode.FAILED
    assert "did you mean web?" in unknown.stderr
