"""The operator's command that reboots machines of no pool, as real processes that misbehave."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.control.health.rebooters import Rebooters, rebooting
from tests.patience import until

from muster.control.health.rebooting.effects import MachineRebooted
from muster.control.health.rebooting.settings import FILE, HealthSettings, load_settings
from muster.core.errors import InvalidSpec
from muster.core.health.verdict import MAX_TOLD


@pytest.fixture
def rebooters(tmp_path: Path) -> Iterator[Rebooters]:
    with rebooting(tmp_path) as rebooters:
        yield rebooters


def _use(rebooters: Rebooters, line: str, timeout: float = 20.0) -> None:
    rebooters.use("/bin/sh", "-c", line, timeout=timeout)


def _sleepers() -> set[int]:
    """The processes that a test has sleep for ten minutes."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.cmdline() == ["sleep", "603"]:
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def test_command_learns_of_the_machine_from_its_environment(
    rebooters: Rebooters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_CONTROLLER", "swordfish")
    told = tmp_path / "told"
    _use(rebooters, f"env -0 >{told}; pwd >{told}.place; cat >{told}.input")
    effect = rebooters.machine("m1")
    assert rebooters.outcome(effect) == MachineRebooted(effect.incident, 1, done=True)
    variables = dict(line.split("=", 1) for line in told.read_text().split("\0") if line)
    assert {name: text for name, text in variables.items() if name.startswith("MUSTER_")} == {
        "MUSTER_AGENT": "m1",
        "MUSTER_AGENT_ID": "ag-m1",
        "MUSTER_AGENT_GROUP": "default",
        "MUSTER_AGENT_HOST": "m1.example",
        "MUSTER_AGENT_ATTRIBUTES": '{"rack": "r7"}',
        "MUSTER_INCIDENT": "inc-m1",
        "MUSTER_GENERATION": "1",
        "MUSTER_WHY": "GPU 0 is broken",
    }
    assert "A_SECRET_OF_THE_CONTROLLER" not in variables
    assert Path(f"{told}.place").read_text() == "/\n"
    assert Path(f"{told}.input").read_text() == ""


def test_words_of_a_machine_never_reach_a_shell(rebooters: Rebooters, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    rebooters.use("/bin/echo", "$MUSTER_AGENT_HOST", "; touch", str(ran))
    host = f"`touch {ran}`; touch {ran}; $(touch {ran})"
    effect = rebooters.machine("m1", host=host, attributes=json.dumps({"rack": host}))
    assert rebooters.outcome(effect).done is True
    assert not ran.exists()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("echo no such host >&2; exit 3", "`sh` ends with exit code 3: no such host"),
        ("exit 1", "`sh` ends with exit code 1 and says nothing"),
        ("kill -9 $$", "`sh` ends with signal 9 and says nothing"),
    ],
)
def test_command_that_fails_says_why_in_its_last_line(
    rebooters: Rebooters, line: str, error: str
) -> None:
    _use(rebooters, line)
    outcome = rebooters.outcome(rebooters.machine("m1"))
    assert (outcome.done, outcome.error) == (False, error)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("/no/such/program", "/no/such/program is not there"),
        ("no-such-program", "no-such-program is not there on the controller's PATH"),
    ],
)
def test_command_that_is_missing_or_no_program_is_refused_with_its_name(
    rebooters: Rebooters, command: str, error: str
) -> None:
    rebooters.use(command)
    outcome = rebooters.outcome(rebooters.machine("m1"))
    assert (outcome.done, outcome.error) == (False, error)


def test_command_that_may_not_be_executed_is_refused(rebooters: Rebooters, tmp_path: Path) -> None:
    program = tmp_path / "power-cycle"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    rebooters.use(str(program))
    outcome = rebooters.outcome(rebooters.machine("m1"))
    assert (outcome.done, outcome.error) == (False, f"{program} is not executable: chmod +x it")


@pytest.mark.parametrize(
    "line",
    [
        "sleep 603",
        "trap '' TERM INT HUP; while :; do sleep 603; done",
        "trap '' TERM; (trap '' TERM; setsid sleep 603 & sleep 603) & sleep 603",
        "env -i setsid sh -c 'env -i setsid sleep 603 & sleep 603' & exec sleep 603",
    ],
)
def test_command_that_hangs_is_killed_with_all_that_it_started(
    rebooters: Rebooters, line: str
) -> None:
    """And whether it has rebooted the machine is unknown."""
    before = _sleepers()
    _use(rebooters, line, timeout=1.0)
    began_s = time.monotonic()
    outcome = rebooters.outcome(rebooters.machine("m1"))
    assert time.monotonic() - began_s < 15.0
    assert outcome.done is None
    assert "did not end within 1 s" in outcome.error
    until(lambda: _sleepers() <= before)


def test_whatever_a_command_leaves_running_is_killed(rebooters: Rebooters) -> None:
    before = _sleepers()
    _use(rebooters, "setsid sleep 603 & nohup sleep 603 >/dev/null 2>&1 & exit 0")
    assert rebooters.outcome(rebooters.machine("m1")).done is True
    until(lambda: _sleepers() <= before)


@pytest.mark.parametrize("stream", ["1", "2"])
def test_command_that_prints_without_end_is_ended(rebooters: Rebooters, stream: str) -> None:
    _use(rebooters, f"yes $(printf '\\033[31m%0300d' 0) >&{stream}")
    outcome = rebooters.outcome(rebooters.machine("m1"))
    assert outcome.done is None
    assert "MiB" in outcome.error
    assert outcome.error.isprintable()
    assert len(outcome.error) <= MAX_TOLD


def test_attributes_too_large_for_a_process_are_told(rebooters: Rebooters) -> None:
    _use(rebooters, "exit 0")
    effect = rebooters.machine("m1", attributes=json.dumps({"rack": "x" * (1 << 21)}))
    outcome = rebooters.outcome(effect)
    assert outcome.done is False
    assert "cannot be started" in outcome.error


def test_agent_that_was_never_heard_is_not_rebooted(rebooters: Rebooters, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    rebooters.use("/bin/touch", str(ran))
    effect = rebooters.machine("m1", boot_id="")
    rebooters.change(effect, boot_id="")
    outcome = rebooters.outcome(effect)
    assert outcome.done is False
    assert "never heard" in outcome.error
    assert not ran.exists()


def test_commands_of_two_groups_do_not_wait_for_each_other(
    rebooters: Rebooters, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    _use(rebooters, f'[ "$MUSTER_AGENT_GROUP" != slow ] || cat {gate}')
    slow = [rebooters.machine(f"s{number}", group="slow") for number in range(6)]
    rebooters.perform(*slow, rebooters.machine("m1"))
    (first,) = rebooters.outcomes(1)
    assert first.incident == "inc-m1"
    until(lambda: _let_go(gate) and len(rebooters.reported) == 7)
    assert {each.done for each in rebooters.outcomes(7)} == {True}


def _let_go(gate: Path) -> bool:
    """Let the readers of the pipe go on that there are now, if there are any."""
    with suppress(OSError):
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    return True


def test_settings_are_read_from_the_controllers_directory(tmp_path: Path) -> None:
    assert load_settings(None) == load_settings(tmp_path) == HealthSettings()
    (tmp_path / FILE).write_text("reboot_command: [power-cycle, --now]\nreboot_timeout: 40s\n")
    settings = load_settings(tmp_path)
    assert settings.reboot_command == ("power-cycle", "--now")
    assert settings.reboot_timeout == 40.0


@pytest.mark.parametrize(
    "text",
    [
        "reboot_command: power-cycle --now",  # a shell's
        "reboot_command: [bin/power-cycle]",
        "reboot_command: ['']",
        'reboot_command: ["a\\0b"]',
        "reboot_command: [a]\nreboot_timeout: 51",
        "reboot_command: [a]\nreboot_timeout: 0",
        "reboot_commands: [a]",
        "[1, 2",
        "",
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(InvalidSpec):
        load_settings(tmp_path)


def test_settings_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSpec, match=FILE):
        load_settings(tmp_path)
