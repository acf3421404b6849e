"""Users, projects, domains, tokens and invitations on the command line."""

import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from tests.cli.fake_cluster import FakeCluster

from muster.core.errors import Conflict
from muster.core.owner import Role
from muster.core.views.accounts import NewJoinTokenView


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("users add ann", ("add_user", ("ann", ["default"], "default"))),
        ("users add ann -p a -p b --domain d", ("add_user", ("ann", ["a", "b"], "d"))),
        ("users set ann -p a --cancel", ("set_projects", ("ann", ["a"], "default", True))),
        ("users remove ann", ("remove_user", ("ann", "default", False))),
        ("users remove ann --cancel", ("remove_user", ("ann", "default", True))),
        ("projects add speech", ("add_project", ("speech", "default", []))),
        ("projects add speech --host a.b", ("add_project", ("speech", "default", ["a.b"]))),
        (
            "projects set speech --host a.b --host c",
            ("set_hosts", ("speech", ["a.b", "c"], "default")),
        ),
        ("projects set speech --host none --domain d", ("set_hosts", ("speech", [], "d"))),
        ("projects remove speech", ("remove_project", ("speech", "default", False))),
        ("domains add lab", ("add_domain", "lab")),
        ("domains remove lab", ("remove_domain", "lab")),
        ("tokens revoke laptop", ("revoke_token", "laptop")),
        ("agents uninvite gpu-7", ("revoke_join_token", "gpu-7")),
    ],
)
def test_command_asks_for_what_it_says(
    cluster: FakeCluster, words: str, asked: tuple[str, object]
) -> None:
    result = cluster.run(*words.split())
    assert result.exit_code == 0, result.output
    assert cluster.asked == [asked]


@pytest.mark.parametrize(
    "words",
    [
        *("users list", "projects list", "domains list", "tokens list", "agents invites", "whoami"),
        *("users", "projects", "domains", "tokens"),
    ],
)
def test_listing_is_a_table_or_json(cluster: FakeCluster, words: str) -> None:
    shown = cluster.run(*words.split())
    assert shown.exit_code == 0, shown.output
    assert any(name in shown.stdout for name in ("ann", "research", "default", "laptop", "gpu-7"))
    assert cluster.json(*words.split(), "--json")


def test_users_are_listed_with_their_uids(cluster: FakeCluster) -> None:
    lines = cluster.run("users").stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["USER", "DOMAIN", "PROJECTS", "UID"],
        ["ann", "default", "research", "2000000000"],
        ["carl", "default", "research", "-"],
    ]


def test_hosts_of_a_project_are_told_with_those_that_stand_outside_of_them(
    cluster: FakeCluster,
) -> None:
    result = cluster.run("projects", "set", "speech", "--host", "a.b")
    assert result.stdout == "project default/speech may use a.b, and names below\n"
    assert "keep them until they are changed: chat.example.org" in result.stderr
    result = cluster.run("projects", "set", "speech", "--host", "none")
    assert result.stdout == "project default/speech may use no host\n"
    assert "research.example.org" in cluster.run("projects").stdout
    refused = cluster.run("projects", "set", "speech")
    assert "name the project's hosts, or none" in refused.stderr


def test_adding_a_user_says_what_comes_next_and_what_to_mind(cluster: FakeCluster) -> None:
    result = cluster.run("users", "add", "ann")
    assert result.stdout == "user default/ann added, in project default\n"
    assert "warning: mind this" in result.stderr
    assert "muster tokens create --user ann" in result.stderr


def test_secret_alone_is_on_stdout(cluster: FakeCluster) -> None:
    words = "tokens create laptop --role viewer --user ann --project research --expires 30d"
    result = cluster.run(*words.split())
    assert result.stdout == "the-secret\n"
    assert "the only time that it is shown" in result.stderr
    (_, (name, fields)) = cluster.asked[0]
    assert name == "laptop"
    assert fields == {
        "role": Role.VIEWER,
        "user": "ann",
        "domain": None,
        "project": "research",
        "expires": "30d",
    }
    assert cluster.json(*words.split(), "--json")["secret"] == "the-secret"


def test_invitation_is_a_command_that_a_shell_takes_as_it_is(cluster: FakeCluster) -> None:
    result = cluster.run(
        "agents", "invite", "gpu 7; rm -rf /", "--group", "h100", "--expires", "2h"
    )
    assert result.exit_code == 0, result.output
    assert shlex.split(result.stdout) == [
        "MUSTER_JOIN_TOKEN=-join it",
        "muster",
        "agent",
        "--controller",
        "127.0.0.1:7601",
        "--name",
        "gpu 7; rm -rf /",
        "--group",
        "h100",
    ]
    assert "listens on this machine alone" in result.stderr
    assert cluster.asked == [
        ("create_join_token", ("gpu 7; rm -rf /", {"group": "h100", "uses": 1, "expires": "2h"}))
    ]


def test_invitation_over_tls_names_the_authority(cluster: FakeCluster) -> None:
    cluster.url = "https://head.example:7600"
    words = shlex.split(cluster.run("agents", "invite", "--uses", "3").stdout)
    assert words[1:] == ["muster", "agent", "--controller", "head.example:7601", "--ca", "ca.pem"]


def test_invitation_for_systemd_writes_the_token_and_installs_the_unit(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """The shell itself writes the token, so that no list of processes shows it."""
    cluster.url = "https://head.example:7600"
    line = cluster.run("agents", "invite", "gpu 7", "--group", "h100", "--unit").stdout
    (tmp_path / "muster").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    (tmp_path / "muster").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ran = subprocess.run(
        ["sh", "-c", line],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout.split("|")[:-1] == [
        *("service", "install", "agent", "--controller", "head.example:7601"),
        *("--name", "gpu 7", "--group", "h100", "--ca", "ca.pem", "--token-file", "join-token"),
    ]
    token = tmp_path / "join-token"
    assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == ("-join it\n", 0o600)
    plain = cluster.run("agents", "invite", "gpu-7")
    assert "--unit prints one that has systemd run it" in plain.stderr


def test_refusal_is_a_sentence(cluster: FakeCluster) -> None:
    cluster.fails = Conflict("user default/ann has work that is alive")
    result = cluster.run("users", "remove", "ann")
    assert result.exit_code == 1
    assert "has work that is alive" in result.stderr
    assert cluster.asked == []


def test_users_projects_are_named_when_they_are_set(cluster: FakeCluster) -> None:
    assert cluster.run("users", "set", "ann").exit_code == 2


@pytest.mark.parametrize("words", ["run --project speech -- true", "run --project=speech true"])
def test_work_names_its_project(cluster: FakeCluster, words: str) -> None:
    from tests.cli.fake_cluster import job

    cluster.jobs_ = [job()]
    cluster.run("run", "-d", *words.split()[1:])
    assert cluster.asked[0][1]["project"] == "speech"


def test_invitation_made_beside_the_controller_names_it_as_other_machines_do(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cluster.create_join_token("a", group=None)
    monkeypatch.setattr(
        cluster,
        "create_join_token",
        lambda *_, **__: NewJoinTokenView(
            token=made.token, secret="secret", agent_address="head.example:7601"
        ),
    )
    cluster.url = "https://localhost:7600"
    result = cluster.run("agents", "invite", "a")
    assert "--controller head.example:7601" in result.stdout
    assert "this machine alone" not in result.stderr
