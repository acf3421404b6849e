"""Options for the accounts that kernels run as."""

from dataclasses import replace
from pathlib import Path

import pytest

from muster.agent.config import AgentConfig
from muster.app import local
from muster.app.account_options import AccountOptions, with_accounts
from muster.app.agent_process import dump_config, load_config
from muster.app.controller_config import ControllerConfig, dump_controller, load_controller
from muster.app.detached import DetachedController
from muster.app.home import Home, LocalAgentSettings, RunningController, Settings
from muster.app.local_agent_settings import agent_configs
from muster.cli.agent_options import AccountSource, AgentAccountOptions
from muster.cli.commands.agent import agent
from muster.cli.commands.cluster import up
from muster.cli.parameters import command_of
from muster.core.errors import MusterError

CONFIG = AgentConfig(Path("/nowhere"), "127.0.0.1:1", "a1")


def test_options_become_settings_of_the_agent() -> None:
    options = AccountOptions(
        mapped={"ada": "daemon"},
        source="system",
        uid_range="300000-300009",
        users_directory="/srv/users",
        pids_max=100,
        scratch_max="2GiB",
    )

    config = with_accounts(CONFIG, options)

    assert dict(config.accounts) == {"ada": "daemon"}
    assert config.system_accounts is True
    assert config.uids == config.cluster_uids == range(300_000, 300_010)
    assert config.users_directory == Path("/srv/users")
    assert (config.pids_max, config.scratch_max_bytes) == (100, 2 << 30)


def test_settings_of_agents_and_controllers_keep_the_ranges_of_uids(tmp_path: Path) -> None:
    config = with_accounts(CONFIG, AccountOptions(uid_range="300000-300009"))
    assert load_config(dump_config(config)) == config
    for uids in (None, range(300_000, 300_010)):
        controller = ControllerConfig(Home(tmp_path), uids=uids)
        assert load_controller(dump_controller(controller)).uids == uids


def test_range_of_up_is_that_of_its_controller_and_its_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ControllerConfig] = []

    def start(config: ControllerConfig, *_: object, **__: object) -> None:
        asked.append(config)
        raise MusterError("enough")

    monkeypatch.setattr(DetachedController, "start", start)
    accounts = AccountOptions(uid_range="300000-300009")
    with pytest.raises(MusterError, match="enough"):
        local.up(local.UpOptions(home=tmp_path / "home", accounts=accounts))
    assert asked[0].uids == asked[0].agents[0].cluster_uids == range(300_000, 300_010)


@pytest.mark.parametrize("account", ["root", "nobody"])
def test_nobody_is_mapped_to_an_account_that_no_kernel_may_have(account: str) -> None:
    with pytest.raises(MusterError, match="no kernel runs as root or nobody"):
        with_accounts(CONFIG, AccountOptions(mapped={"ada": account}))


def test_account_that_is_not_there_is_told_before_the_agent_starts() -> None:
    with pytest.raises(MusterError, match="this machine has no account no-such-account"):
        with_accounts(CONFIG, AccountOptions(mapped={"ada": "no-such-account"}))


@pytest.mark.parametrize("text", ["", "5", "0-70000", "300000-200000", "a-b", "1000-99999999999"])
def test_range_that_is_none_or_has_uids_of_services_is_refused(text: str) -> None:
    with pytest.raises(MusterError, match="--uid-range"):
        with_accounts(CONFIG, AccountOptions(uid_range=text))


def test_too_few_processes_to_start_anything_are_refused() -> None:
    with pytest.raises(MusterError, match="--pids-max is 3"):
        with_accounts(CONFIG, AccountOptions(pids_max=3))


def test_size_that_is_none_is_refused() -> None:
    with pytest.raises(MusterError, match="--scratch-max is 'much'"):
        with_accounts(CONFIG, AccountOptions(scratch_max="much"))


def test_up_keeps_what_was_said_of_accounts_until_something_else_is_said(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    first = AccountOptions(mapped={"ada": "daemon"}, source="system", users_directory="/srv/users")
    home.write_settings(Settings(agents=LocalAgentSettings(count=2, accounts=first)))
    kept = home.settings().agents
    assert kept.accounts == first
    assert [dict(each.accounts) for each in agent_configs(home, kept)] == [{"ada": "daemon"}] * 2
    assert AccountOptions(pids_max=99).over(kept.accounts) == replace(first, pids_max=99)
    assert AccountOptions(mapped={}, source="range").over(kept.accounts) == replace(
        first, mapped={}, source="range"
    )


def test_up_and_agent_take_the_same_words_about_accounts(tmp_path: Path) -> None:
    words = ["--map-user", "ada=daemon", "--accounts", "system", "--pids-max", "99"]
    expected = AccountOptions(mapped={"ada": "daemon"}, source="system", pids_max=99)
    for command in (up, agent):
        named = {option for each in command_of(command).params for option in each.opts}
        assert {word for word in words if word.startswith("--")} < named
    assert (
        AgentAccountOptions(["ada=daemon"], AccountSource.SYSTEM, pids_max=99).options() == expected
    )
    kept = Settings(agents=LocalAgentSettings(accounts=replace(expected, source="range")))
    home = Home(tmp_path)
    home.write_settings(kept)
    home.write_running(RunningController(1, "http://127.0.0.1:7600", "127.0.0.1:7601", "1", 0.0))
    said = local._already_running(home, local.UpOptions(accounts=expected))
    assert "to which --accounts was not applied" in said
    assert AgentAccountOptions(["none"]).options() == AccountOptions(mapped={})
