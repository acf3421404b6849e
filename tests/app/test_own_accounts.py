"""The accounts that machines of local pools share with the home's own agents."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from muster.agent.accounts import MachineAccounts
from muster.agent.config import AgentConfig
from muster.app.account_options import AccountOptions
from muster.app.home import Home, LocalAgentSettings, Settings
from muster.app.own_accounts import (
    own_accounts,
    uids_given,
    users_directory_in,
    with_accounts_of,
    write_accounts,
)
from muster.core.errors import MusterError
from muster.core.owner import Owner
from muster.core.uids import UIDS_OF_CLUSTERS

PLAIN = AgentConfig(Path("/nowhere"), "", "")
ADA = Owner("default", "default", "ada")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def read(home: Home) -> AgentConfig:
    machine = home.path / "machine"
    machine.mkdir(exist_ok=True)
    return with_accounts_of(AgentConfig(machine, "", "", cluster="another"), home.accounts_file)


def test_file_has_what_up_was_told_and_is_for_its_owner_alone(home: Home) -> None:
    options = AccountOptions(
        mapped={"bob": "daemon"}, source="system", uid_range="300000-300009", pids_max=99
    )
    options = replace(options, users_directory="/srv/users", scratch_max="1GiB")
    home.write_settings(Settings(agents=LocalAgentSettings(count=0, accounts=options)))
    file = write_accounts(home, ADA)
    assert file.stat().st_mode & 0o777 == 0o600
    config = read(home)
    assert config.accounts == {"bob": "daemon", "default/ada": "root"}
    assert (config.system_accounts, config.uids) == (True, range(300_000, 300_010))
    assert config.cluster_uids == range(300_000, 300_010)
    assert (config.pids_max, config.scratch_max_bytes) == (99, 2**30)
    assert (config.cluster, users_directory_in(file)) == (str(home.path), Path("/srv/users"))


def test_machines_of_pools_allow_the_range_of_the_controller(home: Home) -> None:
    write_accounts(home, ADA, range(400_000, 400_010))
    config = read(home)
    assert (config.uids, config.cluster_uids) == (PLAIN.uids, range(400_000, 400_010))
    write_accounts(home, ADA)
    assert read(home).cluster_uids == UIDS_OF_CLUSTERS


def test_file_of_an_older_version_allows_the_uids_that_clusters_choose(home: Home) -> None:
    kept = json.loads(write_accounts(home, ADA).read_text())
    del kept["cluster_uids"]
    home.accounts_file.write_text(json.dumps(kept))
    assert read(home).cluster_uids == UIDS_OF_CLUSTERS


def test_uids_that_the_homes_own_agents_gave_are_found(home: Home, tmp_path: Path) -> None:
    users = tmp_path / "users"
    for uid, owner in ((300_000, f"{home.path} lab/bob"), (300_001, "/other default/ada")):
        (users / str(uid)).mkdir(parents=True)
        (users / str(uid) / "owner").write_text(owner)
    (users / "300002").mkdir()
    agents = [replace(PLAIN, users_directory=users)]
    expected = {"lab/bob": 300_000} if os.geteuid() == 0 else {}
    assert uids_given(home, agents) == expected
    assert uids_given(home, [replace(PLAIN, users_directory=users / "none")]) == {}
    assert uids_given(home, []) == {}


def test_account_that_is_gone_since_keeps_no_controller_from_its_start(home: Home) -> None:
    options = AccountOptions(mapped={"bob": "nobody-has-this-account"})
    home.write_settings(Settings(agents=LocalAgentSettings(accounts=options)))
    write_accounts(home, ADA)
    assert read(home).accounts == {"default/ada": "root"}


def test_account_to_which_the_owner_is_mapped_comes_first() -> None:
    assert own_accounts({"ada": "ada"}, ADA) == {"ada": "ada"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root's agents run kernels as other users")
def test_owner_of_the_home_is_root_and_others_are_not(home: Home) -> None:
    write_accounts(home, ADA)
    accounts = MachineAccounts(read(home))
    assert accounts.of("default/default/ada") is None, "the agent's own user"
    other = accounts.of("default/default/bob")
    assert other is not None
    assert other.uid >= 200_000


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"accounts": 5}'])
def test_file_that_is_another_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "accounts.json"
    file.write_text(text)
    with pytest.raises(MusterError, match="is not the accounts"):
        with_accounts_of(AgentConfig(tmp_path, "", ""), file)
    assert users_directory_in(file) is None
    assert users_directory_in(tmp_path / "nowhere") is None
