"""Agents and controllers that are started as this very process: what is told before they begin."""

from pathlib import Path

import pytest

from muster.agent.config import AgentConfig
from muster.agent.identity import AgentIdentity, load_identity, save_identity
from muster.app import foreground
from muster.app.agent_process import load_config
from muster.app.controller_config import load_controller
from muster.app.foreground import run_agent, run_controller
from muster.app.home import Home
from muster.app.own_authority import own_certificate
from muster.core.errors import MusterError
from muster.core.ids import AgentId

JOINED = AgentIdentity(AgentId("agt-1"), "secret", "gpu-7", "h100")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The settings with which processes would have begun."""
    settings: list[str] = []
    monkeypatch.setattr(foreground, "_become", lambda module, text, log: settings.append(text))
    return settings


def start(begun: list[str], directory: Path, **options: object) -> AgentConfig:
    run_agent("127.0.0.1:1", directory=directory, **options)  # type: ignore[arg-type]
    return load_config(begun[-1])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of an agent that has joined."""
    path = tmp_path / "agent"
    path.mkdir()
    save_identity(path, JOINED)
    assert load_identity(path) == JOINED
    return path


def test_agent_that_has_joined_starts_without_its_token_file(
    begun: list[str], directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = directory / "gone"
    assert start(begun, directory, token_file=missing).token is None
    assert f"cannot read {missing}: No such file or directory. This agent has joined" in (
        capsys.readouterr().err
    )
    missing.write_text("token\n")
    assert start(begun, directory, token_file=missing).token == "token"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("agent", [None, ""])
def test_agent_that_has_not_joined_needs_its_token_file(
    begun: list[str], tmp_path: Path, agent: str | None
) -> None:
    if agent is not None:  # a credential that no controller has answered yet
        save_identity(tmp_path, AgentIdentity(AgentId(agent), "secret"))
    with pytest.raises(MusterError, match="cannot read"):
        start(begun, tmp_path, token_file=tmp_path / "gone")
    assert begun == []


def test_name_and_group_that_have_no_effect_after_a_join_are_told(
    begun: list[str], directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = start(begun, directory, name="gpu-8", group="a100")
    assert (config.name, config.group) == ("gpu-7", "h100")
    assert (config.new_name, config.new_group) == ("gpu-8", "a100")
    name, group = capsys.readouterr().err.splitlines()
    assert name == (
        "warning: --name gpu-8 has no effect unless it joins anew: this agent has joined as gpu-7 "
        "in group h100. `muster agents remove gpu-7`, then a start with a join token, has it do so"
    )
    assert group.startswith("warning: --group a100 has no effect")
    for options in ({}, {"name": "gpu-7", "group": "h100"}):
        config = start(begun, directory, **options)
        assert (config.name, config.group) == ("gpu-7", "h100")
        assert capsys.readouterr().err == ""


def test_agent_that_joined_with_an_older_version_is_called_as_it_is_told(
    begun: list[str], directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "credential.json").write_text('{"agent": "agt-1", "credential": "secret"}')
    config = start(begun, directory, name="gpu-8", group="a100")
    assert (config.name, config.group) == ("gpu-8", "a100")
    name, group = capsys.readouterr().err.splitlines()
    assert name == (
        "warning: --name gpu-8 has no effect if this agent (agt-1) has joined with another: an "
        "earlier version did not note it, and `muster agents` tells it"
    )
    assert group.startswith("warning: --group a100 has no effect if")
    assert start(begun, directory).group == "default"
    assert capsys.readouterr().err == ""


def test_files_of_tls_are_found_wherever_a_client_is(
    begun: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_certificate(Home(tmp_path), [])
    monkeypatch.chdir(tmp_path)
    names = ("server.pem", "server.key", "ca.pem")
    certificate, key, authority = map(Path, names)
    run_controller(tmp_path / "home", tls_cert=certificate, tls_key=key, tls_ca=authority)
    config = load_controller(begun[-1])
    assert config.tls is not None
    found = (config.tls.certificate, config.tls.key, config.authority)
    assert found == tuple(tmp_path / name for name in names)
