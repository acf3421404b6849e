"""Machines that become agents by themselves: the script is run by real shells, with programs beside
it that note how they were called."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.e2e.cluster import assert_no_survivors
from tests.patience import until

from muster.core.specs.pool import MachineShape
from muster.providers import starting
from muster.providers.provider import AgentSetup, SliceOrder
from muster.providers.starting import AgentPlace, agent_command, start_script, stop_script

TOKEN = "it's a $(secret) `token` \\ \" %s"
AUTHORITY = "-----BEGIN CERTIFICATE-----\nA'B$C\n-----END CERTIFICATE-----\n"
SHELLS = ("dash", "bash")


def order(
    token: str = TOKEN, authority: str | None = AUTHORITY, controller: str = "10.0.0.5:7601"
) -> SliceOrder:
    shape = MachineShape.model_validate(
        {"cpu": 8, "memory": "64GiB", "gpus": 2, "gpu_model": "H100", "extra": {"licence": 1.5}}
    )
    setup = AgentSetup(controller, "gpus", token, authority)
    return SliceOrder("sl-1", ("m-1", "m-2"), shape, False, {}, setup)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without systemd for those who are not root, as ``id`` says. Its ``bin`` has its
    ``muster``, which notes its words and what it finds, and runs until it is told to end; and its
    ``crontab``, which keeps a file."""
    monkeypatch.setattr(starting, "PAUSE_S", 0.05)
    programs = tmp_path / "bin"
    programs.mkdir()
    _program(
        programs / "muster",
        f"""case "$*" in
        *--end*) kill $(cat {tmp_path}/pid) 2>/dev/null; echo "$@" >>{tmp_path}/ended
          case "$*" in *--wipe*) rm -rf {tmp_path}/lib/agent;; esac; exit 0;;
        esac
        for word in "$@"; do printf '%s\\n' "$word"; done >{tmp_path}/words.new
        env >{tmp_path}/environment
        echo $$ >{tmp_path}/pid; echo started >>{tmp_path}/starts
        mv {tmp_path}/words.new {tmp_path}/words
        exec sleep 60""",
    )
    _program(programs / "id", "echo 1000")
    _program(
        programs / "crontab",
        f'if [ "$1" = -l ]; then cat {tmp_path}/cron; else cat >{tmp_path}/cron.new; '
        f"mv {tmp_path}/cron.new {tmp_path}/cron; fi",
    )
    yield tmp_path
    _run("sh", stop_script(_place(tmp_path)), tmp_path)


def _program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def _place(machine: Path) -> AgentPlace:
    return AgentPlace(f"{machine}/lib/agent", (f"{machine}/bin/muster",))


def _run(shell: str, script: str, machine: Path) -> subprocess.CompletedProcess[str]:
    path = f"{machine}/bin:{os.environ['PATH']}"
    return subprocess.run(
        [shell, "-s"],
        input=script,
        env={"PATH": path},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_command_names_controller_group_and_files_and_has_no_secret() -> None:
    words = agent_command(order(), "m-2", AgentPlace("/srv/agent", ("/opt/py", "-m", "muster")))

    assert " ".join(words) == (
        "/opt/py -m muster agent --controller 10.0.0.5:7601 --name m-2 --group gpus "
        "--dir /srv/agent --token-file /srv/agent/join-token --ca /srv/agent/authority.pem "
        "--resource licence=1500m"
    )


def test_agent_is_told_the_range_of_uids_that_an_operator_chose() -> None:
    chosen = order()
    chosen = replace(chosen, setup=replace(chosen.setup, uids="300000-300009"))
    words = agent_command(chosen, "m-1", AgentPlace())
    assert words[words.index("--uid-range") + 1] == "300000-300009"
    assert "--uid-range" not in agent_command(order(), "m-1", AgentPlace())


def test_controller_without_tls_needs_no_authority() -> None:
    assert "--ca" not in agent_command(order(authority=None), "m-1", AgentPlace())
    assert "authority" not in start_script(order(authority=None), "m-1", AgentPlace())


@pytest.mark.parametrize("directory", ["agent", "/a/../b", "/a b", "/a;rm", "/", "/a/", "/a\n/b"])
def test_directory_that_a_shell_could_misread_is_refused(directory: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        AgentPlace(directory)


def test_unit_that_could_lead_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match="name of letters"):
        AgentPlace(unit="../passwd")


@pytest.mark.parametrize("shell", SHELLS)
def test_script_writes_private_files_and_keeps_an_agent(shell: str, machine: Path) -> None:
    place = _place(machine)

    done = _run(shell, start_script(order(), "m-1", place, ["echo prepared >&2"]), machine)

    assert (done.returncode, done.stderr) == (0, "prepared\n")
    until((machine / "words").exists)
    assert (machine / "words").read_text().split("\n")[:-1] == agent_command(order(), "m-1", place)[
        1:
    ]
    directory = machine / "lib/agent"
    assert (directory / "join-token").read_text() == TOKEN
    assert (directory / "authority.pem").read_text() == AUTHORITY
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert set(modes.values()) == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (machine / "lib").stat().st_mode & 0o005, "users pass it on the way to their homes"
    assert TOKEN not in (machine / "environment").read_text()
    assert (machine / "cron").read_text() == f"@reboot sh {directory}/keep.sh\n"


def test_script_that_runs_twice_keeps_one_agent_and_one_line_for_cron(machine: Path) -> None:
    script = start_script(order(), "m-1", _place(machine))
    (machine / "cron").write_text("0 0 * * * something else\n")
    for _ in range(2):
        assert _run("sh", script, machine).returncode == 0
        until((machine / "words").exists)

    assert (machine / "starts").read_text() == "started\n"
    lines = ["0 0 * * * something else", f"@reboot sh {machine}/lib/agent/keep.sh"]
    assert (machine / "cron").read_text().splitlines() == lines


def test_stopped_agent_is_not_started_again_and_leaves_nothing(machine: Path) -> None:
    _run("sh", start_script(order(), "m-1", _place(machine)), machine)
    until((machine / "words").exists)

    for _ in range(2):
        done = _run("sh", stop_script(_place(machine)), machine)
        assert (done.returncode, done.stderr) == (0, "")

    end = f"agent --end --dir {machine}/lib/agent"
    assert (machine / "ended").read_text().splitlines() == [end, f"{end} --wipe"]
    assert (machine / "starts").read_text() == "started\n"
    assert not (machine / "lib/agent").exists()
    assert (machine / "cron").read_text() == ""


def test_agent_that_ended_is_started_again(machine: Path) -> None:
    _run("sh", start_script(order(), "m-1", _place(machine)), machine)
    until((machine / "words").exists)

    os.kill(int((machine / "pid").read_text()), signal.SIGKILL)

    until(lambda: (machine / "starts").read_text() == "started\nstarted\n")


def test_scripts_start_and_end_a_real_agent(machine: Path) -> None:
    _program(machine / "bin/muster", f'exec {sys.executable} -P -m muster.cli.main "$@"')
    place = _place(machine)
    directory = machine / "lib/agent"
    made = order(token="t", authority=None, controller="127.0.0.1:1")

    started = _run("sh", start_script(made, "m-1", place), machine)

    assert (started.returncode, started.stderr) == (0, "")
    until((directory / "supervisor.sock").exists)
    stopped = _run("sh", stop_script(place), machine)
    assert stopped.returncode == 0
    assert stopped.stderr.splitlines() == [
        f"the agent of {directory} has ended",
        f"the agent of {directory} has ended, and its files are removed",
    ]
    assert not directory.exists()
    assert_no_survivors(directory)


def test_failing_preparation_starts_nothing(machine: Path) -> None:
    done = _run("sh", start_script(order(), "m-1", _place(machine), ["false"]), machine)

    assert done.returncode == 1
    assert not (machine / "lib").exists()


def test_machine_with_systemd_gets_a_unit() -> None:
    place = AgentPlace(unit="muster-gpu")
    script = start_script(order(), "m-1", place)
    checked = subprocess.run(["sh", "-n"], input=script, text=True, timeout=20, check=False)

    assert checked.returncode == 0
    enabled = script.index("systemctl enable muster-gpu.service")
    assert script.index("ExecStart=/bin/sh /var/lib/muster/agent/agent.sh\n") < enabled
    assert "KillMode=process\n" in script
    assert enabled < script.index("systemctl --no-block start muster-gpu.service")


_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(token=_TEXT, controller=_TEXT, name=_TEXT)
def test_no_text_is_ever_obeyed_by_a_shell(token: str, controller: str, name: str) -> None:
    """Any text in the script comes out as it was, and nothing else is run."""
    made = order(token=token, controller=controller)
    place = AgentPlace("/srv/agent", ("printf", "%s\\0"))
    script = start_script(made, name, place)
    (of_token,) = [line for line in _lines(script) if line[-1:] == [">/srv/agent/join-token.new"]]
    (of_agent,) = [line for line in _lines(script) if line[-1:] == [">/srv/agent/agent.sh.new"]]

    assert of_token == ["printf", "%s", token, ">/srv/agent/join-token.new"]
    ran = subprocess.run(
        ["sh"], input=of_agent[2].encode(), capture_output=True, timeout=20, check=True
    )
    words = ran.stdout.decode().split("\0")[:-1]
    assert words == agent_command(made, name, place)[2:]


def _lines(script: str) -> Iterator[list[str]]:
    """The script's words, by commands that begin with printf."""
    found: list[str] = []
    for word in shlex.split(script, comments=False):
        if word == "printf":
            yield found
            found = []
        found.append(word)
        if word.startswith(">/"):
            yield found
            found = []
