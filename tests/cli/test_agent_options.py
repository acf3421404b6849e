"""Options of an agent that shares its machine with others, and of its end."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from muster.agent.config import AgentConfig
from muster.app import foreground
from muster.app.agent_process import load_config
from muster.cli.program import app
from muster.core.log_options import LogOptions

AGENT = ["agent", "--controller", "127.0.0.1:1", "--token", "t", "--name", "m-1"]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[AgentConfig]:
    """The settings of the agents that the command line would have become."""
    found: list[AgentConfig] = []

    def become(module: str, settings: str, log: LogOptions) -> None:
        assert module == "muster.app.agent_process"
        found.append(load_config(settings))

    monkeypatch.setattr(foreground, "_become", become)
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    return found


def _say(*words: str) -> Any:
    return CliRunner().invoke(app, [*AGENT, *words])


def test_options_become_settings_of_the_agent(started: list[AgentConfig]) -> None:
    said = (
        "--gpus 2xH100 --gpu-memory 80GiB --disk 1TiB --ports 20100-20199 --boot-id b --cluster c"
    )
    result = _say(*said.split())

    assert result.exit_code == 0, result.output
    (config,) = started
    assert (config.gpus, config.gpu_memory_bytes) == ("2xH100", 80 * 2**30)
    assert config.disk_bytes == 2**40
    assert config.ports == range(20_100, 20_200)
    assert (config.boot_id, config.cluster) == ("b", "c")


def test_operator_names_checks_and_how_the_machine_is_rebooted(
    started: list[AgentConfig],
) -> None:
    result = _say(
        *("--check", "nccl=/opt/check-nccl --ring 'of 8'", "--check", "fans=/opt/fans"),
        *("--check-limit", "disk_free=0.05", "--reboot-command", "ipmitool power cycle"),
    )

    assert result.exit_code == 0, result.output
    (config,) = started
    assert config.checks == {"nccl": "/opt/check-nccl --ring 'of 8'", "fans": "/opt/fans"}
    assert config.check_limits == {"disk_free": 0.05}
    assert config.reboot_command == "ipmitool power cycle"


def test_agent_alone_on_its_machine_needs_none_of_them(
    started: list[AgentConfig], tmp_path: Path
) -> None:
    assert _say().exit_code == 0
    (config,) = started
    assert config.boot_id is None
    assert config.cluster == str(tmp_path / "agents/m-1")
    assert config.ports == AgentConfig(Path(), "", "").ports


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--ports 5", "--ports is '5': expected FIRST-LAST from 1024 on"),
        ("--ports 20199-20100", "expected FIRST-LAST"),
        ("--ports 1000-2000", "expected FIRST-LAST"),
        ("--ports 60000-70000", "expected FIRST-LAST"),
        ("--disk much", "--disk is 'much'"),
        ("--memory 64", "--memory is '64': expected a size with its unit: write 64GiB"),
        ("--disk 64", "--disk is '64': expected a size with its unit: write 64GiB"),
        ("--gpus 1xT4 --gpu-memory 80", "write 80GiB, or 80B if bytes are meant"),
        ("--gpu-memory 80GiB", "--gpu-memory is of the devices that --gpus declares"),
        ("--gpus 1xT4 --gpu-memory much", "--gpu-memory is 'much'"),
        (f"--boot-id {'x' * 300}", "--boot-id is"),
        ("--wipe", "--wipe goes with --end"),
        ("--check nccl", "expected NAME=COMMAND"),
        ("--check /opt/nccl=x", "--check is '/opt/nccl': expected a name"),
        ("--check nccl='", '--check nccl is "\'": No closing quotation'),
        ("--check-limit disk_free=much", "--check-limit disk_free is 'much'"),
        ("--check-limit disk_free=-1", "expected a number, zero or more"),
        ("--reboot-command '", "--reboot-command is"),
        ("--end", "--end needs no --controller"),
    ],
)
def test_wrong_option_is_told_in_one_line(
    words: str, told: str, started: list[AgentConfig]
) -> None:
    result = _say(*words.split())
    assert result.exit_code != 0
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert started == []


def test_agent_needs_a_controller(started: list[AgentConfig]) -> None:
    result = CliRunner().invoke(app, ["agent", "--token", "t"])
    assert result.exit_code == 2
    assert "Missing option '--controller'" in result.stderr
    assert started == []


def test_end_of_an_agent_that_never_was_is_no_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["agent", "--end", "--wipe", "--dir", str(tmp_path / "none")])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"there is no agent in {tmp_path / 'none'}\n"
    assert [*tmp_path.iterdir()] == []
