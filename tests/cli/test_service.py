"""Units as systemd reads them; systemd itself looks at them where it is installed."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.client.authority import certificate
from tests.providers.test_starting import order

from muster.agent.daemon import AgentRefused
from muster.agent.identity import AgentIdentity, save_identity
from muster.app import service as units
from muster.app.local import DownReport
from muster.app.service import SystemUnit, UnitRole, unit_in, unit_text
from muster.cli.program import app
from muster.core.errors import MusterError, Superseded
from muster.core.ids import AgentId
from muster.providers.starting import AGENT_LIMITS, AgentPlace, start_script

AGENT = (
    *("--controller", "controller.example:7601"),
    *("--token-file", "join token", "--ca", "ca.pem"),
)
TLS = ("--tls-cert", "other/server.pem", "--tls-key", "other/server.key")


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's settings, and files that the options name, where systemd does not run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(units, "SYSTEMD_RUNS", tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "join token").write_text("secret\n")
    certificate(tmp_path / "authority")
    shutil.copy(tmp_path / "authority" / "ca.pem", "ca.pem")
    return tmp_path


def muster(*words: str) -> Result:
    return CliRunner().invoke(app, ["service", *words])


def parsed(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def verified(file: Path) -> None:
    """By systemd, if it is here; one before version 254 knows no DelegateSubgroup, and says so."""
    if not shutil.which("systemd-analyze"):
        return
    words = ["systemd-analyze", "verify", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    said = [line for line in done.stderr.splitlines() if "DelegateSubgroup" not in line]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize("role", list(UnitRole))
def test_unit_of_each_role_is_one_that_systemd_takes(role: UnitRole, settings: Path) -> None:
    result = muster("install", role, "--user", *(AGENT if role is UnitRole.AGENT else ()))
    assert result.exit_code == 0, result.output
    file = settings / "systemd" / "user" / f"muster-{role}.service"
    verified(file)
    service = parsed(file.read_text())["Service"]
    assert service["Restart"] == "on-failure", "what ends in order, as by `muster down`, stays down"


def test_kernels_of_an_agents_unit_have_what_the_machine_has(settings: Path) -> None:
    text = unit_text(SystemUnit(UnitRole.AGENT, of_user=False), AGENT, settings, settings)
    service = parsed(text)["Service"]
    assert service["LimitMEMLOCK"] == service["TasksMax"] == "infinity"
    assert service["Delegate"] == "yes"
    assert service["OOMPolicy"] == "continue", "a kernel that is killed for memory ends no other"
    assert all(line in start_script(order(), "m", AgentPlace()) for line in AGENT_LIMITS.split())


def test_agent_that_the_controller_does_not_want_is_not_started_again(settings: Path) -> None:
    text = unit_text(SystemUnit(UnitRole.AGENT, of_user=False), AGENT, settings, settings)
    prevented = parsed(text)["Service"]["RestartPreventExitStatus"]
    assert prevented == str(AgentRefused.exit_code) == "77"


def test_proxy_has_a_unit_that_begins_after_the_controllers(settings: Path) -> None:
    result = muster("install", "proxy", "--user", "--port", "8383")
    assert result.exit_code == 0, result.output
    unit = parsed((settings / "systemd" / "user" / "muster-proxy.service").read_text())
    assert unit["Service"]["ExecStart"].endswith('muster" "proxy" "--port" "8383"')
    assert "muster-controller.service" in unit["Unit"]["After"].split()
    assert muster("uninstall", "proxy", "--user").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("agent", *AGENT, "--token-file", "nope"), "cannot read nope"),
        (("agent", *AGENT, "--token-file", "empty"), "is empty: it has to hold a join token"),
        (("agent", *AGENT, "--ca", "join token"), "holds no certificate in PEM"),
        (("agent", *AGENT[:4]), "need TLS there; name the controller's authority"),
        (("agent", "--controller", "127.0.0.1:7601"), "this agent has not joined yet"),
        (("controller", "--tls-cert", "ca.pem"), "--tls-cert and --tls-key go together"),
        (("controller", "--tls-cert", "ca.pem", "--tls-key", "nope"), "cannot read nope"),
        (("controller", "--host", "0.0.0.0"), "need TLS there"),
        (
            ("controller", *TLS, "--tls-ca", "ca.pem"),
            "would refuse other/server.pem: its certificate was not issued by that authority",
        ),
        (("proxy", "--host", "0.0.0.0"), "need TLS there"),
        (("proxy", "--tls-cert", "ca.pem", "--tls-key", "ca.pem"), "are not a certificate and"),
    ],
)
def test_unit_whose_files_would_not_do_is_refused_before_it_is_written(
    words: tuple[str, ...], said: str, settings: Path
) -> None:
    (settings / "empty").write_text("\n")
    certificate(settings / "other")
    result = muster("install", *words, "--user")
    assert result.exit_code == 1, result.output
    assert said in str(result.exception) or said in result.output
    assert not (settings / "systemd").exists()


def test_agent_that_has_joined_needs_no_token_file(settings: Path) -> None:
    directory = settings / "agent"
    directory.mkdir()
    save_identity(directory, AgentIdentity(AgentId("agt-1"), "credential"))
    words = ("--controller", "127.0.0.1:7601", "--dir", str(directory))
    assert muster("install", "agent", "--user", *words).exit_code == 0


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        ("0::/system.slice/muster-controller.service", SystemUnit(UnitRole.CONTROLLER, False)),
        ("0::/system.slice/muster-agent.service/agent", SystemUnit(UnitRole.AGENT, False)),
        (
            "0::/user.slice/user-0.slice/user@0.service/app.slice/muster-controller.service\n",
            SystemUnit(UnitRole.CONTROLLER, True),
        ),
        (
            "3:cpu:/\n1:name=systemd:/system.slice/muster-proxy.service\n",
            SystemUnit(UnitRole.PROXY, False),
        ),
        ("0::/user.slice/user-0.slice/session-3.scope", None),
        ("0::/system.slice/my-muster-agent.service", None),
        ("", None),
    ],
)
def test_unit_that_runs_a_process_is_known_by_its_cgroup(
    cgroups: str, unit: SystemUnit | None
) -> None:
    assert unit_in(cgroups) == unit


@pytest.mark.parametrize(
    ("restart", "said"),
    [
        ("on-failure", "`systemctl --user start muster-controller.service` does now"),
        ("always", "stop it with `systemctl --user stop muster-controller.service`"),
    ],
)
def test_down_says_what_systemd_does_with_the_controllers_unit(
    restart: str, said: str, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert muster("install", "controller", "--user").exit_code == 0
    unit = SystemUnit(UnitRole.CONTROLLER, of_user=True)
    text = unit.file.read_text().replace("Restart=on-failure", f"Restart={restart}")
    unit.file.write_text(text)
    report = DownReport(was_running=True, stopped_kernels=0, unit=unit)
    monkeypatch.setattr("muster.app.local.down", lambda *_, **__: report)
    result = CliRunner().invoke(app, ["down"])
    assert said in result.output


def test_agent_unit_survives_restarts_with_its_kernels(settings: Path) -> None:
    result = muster("install", "agent", "--user", *AGENT)
    assert result.exit_code == 0, result.output
    file = settings / "systemd" / "user" / "muster-agent.service"
    unit = parsed(file.read_text())
    assert unit["Service"]["KillMode"] == "process"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert unit["Service"]["ExecStart"].endswith(
        'muster" "agent" "--controller" "controller.example:7601" '
        '"--token-file" "join token" "--ca" "ca.pem"'
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
