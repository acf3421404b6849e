"""A controller's machine is lost, and its cluster comes back on another: the steps of
docs/database.md, "When the machine of the controller is lost", as typed."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.e2e.cluster import assert_no_survivors, free_ports
from tests.e2e.test_tls import MUSTER, TIMEOUT_S, People, running
from tests.patience import until

from muster.agent.supervisor.shutdown import shut_down
from muster.app.home import Home
from muster.app.local import down


def test_cluster_comes_back_from_one_file_with_its_agents_work_and_tokens(tmp_path: Path) -> None:
    lost, fresh = Home(tmp_path / "lost"), Home(tmp_path / "fresh")
    lost.create()
    port, agent_port = free_ports(2)
    url = f"https://localhost:{port}"
    people = People(tmp_path / "people")
    people.directory.mkdir()
    ca, backup = tmp_path / "ca.pem", str(tmp_path / "backup")
    passphrase = people.directory / "passphrase"
    passphrase.write_text("five words that do not belong\n")
    sealed = ("--passphrase-file", str(passphrase))
    ports = ("--port", str(port), "--agent-port", str(agent_port), "--tls-self-signed")
    node = tmp_path / "node"
    agent = ("--controller", f"localhost:{agent_port}", "--dir", str(node), "--name", "node")
    with running("controller", "--home", str(lost.path), *ports, log=tmp_path / "a.log") as first:
        until(lambda: lost.running() is not None)
        shutil.copy(lost.authority, ca)
        token_file = ("--token-file", str(lost.join_token_file), "--ca", str(ca))
        log = tmp_path / "agent.log"
        try:
            with running("agent", *agent, *token_file, "--cpus", "2", log=log):
                login = ("login", url, "--ca", str(ca), "--token-file", "-")
                assert people.muster(*login, stdin=lost.client()["token"]).returncode == 0
                until(lambda: "alive" in people.muster("agents").stdout)
                work = ("run", "-d", "--name", "long", "--", "echo begun; sleep 600")
                assert people.muster(*work).returncode == 0
                until(lambda: people.muster("logs", "long").stdout == "begun\n")
                made = people.muster(
                    "--home", str(lost.path), "db", "backup", "--all", *sealed, backup
                )
                assert made.returncode == 0, made.stderr
                first.send_signal(signal.SIGKILL)
                first.wait(TIMEOUT_S)
                shutil.rmtree(lost.path)

                restore = ("--home", str(fresh.path), "db", "restore", *sealed, backup)
                asked = people.muster(*restore)
                assert asked.returncode == 1
                assert "Say --revoke-tokens" in asked.stderr
                put = people.muster(*restore, "--keep-tokens")
                assert put.returncode == 0, put.stderr
                again = ("controller", "--home", str(fresh.path), *ports)
                with running(*again, log=tmp_path / "b.log"):
                    until(lambda: fresh.running() is not None)
                    until(lambda: "alive" in people.muster("agents").stdout)
                    shown = people.muster("show", "long").stdout
                    assert "running" in shown
                    assert people.muster("logs", "long").stdout == "begun\n", "it ran on"
                    ended = people.muster("cancel", "long")
                    assert ended.returncode == 0, ended.stderr
                    ran = people.muster("run", "--", "echo", "after")
                    assert (ran.returncode, ran.stdout) == (0, "after\n"), ran.stderr
                    assert fresh.authority.read_bytes() == ca.read_bytes()
                    said = people.muster("--home", str(fresh.path), "agents")
                    assert "alive" in said.stdout, "the token of the home is known, too"
        finally:
            shut_down(node, grace_s=1.0, timeout_s=20.0)
    down(fresh.path)
    assert_no_survivors(tmp_path)


def test_kept_key_without_its_certificate_is_told_and_the_whole_book_begins_no_other(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    home.create()
    (home.path / "ca.key").write_text("the key that was kept")
    command = [str(MUSTER), "controller", "--home", str(home.path), "--tls-self-signed"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
    )
    assert done.returncode == 1
    assert f"{home.authority} is not, its certificate: put it back from a backup" in done.stderr
    assert (home.path / "ca.key").read_text() == "the key that was kept"
