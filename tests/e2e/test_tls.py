"""Several machines with a private authority, in the three commands of docs/operating.md."""

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster import assert_no_survivors, free_ports
from tests.patience import until

from muster.agent.daemon import AgentRefused
from muster.agent.supervisor.shutdown import shut_down
from muster.app.home import Home
from muster.app.local import down
from muster.app.own_authority import own_certificate

MUSTER = Path(sys.executable).with_name("muster")
TIMEOUT_S = 60.0


class People:
    """Somebody elsewhere: settings of their own, and no home."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **{name: value for name, value in os.environ.items() if name[:7] != "MUSTER_"},
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }

    def muster(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(MUSTER), *words],
            input=stdin,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )


@contextmanager
def running(*words: str, log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen([str(MUSTER), *words], stdout=output, stderr=output, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    home.create()
    yield home
    down(home.path)
    assert_no_survivors(tmp_path)


def test_three_commands_make_a_cluster_of_several_machines(home: Home, tmp_path: Path) -> None:
    port, agent_port = free_ports(2)
    people = People(tmp_path / "people")
    people.directory.mkdir()
    ca = str(home.authority)
    where = ("--home", str(home.path), "--port", str(port), "--agent-port", str(agent_port))
    tls = ("--host", "0.0.0.0", "--tls-self-signed", "--tls-name", "controller.example")
    agent = ("--controller", f"localhost:{agent_port}", "--dir", str(tmp_path / "node"))
    token_file = ("--token-file", str(home.join_token_file))
    with running("controller", *where, *tls, log=home.log):
        until(lambda: home.running() is not None)
        known = home.client()
        assert (known["url"], known["ca"]) == (f"https://localhost:{port}", ca)
        assert stat.S_IMODE((home.path / "ca.key").stat().st_mode) == 0o600
        with running("agent", *agent, *token_file, "--ca", ca, log=tmp_path / "agent.log"):
            url = f"https://localhost:{port}"
            token = known["token"]
            refused = people.muster("login", url, "--token-file", "-", stdin=token)
            assert refused.returncode == 3
            assert "name its certificate with --ca FILE or MUSTER_CA" in refused.stderr
            wrong = people.muster("login", url, "--ca", ca, "--token-file", "-", stdin="wrong")
            assert wrong.returncode == 1
            assert not (people.directory / "config" / "muster" / "contexts.json").exists()
            came = people.muster("login", url, "--ca", ca, "--token-file", "-", stdin=token + "\n")
            assert came.returncode == 0, came.stderr
            assert token not in came.stdout + came.stderr
            (context, *_) = [
                each
                for each in json.loads(people.muster("context", "--json").stdout)
                if each["current"]
            ]
            assert (context["name"], context["url"]) == ("localhost", url)
            until(lambda: "alive" in people.muster("agents").stdout)
            ran = people.muster("run", "--", "echo", "from afar")
            assert (ran.returncode, ran.stdout) == (0, "from afar\n"), ran.stderr
            assert "no cluster is known" in people.muster("--home", str(tmp_path), "ps").stderr
            assert people.muster("logout").returncode == 0
            assert "no cluster is known" in people.muster("ps").stderr
    shut_down(tmp_path / "node", grace_s=1.0, timeout_s=20.0)


class Machine:
    """A machine of which an agent is to be made, with nothing on it but an authority's file."""

    def __init__(self, directory: Path, authority: Path) -> None:
        directory.mkdir()
        self.agent = directory / "agent"
        self.log = directory / "agent.log"
        self._directory = directory
        shutil.copy(authority, directory / "ca.pem")

    @contextmanager
    def typed(self, line: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command as it was printed, for a small agent that lives here."""
        token, program, *words = shlex.split(line)
        assert program == "muster"
        name, _, secret = token.partition("=")
        small = ("--dir", str(self.agent), "--cpus", "1", "--gpus", "none")
        environment = os.environ | {name: secret}
        options = {"cwd": self._directory, "env": environment}
        try:
            with running(*words, *small, log=self.log, **options) as process:
                yield process
        finally:
            shut_down(self.agent, grace_s=1.0, timeout_s=20.0)


def test_invited_machine_joins_over_tls_by_the_command_that_was_printed(
    home: Home, tmp_path: Path
) -> None:
    port, agent_port = free_ports(2)
    people = People(tmp_path / "people")
    people.directory.mkdir()
    host = "127.0.0.2"  # where nobody needs a name server
    where = ("--home", str(home.path), "--port", str(port), "--agent-port", str(agent_port))
    tls = ("--host", host, "--tls-self-signed", "--tls-name", host)
    with running("controller", *where, *tls, log=home.log):
        until(lambda: home.running() is not None)
        login = ("login", f"https://{host}:{port}", "--ca", str(home.authority))
        said = people.muster(*login, "--token-file", "-", stdin=home.client()["token"])
        assert said.returncode == 0, said.stderr
        invited = people.muster("agents", "invite", "node-7")
        (line,) = invited.stdout.splitlines()
        assert f"--controller {host}:{agent_port} --name node-7 --ca ca.pem" in line

        other = Home(tmp_path / "other")
        other.create()
        own_certificate(other, ())
        misled = Machine(tmp_path / "misled", other.authority)
        with misled.typed(line):
            until(lambda: "was not issued by that authority" in misled.log.read_text())
        assert "no agents" in people.muster("agents").stderr

        machine = Machine(tmp_path / "machine", home.authority)
        with machine.typed(line):
            until(lambda: "alive" in people.muster("agents").stdout)
            ran = people.muster("run", "--agent", "node-7", "--", "echo", "at node-7")
            assert (ran.returncode, ran.stdout) == (0, "at node-7\n"), ran.stderr
            late = Machine(tmp_path / "late", home.authority)
            with late.typed(line) as refused:
                assert refused.wait(TIMEOUT_S) == AgentRefused.exit_code
            assert "join token" in late.log.read_text()
