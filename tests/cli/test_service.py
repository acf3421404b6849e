"""Units as systemd reads them; systemd itself looks at them where it is installed."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.app import service as units
from muster.app.service import SystemUnit, UnitRole, unit_text
from muster.cli.main import app
from muster.core.errors import MusterError, Superseded

AGENT = ("--controller", "controller.example:7601", "--token-file", "join token")


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's settings, on a machine that systemd does not run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(units, "SYSTEMD_RUNS", tmp_path / "nowhere")
    return tmp_path


def muster(*words: str) -> Result:
    return CliRunner().invoke(app, ["service", *words])


def parsed(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def verified(file: Path) -> None:
    """By systemd, if it is here."""
    if shutil.which("systemd-analyze"):
        subprocess.run(["systemd-analyze", "verify", str(file)], check=True, timeout=60)


def test_agent_unit_survives_restarts_with_its_kernels(settings: Path) -> None:
    result = muster("install", "agent", "--user", *AGENT)
    assert result.exit_code == 0, result.output
    file = settings / "systemd" / "user" / "muster-agent.service"
    verified(file)
    unit = parsed(file.read_text())
    assert unit["Service"]["KillMode"] == "process"
    assert unit["Service"]["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert unit["Service"]["ExecStart"].endswith(
        'muster" "agent" "--controller" "controller.example:7601" "--token-file" "join token"'
    )
    assert unit["Service"]["Environment"] == f'"MUSTER_HOME={settings / "home"}"'
    assert unit["Install"]["WantedBy"] == "default.target"
    assert "systemctl --user enable --now muster-agent.service" in result.stdout
    assert muster("show", "agent", "--user").stdout == file.read_text()
    removed = muster("uninstall", "agent", "--user")
    assert removed.exit_code == 0, removed.output
    assert not file.exists()
    assert muster("show", "agent", "--user").exit_code == 1


def test_controller_whose_password_others_could_read_in_the_unit_is_refused(
    settings: Path,
) -> None:
    url = "postgresql://muster:secret@db/muster"
    refused = muster("install", "controller", "--user", "--database", url)
    assert refused.exit_code == 2
    assert "give it in ~/.pgpass" in refused.output
    assert "secret" not in refused.output
    assert not (settings / "systemd").exists()
    installed = muster(
        "install", "controller", "--user", f"--database={url.replace(':secret', '')}"
    )
    assert installed.exit_code == 0, installed.output
    unit = parsed((settings / "systemd" / "user" / "muster-controller.service").read_text())
    assert unit["Service"]["RestartPreventExitStatus"] == str(Superseded.exit_code)


def test_controller_unit_of_the_system_is_wanted_by_multi_user_target(settings: Path) -> None:
    of_system = SystemUnit(UnitRole.CONTROLLER, of_user=False)
    assert of_system.file == Path("/etc/systemd/system/muster-controller.service")
    unit = parsed(unit_text(of_system, ["--host", "0.0.0.0"], settings, settings))
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert unit["Service"]["KillMode"] == "mixed"


@pytest.mark.parametrize(
    "words",
    [
        ("agent", "--nope"),
        ("agent",),
        ("agent", *AGENT, "--token", "secret"),
        ("controller", "--port", "many"),
        ("database",),
    ],
)
def test_unit_that_could_not_start_is_refused(settings: Path, words: tuple[str, ...]) -> None:
    result = muster("install", *words, "--user")
    assert result.exit_code == 2, result.output
    assert not (settings / "systemd").exists()


def test_words_are_quoted_and_what_no_unit_can_hold_is_refused(settings: Path) -> None:
    service = SystemUnit(UnitRole.AGENT, of_user=True)
    text = unit_text(service, ['a "b" \\ $HOME %h'], settings, settings)
    assert '"a \\"b\\" \\\\ $$HOME %%h"' in text
    for word in ("two\nlines", "x" * 5000):
        with pytest.raises(MusterError, match="cannot stand in a unit"):
            unit_text(service, [word], settings, settings)
